//! Queues work and runs it. [`super::operation`] defines what a piece of work is.
//!
//! Work runs when something forces it, such as a host wait, in the order that [`super::schedule`] chooses. One piece of
//! work runs at a time, without the lock, so that it may call back. A host wait from inside work is an error: the work
//! could wait for itself.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::call_log::DriverResult;
use super::clock::{Clock, Lane};
use super::codes;
use super::history::Actor;
use super::operation::{Operation, Span, Work};
use super::report::AccessKind;
use super::schedule::QueuedWork;
use super::stream_table::StreamId;
use super::{MachineState, Simulated};
use crate::error::Result;
use crate::stream::{Stream, Thread};

const ROUND: Duration = Duration::from_micros(200);

impl MachineState {
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    /// Call [`Self::advance`] first, for the order with the legacy default stream.
    pub(super) fn enqueue(
        &mut self,
        stream: StreamId,
        name: &str,
        work: Work,
    ) -> (Arc<Actor>, Clock) {
        let lane = self.streams.get(stream).lane;
        let time = self.schedule.advance(lane, 1);
        self.streams.get_mut(stream).clock.reach(lane, time);
        let clock = self.streams.get(stream).clock.clone();
        let place = Arc::clone(&self.streams.get(stream).name);
        let who = self.enqueue_at(lane, time, &clock, name.into(), place, work);
        (who, clock)
    }

    /// Neither advances the lane nor checks the work's declared accesses: the caller must do both.
    pub(super) fn enqueue_at(
        &mut self,
        lane: Lane,
        time: u64,
        clock: &Clock,
        operation: Arc<str>,
        place: Arc<str>,
        work: Work,
    ) -> Arc<Actor> {
        let sequence = self.next_sequence();
        self.schedule.lanes[lane.index()].push_back(QueuedWork {
            sequence,
            time,
            clock: clock.clone(),
            work,
        });
        Arc::new(Actor { operation, place, sequence, lane, time })
    }

    /// Do not drop `operation` while the state is locked: the drop may call the simulated device.
    pub(super) fn launch(&mut self, stream: StreamId, operation: &Operation) -> DriverResult<()> {
        self.refuse_implicit(stream)?;
        if self.streams.get(stream).member.is_some() {
            return self.capture(stream, operation.clone());
        }
        self.advance(stream);
        let (who, clock) = self.enqueue(stream, &operation.name, operation.work.clone());
        self.touch_all(&who, &clock, &operation.reads, &operation.writes);
        Ok(())
    }

    pub(super) fn touch_all(
        &mut self,
        who: &Arc<Actor>,
        clock: &Clock,
        reads: &[Span],
        writes: &[Span],
    ) {
        // Check writes first: a pair of operations is reported only once, and a report about a write says more.
        let mut named = HashSet::new();
        for span in writes {
            self.touch(who, clock, *span, AccessKind::Write, &mut named);
        }
        for span in reads {
            self.touch(who, clock, *span, AccessKind::Read, &mut named);
        }
    }
}

/// Its drop, even after a panic, removes the work from its lane and lets the next work run.
struct RunningWork<'a> {
    simulated: &'a Simulated,
    lane: usize,
}

impl Drop for RunningWork<'_> {
    fn drop(&mut self) {
        let mut state = self.simulated.lock();
        state.schedule.running = None;
        let done = state.schedule.lanes[self.lane].pop_front();
        drop(state);
        self.simulated.idle.notify_all();
        // Release the lock first: dropping what the work holds may call the simulated device.
        drop(done);
    }
}

impl Simulated {
    /// Queues `action`, which runs later, for example at a host wait. If the stream is captured, records `action`
    /// instead.
    pub fn launch(
        &self,
        stream: Stream,
        name: &str,
        reads: &[Span],
        writes: &[Span],
        action: impl Fn(&Self) + Send + Sync + 'static,
    ) -> Result<()> {
        let work = Work::Run(Arc::new(action));
        let operation =
            Operation { name: name.into(), reads: reads.into(), writes: writes.into(), work };
        self.make("cuLaunchKernel", |state| {
            let id = state.stream(stream)?;
            state.launch(id, &operation)
        })
    }

    /// Runs all work queued so far, but does not order the host after it: later accesses of the host can still race.
    pub fn run_all(&self) -> Result<()> {
        let everything = self.everything("run_all")?;
        self.run_until(&everything);
        Ok(())
    }

    pub(super) fn everything(&self, call: &'static str) -> Result<Clock> {
        self.make(call, |state| {
            state.refuse_inside_work()?;
            Ok(state.schedule.everything(&state.host))
        })
    }

    /// Drops queued work, except the piece that is running. Later waits of the host treat the dropped work as run.
    pub fn abandon(&self) {
        let mut state = self.lock();
        let running = state.schedule.running.map(|(_, lane)| lane);
        let mut dropped = Vec::new();
        for (index, lane) in state.schedule.lanes.iter_mut().enumerate() {
            // The `RunningWork` of the running piece removes that piece.
            let keep = usize::from(running == Some(index)).min(lane.len());
            dropped.extend(lane.drain(keep..));
        }
        drop(state);
        drop(dropped);
    }

    pub fn pending(&self) -> usize {
        self.lock().schedule.pending()
    }

    pub fn is_inside_work(&self) -> bool {
        self.lock().refuse_inside_work().is_err()
    }

    /// Runs the work before `target`. Blocks while that work waits for other processes.
    pub(super) fn run_until(&self, target: &Clock) {
        loop {
            self.run_until_blocked(target);
            if !self.lock().schedule.awaits(target) {
                return;
            }
            std::thread::sleep(ROUND);
        }
    }

    /// Like [`Self::run_until`], but returns while work before `target` still waits for other processes.
    pub(super) fn run_until_blocked(&self, target: &Clock) {
        let here = Thread::current();
        loop {
            let mut state = self.lock();
            while state.schedule.running.is_some() {
                state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some((lane, work)) = state.schedule.next(target) else {
                state.schedule.awaits(target);
                return;
            };
            state.schedule.running = Some((here, lane));
            drop(state);
            let running = RunningWork { simulated: self, lane };
            match work {
                Work::Run(action) => action(self),
                Work::Poison(start) => self.lock().poison(start),
                Work::Reach(slot, record) => slot.reach(record),
                Work::External(_) | Work::Await(..) => {}
            }
            drop(running);
        }
    }
}

impl MachineState {
    /// Fails if the calling thread is running work: a host wait could wait for that work itself.
    pub(super) fn refuse_inside_work(&self) -> DriverResult<()> {
        if self.schedule.running.is_some_and(|(thread, _)| thread == Thread::current()) {
            return Err(codes::NOT_PERMITTED);
        }
        Ok(())
    }
}
