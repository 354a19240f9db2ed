//! Tests each rule of the clocks by programs that need it, with the rule and without.

use std::vec::Vec;

use super::cells::{How, Touch};
use super::clocks::{Checker, Form, Rule};
use super::model::{notices, operation};
use crate::memory::Place;

const RULES: [Rule; 19] = [
    Rule::Host,
    Rule::Legacy,
    Rule::Blocking,
    Rule::Record,
    Rule::Wait,
    Rule::Stream,
    Rule::Event,
    Rule::All,
    Rule::Begin,
    Rule::Copy,
    Rule::Free,
    Rule::Allocated,
    Rule::Freed,
    Rule::FreedByHost,
    Rule::Again,
    Rule::Value,
    Rule::Fog,
    Rule::Graph,
    Rule::Function,
];

/// A program over the legacy default stream 0 and two non-blocking streams, 1 and 2. Its memory is from 0 to
/// 100.
struct Program(Checker);

impl Program {
    fn new(without: Option<Rule>) -> Self {
        let mut checker = Checker::new(std::vec![0, 100, 200, 300], true);
        checker.without = without;
        checker.memory.take(0, 100, Place::Device);
        checker.make(10, 0, Form::NonBlocking);
        checker.make(11, 0, Form::NonBlocking);
        Self(checker)
    }

    fn touch(&mut self, stream: usize, low: u64, how: How) {
        self.0.work(stream, operation(0), &[Touch::exact(low, low + 8, how)]);
    }

    fn order(&mut self, first: usize, second: usize) {
        self.0.record(1, first);
        self.0.wait(second, 1);
    }

    fn alloc(&mut self, stream: usize) {
        self.0.memory.take(200, 100, Place::Pool);
        self.0.taken(200, 100);
        self.0.pooled(stream, operation(1), 200, false);
    }
}

/// A case: what it shows, its number of racing pairs, and the program.
type Row = (&'static str, usize, fn(&mut Program));

#[allow(clippy::too_many_lines)] // a table
fn programs() -> Vec<Row> {
    std::vec![
        ("nothing orders a write and a read", 1, |of| {
            of.touch(1, 0, How::Write);
            of.touch(2, 0, How::Read);
        }),
        ("a copy to pageable memory makes the host wait", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.copied(0, 1);
            of.touch(2, 0, How::Read);
        }),
        ("a free waits for everything", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.freed(0, operation(2), 50_000);
            of.touch(2, 0, How::Read);
        }),
        ("memory of a pool is not there before its allocation", 1, |of| {
            of.alloc(1);
            of.touch(2, 200, How::Read);
        }),
        ("it is freed on another stream than it is used on", 1, |of| {
            of.alloc(1);
            of.order(1, 2);
            of.touch(1, 200, How::Write);
            of.0.pooled(2, operation(3), 200, true);
        }),
        ("a free by the host waits for nothing where memory is a pool's", 1, |of| {
            of.alloc(1);
            of.0.copied(0, 1);
            of.touch(1, 200, How::Write);
            of.0.freed(0, operation(4), 200);
        }),
        ("memory that is given out again is another one", 0, |of| {
            of.0.memory.take(100, 100, Place::Device);
            of.touch(1, 100, How::Write);
            of.0.memory.take(100, 100, Place::Device);
            of.0.taken(100, 100);
            of.touch(2, 100, How::Write);
        }),
        ("a stream waits for a value that another one has written", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.write_value(1, 64, 7);
            of.0.wait_value(2, 64, |value| value >= 7);
            of.touch(2, 0, How::Read);
        }),
        ("of a stream that waits for a value which nobody has written nothing is said", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.wait_value(2, 64, |value| value >= 7);
            of.touch(2, 0, How::Read);
            // The stream may wait for the later write.
            of.touch(1, 0, How::Write);
        }),
        ("an event that was never recorded is no wait", 1, |of| {
            of.touch(1, 0, How::Write);
            of.0.event(5);
            of.0.wait(2, 5);
            of.touch(2, 0, How::Read);
        }),
        ("an event of another process is a wait for what is not known", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.wait(2, 77);
            of.touch(2, 0, How::Read);
        }),
        ("what a graph that cannot be read does may be to record an event", 0, |of| {
            of.0.event(5);
            of.touch(1, 0, How::Write);
            of.0.any_event();
            of.0.wait(2, 5);
            of.touch(2, 0, How::Read);
        }),
        ("who waits for a stream in fog is in fog", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.elsewhere(6);
            of.0.wait(2, 6);
            of.order(2, 0);
            of.touch(0, 0, How::Read);
        }),
        ("the fog is gone when the host has waited for the stream", 1, |of| {
            of.0.wait(2, 77);
            of.0.copied(0, 2);
            of.touch(1, 0, How::Write);
            of.touch(2, 0, How::Read);
        }),
        ("launches of one graph wait for each other", 0, |of| {
            let touches = [Touch::exact(0, 8, How::Write)];
            of.0.launch(9, 1, operation(5), &touches);
            of.0.launch(9, 2, operation(5), &touches);
        }),
        ("when a host function runs, what was queued before it is over", 0, |of| {
            of.touch(1, 0, How::Write);
            of.0.function(1, 1);
            of.0.ran(1);
            of.touch(2, 0, How::Write);
            // The function may have run before its queuing call was recorded.
            of.0.ran(2);
            of.0.function(2, 2);
            of.touch(1, 0, How::Write);
        }),
        ("until it runs nothing is known", 1, |of| {
            of.touch(1, 0, How::Write);
            of.0.function(1, 1);
            of.touch(2, 0, How::Write);
        }),
        ("launches of two graphs do not", 1, |of| {
            let touches = [Touch::exact(0, 8, How::Write)];
            of.0.launch(8, 1, operation(5), &touches);
            of.0.launch(9, 2, operation(5), &touches);
        }),
    ]
}

fn count(without: Option<Rule>, call: fn(&mut Program)) -> usize {
    let mut program = Program::new(without);
    call(&mut program);
    program.0.found.each.len()
}

#[test]
fn each_program_has_the_pairs_that_the_rules_say() {
    for (name, pairs, call) in programs() {
        assert_eq!(count(None, call), pairs, "{name}");
    }
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    for rule in RULES {
        let by_program = programs().iter().any(|one| count(Some(rule), one.2) != one.1);
        assert!(by_program || notices(rule), "{rule:?}");
    }
}

#[test]
fn what_a_kernel_was_given_is_a_suspect_and_what_it_changed_is_proven() {
    for (how, proven) in [(How::Given, false), (How::Write, true)] {
        let mut program = Program::new(None);
        program.touch(1, 0, How::Read);
        let whole = Touch::exact(0, 100, how);
        program.0.work(2, operation(0), &[whole]);
        assert_eq!(program.0.found.each, [(0, 1, proven)]);
    }
    // An operation that ended the host's patience proves nothing.
    let mut program = Program::new(None);
    program.touch(1, 0, How::Read);
    let mut lost = operation(0);
    lost.flags = crate::launch::LOST;
    program.0.work(2, lost, &[Touch::exact(0, 8, How::Write)]);
    assert_eq!(program.0.found.each, [(0, 1, false)]);
}
