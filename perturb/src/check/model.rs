//! Tests the clocks against a graph in which each order is an edge.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use super::cells::{How, Touch};
use super::clocks::{Checker, For, Form, Rule};
use super::operation::Operation;
use crate::memory::Place;

/// The number of streams: the legacy default one, a thread's own, a blocking one, and two non-blocking ones.
const STREAMS: usize = 5;
const BLOCKING: [bool; STREAMS] = [true, true, true, false, false];
const SIZE: u64 = 18;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Work(usize, Vec<(u64, u64, How)>),
    Record(u64, usize),
    Wait(usize, u64),
    /// A host thread begins to wait: thread, stream, and the event that it waits for; without an event, for the
    /// stream.
    Begin(u64, usize, Option<u64>),
    /// A host thread has waited.
    End(u64),
    All,
}

pub(super) type Pairs = BTreeSet<(usize, usize)>;

/// The pairs of steps that the checker finds to race; without `every` only one pair for each two lines.
pub(super) fn by_clocks(steps: &[Step], without: Option<Rule>, every: bool) -> Pairs {
    let mut checker = Checker::new((0..=SIZE).collect(), every);
    checker.without = without;
    checker.memory.take(0, SIZE, Place::Device);
    let forms = [Form::Own, Form::Blocking, Form::NonBlocking, Form::NonBlocking];
    for (at, form) in forms.into_iter().enumerate() {
        checker.make(100 + at as u64, 0, form);
    }
    for event in 0..3 {
        checker.event(event);
    }
    let (mut back, mut waits) = (Vec::new(), BTreeMap::new());
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Work(stream, touched) => {
                back.push(at);
                let touches: Vec<Touch> =
                    touched.iter().map(|one| Touch::exact(one.0, one.1, one.2)).collect();
                checker.work(*stream, operation(at), &touches);
            }
            Step::Record(event, stream) => checker.record(*event, *stream),
            Step::Wait(stream, event) => checker.wait(*stream, *event),
            Step::Begin(thread, stream, event) => {
                let what = event.map_or(For::Stream(*stream), For::Event);
                checker.begin(*thread, what);
                waits.insert(*thread, what);
            }
            Step::End(thread) => {
                if let Some(what) = waits.remove(thread) {
                    checker.waited(*thread, what);
                }
            }
            Step::All => {
                checker.begin(9, For::All);
                checker.waited(9, For::All);
            }
        }
    }
    let pairs = checker.found.each.iter().map(|one| (back[one.0 as usize], back[one.1 as usize]));
    if every {
        return pairs.collect();
    }
    let kept = checker.found.pairs();
    kept.iter().map(|one| (back[one.hit.first as usize], back[one.second as usize])).collect()
}

pub(super) fn operation(at: usize) -> Operation {
    Operation {
        row: 0,
        name: u32::MAX,
        stream: 0,
        number: 0,
        stack: u32::try_from(at).unwrap(),
        place: 0,
        numbered: 0,
        flags: 0,
    }
}

/// The pairs of steps that race by the graph, which has for each step all steps that are done before it.
fn by_graph(steps: &[Step]) -> Pairs {
    let mut reach: Vec<BTreeSet<usize>> = Vec::new();
    let mut tail: BTreeMap<usize, usize> = BTreeMap::new();
    let mut host: BTreeSet<usize> = BTreeSet::new();
    let mut events: BTreeMap<u64, usize> = BTreeMap::new();
    let mut begun: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    let behind = |tail: &BTreeMap<usize, usize>, host: &BTreeSet<usize>, stream: usize| {
        let mut found = host.clone();
        for (other, at) in tail {
            let joined = BLOCKING[stream] && BLOCKING[*other] && (stream == 0 || *other == 0);
            if *other == stream || joined {
                found.insert(*at);
            }
        }
        found
    };
    for (at, step) in steps.iter().enumerate() {
        let mut before = BTreeSet::new();
        match step {
            Step::Work(stream, _) | Step::Record(_, stream) => {
                before = behind(&tail, &host, *stream);
                tail.insert(*stream, at);
                if let Step::Record(event, _) = step {
                    events.insert(*event, at);
                }
            }
            Step::Wait(stream, event) => {
                before = behind(&tail, &host, *stream);
                before.extend(events.get(event));
                tail.insert(*stream, at);
            }
            Step::Begin(thread, stream, event) => {
                let waited = match event {
                    Some(event) => events.get(event).copied().into_iter().collect(),
                    None if *stream == 0 => behind(&tail, &host, 0),
                    None => tail.get(stream).copied().into_iter().collect(),
                };
                begun.insert(*thread, waited);
            }
            Step::End(thread) => host.extend(begun.remove(thread).unwrap_or_default()),
            Step::All => host.extend(tail.values().copied()),
        }
        let all = before.iter().flat_map(|one| reach[*one].iter().copied()).collect::<Vec<_>>();
        before.extend(all);
        reach.push(before);
    }
    let mut found = Pairs::new();
    for (second, step) in steps.iter().enumerate() {
        let Step::Work(_, touched) = step else { continue };
        for (first, older) in steps.iter().enumerate().take(second) {
            let Step::Work(_, older) = older else { continue };
            let meets = touched.iter().any(|one| {
                older.iter().any(|other| {
                    one.0 < other.1
                        && other.0 < one.1
                        && (one.2 == How::Write || other.2 == How::Write)
                })
            });
            if meets && !reach[second].contains(&first) {
                found.insert((first, second));
            }
        }
    }
    found
}

/// Pseudo-random numbers (`SplitMix64`).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % most
    }
}

fn draw(seed: u64) -> Vec<Step> {
    let mut drawn = Drawn(seed << 20);
    let waits = [2, 6, 14][drawn.below(3) as usize];
    let count = 6 + drawn.below(25);
    (0..count).map(|_| one(&mut drawn, waits)).collect()
}

fn one(drawn: &mut Drawn, waits: u64) -> Step {
    let stream = drawn.below(STREAMS as u64) as usize;
    let event = drawn.below(3);
    let total = 20 + 4 * waits + 10;
    match drawn.below(total) {
        0..20 => {
            let touched = (0..=drawn.below(2)).map(|_| {
                let low = drawn.below(12);
                let how = [How::Read, How::Write][drawn.below(2) as usize];
                (low, low + 1 + drawn.below(6), how)
            });
            Step::Work(stream, touched.collect())
        }
        at if at < 20 + 2 * waits => Step::Record(event, stream),
        at if at < 20 + 4 * waits => Step::Wait(stream, event),
        at if at < total - 5 => {
            Step::Begin(drawn.below(2), stream, Some(event).filter(|_| drawn.below(2) == 0))
        }
        at if at < total - 1 => Step::End(drawn.below(2)),
        _ => Step::All,
    }
}

/// Calls `call` with each program of `length` steps from the alphabet.
fn each(alphabet: &[Step], length: usize, mut call: impl FnMut(&[Step])) {
    let mut at = std::vec![0; length];
    loop {
        call(&at.iter().map(|one: &usize| alphabet[*one].clone()).collect::<Vec<_>>());
        let Some(place) = at.iter().rposition(|one| *one + 1 < alphabet.len()) else { break };
        at[place] += 1;
        at[place + 1..].fill(0);
    }
}

fn alphabet() -> Vec<Step> {
    let work = |stream, how| Step::Work(stream, std::vec![(0, 4, how)]);
    std::vec![
        work(3, How::Write),
        work(4, How::Read),
        work(0, How::Write),
        work(2, How::Read),
        Step::Record(0, 3),
        Step::Wait(4, 0),
        Step::Begin(0, 3, None),
        Step::Begin(0, 0, Some(0)),
        Step::End(0),
        Step::All,
    ]
}

#[test]
fn the_clocks_say_what_reachability_says_of_each_short_program() {
    for length in 1..=5 {
        each(&alphabet(), length, |steps| {
            assert_eq!(by_clocks(steps, None, true), by_graph(steps), "{steps:?}");
        });
    }
}

#[test]
fn the_clocks_say_what_reachability_says_of_random_programs() {
    let (mut racy, mut pairs, mut kept) = (0, 0, 0);
    for seed in 0..20_000 {
        let steps = draw(seed);
        let (said, truth) = (by_clocks(&steps, None, true), by_graph(&steps));
        assert_eq!(said, truth, "{seed}: {steps:?}");
        // Without `every`, the checker finds only pairs of the graph, and at least one for each racy program.
        let some = by_clocks(&steps, None, false);
        assert!(some.is_subset(&truth) && some.is_empty() == truth.is_empty(), "{seed}");
        (racy, pairs, kept) =
            (racy + usize::from(!truth.is_empty()), pairs + truth.len(), kept + some.len());
    }
    assert!((5_000..18_000).contains(&racy), "{racy}");
    assert!(kept * 100 >= pairs * 95, "{kept} of {pairs}");
}

/// Whether random programs tell that a rule is left out.
pub(super) fn notices(rule: Rule) -> bool {
    (0..300).any(|seed| {
        let steps = draw(seed);
        by_clocks(&steps, Some(rule), true) != by_graph(&steps)
    })
}
