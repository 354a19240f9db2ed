//! Checks declared memory accesses, and reads and writes memory for the host and for running work.

use std::collections::HashSet;
use std::sync::Arc;

use super::clock::{Clock, Lane};
use super::codes;
use super::history::{Access, Actor};
use super::operation::Span;
use super::report::{AccessKind, AccessRange, Report, ReportKind, Side};
use super::{MachineState, Simulated};
use crate::error::Result;

const COPY: &str = "cuMemcpy";

impl MachineState {
    /// Reports what is wrong with an access of `who`, but no race with an operation whose number is in `named`.
    pub(super) fn touch(
        &mut self,
        who: &Arc<Actor>,
        clock: &Clock,
        span: Span,
        access: AccessKind,
        named: &mut HashSet<u64>,
    ) {
        if span.len == 0 {
            return;
        }
        let Some((block, start)) = self.memory.find(span.ptr) else {
            let second = who.side(AccessRange { allocation: None, bytes: 0..span.len, access });
            let why = "nothing is allocated there";
            self.reports.push(|| Report::new(ReportKind::OutOfBounds, None, second, why));
            return;
        };
        let end = start.saturating_add(span.len);
        if let Some(freed) = &block.freed {
            let (first, second) =
                (freed.side(block.whole()), who.side(block.touched(start, end, access)));
            let why = "it was freed before";
            self.reports.push(|| Report::new(ReportKind::UseAfterFree, Some(first), second, why));
            return;
        }
        if end > block.length {
            let why = format!("the allocation has {} bytes", block.length);
            let second = who.side(block.touched(start, end, access));
            self.reports.push(|| Report::new(ReportKind::OutOfBounds, None, second, &why));
        }
        let touched = block.touched(start, end.min(block.length), access);
        let races = block.history.admit(Access::new(who, touched), clock, &self.host, named);
        self.report_races(races);
    }

    pub(super) fn report_races(&mut self, races: Vec<(Side, Side)>) {
        let why = "nothing orders the one after the other";
        for (first, second) in races {
            self.reports.push(|| Report::new(ReportKind::Race, Some(first), second, why));
        }
    }

    pub(super) fn host_access(&mut self, name: &str) -> Arc<Actor> {
        let time = self.host.get(Lane::HOST).saturating_add(1);
        self.host.reach(Lane::HOST, time);
        let sequence = self.next_sequence();
        Arc::new(Actor {
            operation: name.into(),
            place: "host".into(),
            sequence,
            lane: Lane::HOST,
            time,
        })
    }

    /// Orders the host after `point`. All work before `point` must have left the queue.
    pub(super) fn learn(&mut self, point: &Clock) {
        self.host.join(point);
        self.learned = self.learned.saturating_add(1);
        // With many streams and events, shorten the clocks only now and then, so that calls are cheap on average.
        if self.learned >= (self.streams.ids().len() + self.events.len()) / 16 {
            self.learned = 0;
            let clocks = self.streams.clocks().chain(self.events.points());
            clocks.for_each(|clock| clock.forget(&self.host));
        }
    }

    fn host_touch(&mut self, name: &str, reads: &[Span], writes: &[Span]) {
        let who = self.host_access(name);
        self.touch_all(&who, &Clock::default(), reads, writes);
    }
}

impl Simulated {
    /// Checks the read for races. Runs no queued work.
    pub fn host_read(&self, ptr: u64, len: u64, name: &str) -> Result<Vec<u8>> {
        let span = Span { ptr, len };
        self.make(COPY, |state| {
            state.host_touch(name, &[span], &[]);
            if len == 0 {
                return Ok(Vec::new());
            }
            state.memory.load(span).ok_or(codes::INVALID_VALUE)
        })
    }

    pub fn host_write(&self, ptr: u64, bytes: &[u8], name: &str) -> Result<()> {
        self.make(COPY, |state| {
            let len = u64::try_from(bytes.len()).map_err(|_| codes::INVALID_VALUE)?;
            state.host_touch(name, &[], &[Span { ptr, len }]);
            if len == 0 {
                return Ok(());
            }
            state.memory.store(ptr, bytes).ok_or(codes::INVALID_VALUE)
        })
    }

    pub fn host_touch(&self, name: &str, reads: &[Span], writes: &[Span]) {
        self.lock().host_touch(name, reads, writes);
    }

    /// Reads memory without a check for races, freed memory too.
    pub fn load(&self, ptr: u64, len: u64) -> Result<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let span = Span { ptr, len };
        self.make(COPY, |state| state.memory.load(span).ok_or(codes::ILLEGAL_ADDRESS))
    }

    /// Writes memory without a check for races, freed memory too.
    pub fn store(&self, ptr: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.make(COPY, |state| state.memory.store(ptr, bytes).ok_or(codes::ILLEGAL_ADDRESS))
    }
}
