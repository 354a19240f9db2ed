//! Long random programs, against the oracle of the fuzz target `device`.

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::Driver;
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

#[test]
fn a_hundred_thousand_operations_stay_quick() {
    let cuda = Simulated::new(1);
    let mut random = Random(7);
    let streams: Vec<Stream> =
        (0..8).map(|at| Stream::Handle(cuda.create_stream(0, at % 2 == 0).unwrap())).collect();
    let blocks: Vec<u64> =
        (0..16).map(|_| cuda.alloc(0, 4096, MemoryKind::Device, "").unwrap()).collect();
    let event = cuda.create_event().unwrap();
    for step in 0..100_000_u64 {
        let (from, to) = (streams[random.below(8)], streams[random.below(8)]);
        cuda.record_on(event, from).unwrap();
        cuda.wait_on(to, event).unwrap();
        let start = random.below(64) * 64;
        let len = (1 + random.below(64 - start / 64)) * 64;
        let span = Span {
            ptr: blocks[random.below(16)] + u64::try_from(start).unwrap(),
            len: len.try_into().unwrap(),
        };
        let (reads, writes) =
            if step % 3 == 0 { (vec![], vec![span]) } else { (vec![span], vec![]) };
        cuda.launch(to, "op", &reads, &writes, |_| ()).unwrap();
    }
    cuda.synchronize_context().unwrap();
    assert_eq!(cuda.pending(), 0);
}
