//! Long random programs, against the oracle of the fuzz target `device`.

use std::ops::Range;

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{Simulated, Span};
use cai_bridge::stream::Stream;

use crate::bodies::choices::{Choices, Random};
use crate::bodies::device::Program;

#[test]
fn reports_are_what_the_closure_of_the_edges_says() {
    let (mut found, mut hidden) = (0, 0);
    for seed in 1..=60 {
        let mut program = Program::new(Random(seed * 0x9E37_79B9));
        program.run(150, seed % 3 != 0);
        let (reported, stood_for) = program.check_reports();
        found += reported;
        hidden += stood_for;
    }
    assert!(
        found > 1000 && hidden > 100,
        "the programs test something: {found} reported, {hidden} hidden"
    );
}

#[test]
fn work_runs_in_a_legal_order_and_the_least_helpful_one_where_nothing_forces_it() {
    for seed in 1..=30 {
        for syncs in [false, true] {
            let mut program = Program::new(Random(seed * 0x9E37_79B9));
            program.run(150, syncs);
            program.cuda.run_all().unwrap();
            program.check_run(!syncs);
        }
    }
}

#[test]
fn the_same_program_gives_the_same_reports_and_the_same_order() {
    let run = || {
        let mut program = Program::new(Random(42));
        program.run(2_000, true);
        program.cuda.run_all().unwrap();
        let ran = program.ran.lock().unwrap().clone();
        (program.cuda.reports(), ran)
    };
    assert_eq!(run(), run());
}

/// An access as the plain form of the check keeps it: by whom, of which stream, what it declared, and what of it
/// is not forgotten yet.
#[derive(Clone)]
struct Declared {
    sequence: u64,
    stream: usize,
    writes: bool,
    whole: Range<u64>,
    left: Range<u64>,
}

/// The races of `new` with the accesses before it, one by one, and those that are left then.
fn plainly(before: &mut Vec<Declared>, new: &Declared, named: &mut Vec<u64>) -> Vec<[Declared; 2]> {
    let (mut races, mut kept) = (Vec::new(), Vec::new());
    for earlier in before.drain(..) {
        let (a, b) = (earlier.left.clone(), new.whole.clone());
        if a.start >= b.end || b.start >= a.end {
            kept.push(earlier);
            continue;
        }
        let (same, excluding) = (earlier.stream == new.stream, earlier.writes || new.writes);
        if excluding && !same && !named.contains(&earlier.sequence) {
            named.push(earlier.sequence);
            races.push([earlier.clone(), new.clone()]);
        }
        if same && (new.writes || !earlier.writes) {
            let parts = [a.start..b.start.max(a.start), b.end.min(a.end)..a.end];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            kept.extend(parts.map(|left| Declared { left, ..earlier.clone() }));
        } else {
            kept.push(earlier);
        }
    }
    kept.push(new.clone());
    *before = kept;
    races
}

#[test]
fn races_are_those_that_a_check_of_each_access_with_each_finds() {
    let mut found = 0;
    for seed in 1..=200 {
        let (cuda, mut random) = (Simulated::new(1), Random(seed * 0x9E37_79B9));
        let streams = [(); 3].map(|()| Stream::Handle(cuda.create_stream(0, false).unwrap()));
        let block = cuda.alloc(0, 64, MemoryKind::Device, "x").unwrap();
        let (mut before, mut wanted) = (Vec::new(), Vec::new());
        for sequence in 1..=40 {
            let (stream, mut named) = (random.below(3), Vec::new());
            let mut some = |most: usize| -> Vec<Range<u64>> {
                let span = |random: &mut Random| {
                    let start = random.below(63) as u64;
                    start..start + 1 + random.below(64 - start as usize) as u64 / 4
                };
                (0..random.below(most)).map(|_| span(&mut random)).collect()
            };
            let (writes, reads) = (some(4), some(6));
            for (spans, writes) in [(&writes, true), (&reads, false)] {
                for whole in spans {
                    let (whole, left) = (whole.clone(), whole.clone());
                    let new = Declared { sequence, stream, writes, whole, left };
                    wanted.extend(plainly(&mut before, &new, &mut named));
                }
            }
            let raw = |spans: &[Range<u64>]| -> Vec<Span> {
                let span = |at: &Range<u64>| Span { ptr: block + at.start, len: at.end - at.start };
                spans.iter().map(span).collect()
            };
            cuda.launch(streams[stream], "op", &raw(&reads), &raw(&writes), |_| ()).unwrap();
        }
        let wanted: Vec<_> =
            wanted.into_iter().flatten().map(|it| (it.sequence, it.whole)).collect();
        let reports = cuda.reports();
        let sides = reports.into_iter().flat_map(|report| [report.first.unwrap(), report.second]);
        let sides: Vec<_> =
            sides.map(|side| (side.sequence, side.touched.unwrap().bytes)).collect();
        assert_eq!(sides, wanted, "seed {seed}");
        found += wanted.len();
    }
    assert!(found > 1000, "the programs race: {found}");
}

#[test]
fn arrays_with_gaps_stay_quick() {
    let cuda = Simulated::new(1);
    let block = cuda.alloc(0, 1 << 20, MemoryKind::Device, "x").unwrap();
    let gaps: Vec<Span> = (0..1 << 16).map(|at| Span { ptr: block + at * 16, len: 4 }).collect();
    for (stream, races) in [(0, 0), (0, 0), (1, 1)] {
        let stream =
            [Stream::Legacy, Stream::Handle(cuda.create_stream(0, false).unwrap())][stream];
        cuda.launch(stream, "op", &gaps, &gaps, |_| ()).unwrap();
        assert_eq!(cuda.reports().len(), races);
    }
}
