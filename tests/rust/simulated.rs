//! The rules of the simulated device, each with the program that shows it.
//!
//! A program that races is always run beside the same program with the missing order put in, which
//! must be clean: a test that reports a race whatever happens is no test.

mod bounds;
mod capture;
mod copies;
mod driver;
mod memory;
mod order;
mod processes;
mod random;
mod reset;
mod work;

use std::sync::Arc;

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{FRESH, ReportKind, Simulated, Span};
use cai_bridge::stream::Stream;

/// A machine of two devices with one block of 64 bytes, `x`, on the first.
struct Machine {
    cuda: Arc<Simulated>,
    x: u64,
}

const LENGTH: u64 = 64;

impl Machine {
    fn new() -> Self {
        let cuda = Simulated::new(2);
        let x = cuda.alloc(0, LENGTH, MemoryKind::Device, "x").unwrap();
        Self { cuda, x }
    }

    fn alloc(&self, label: &str) -> u64 {
        self.cuda.alloc(0, LENGTH, MemoryKind::Device, label).unwrap()
    }

    fn stream(&self, blocking: bool) -> Stream {
        Stream::Handle(self.cuda.create_stream(0, blocking).unwrap())
    }

    /// Queues work that sets a whole block to `value`.
    fn fill(&self, stream: Stream, block: u64, value: u8) {
        let bytes = vec![value; usize::try_from(LENGTH).unwrap()];
        self.cuda
            .launch(stream, "fill", &[], &[whole(block)], move |cuda| {
                cuda.store(block, &bytes).unwrap()
            })
            .unwrap();
    }

    /// Queues work that copies a whole block.
    fn copy(&self, stream: Stream, to: u64, from: u64) {
        self.cuda
            .launch(stream, "copy", &[whole(from)], &[whole(to)], move |cuda| {
                let bytes = cuda.load(from, LENGTH).unwrap();
                cuda.store(to, &bytes).unwrap();
            })
            .unwrap();
    }

    /// Queues work that reads a whole block and keeps nothing.
    fn read(&self, stream: Stream, block: u64) {
        self.cuda.launch(stream, "read", &[whole(block)], &[], |_| ()).unwrap();
    }

    /// Orders what is on `from` before what comes on `to`.
    fn order(&self, from: Stream, to: Stream) {
        let event = self.cuda.create_event().unwrap();
        self.cuda.record_on(event, from).unwrap();
        self.cuda.wait_on(to, event).unwrap();
    }

    /// The value that fills a block, without a check.
    fn value(&self, block: u64) -> u8 {
        let bytes = self.cuda.load(block, LENGTH).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
        bytes[0]
    }

    fn kinds(&self) -> Vec<ReportKind> {
        self.cuda.reports().iter().map(|report| report.kind).collect()
    }

    fn assert_clean(&self) {
        assert_eq!(self.cuda.reports(), []);
    }

    fn assert_races(&self, count: usize) {
        assert_eq!(self.kinds(), vec![ReportKind::Race; count], "{:#?}", self.cuda.reports());
    }
}

/// Runs a program without an order and with it: it races only without.
fn races_unless(program: impl Fn(&Machine, bool)) {
    for ordered in [false, true] {
        let m = Machine::new();
        program(&m, ordered);
        m.assert_races(usize::from(!ordered));
    }
}

/// The same for a program that copies a 7 into a block of its own, which misses it without the order.
fn misses_unless(program: impl Fn(&Machine, u64, bool)) {
    races_unless(|m, ordered| {
        let y = m.alloc("y");
        program(m, y, ordered);
        m.cuda.run_all().unwrap();
        let seen = if ordered { 7 } else { FRESH };
        assert_eq!(m.value(y), seen, "a missing wait shows in the values");
    });
}

fn whole(block: u64) -> Span {
    Span { ptr: block, len: LENGTH }
}

/// The code of a driver call that failed.
fn code<T: std::fmt::Debug>(result: cai_bridge::error::Result<T>) -> u32 {
    result.unwrap_err().driver_code().unwrap().code
}
