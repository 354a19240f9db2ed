//! Queued work: what it reads and writes, and when it runs.
//!
//! Nothing runs when it is launched. Work runs when something forces it, and then only what the
//! forced point is ordered after, always the one that was launched last among those that are ready.
//! That is the least helpful order that is legal, so a missing wait shows in the values.
//!
//! One piece of work runs at a time, with the lock released, so that it may call back. Refused: a
//! host sync from inside work, which on a real device waits for itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use super::clock::{Clock, Lane};
use super::codes::{self, failed};
use super::history::Who;
use super::report::AccessKind;
use super::streams::StreamId;
use super::{Simulated, State};
use crate::driver::Event;
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// What a piece of work does when it runs.
pub type Action = dyn Fn(&Simulated) + Send + Sync;

/// A run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The address of the first.
    pub ptr: u64,
    /// How many.
    pub len: u64,
}

/// What is to be done when the time comes.
#[derive(Clone)]
pub(super) enum Work {
    Run(Arc<Action>),
    /// Fills the freed block that starts here with the pattern of freed memory.
    Poison(u64),
    /// Nothing: a node of a graph that waits for an event.
    External(Event),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run(_) => "Run",
            Self::Poison(_) => "Poison",
            Self::External(_) => "External",
        })
    }
}

/// An operation as it was launched or captured.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) name: Arc<str>,
    pub(super) reads: Arc<[Span]>,
    pub(super) writes: Arc<[Span]>,
    pub(super) work: Work,
}

impl Operation {
    /// The wait of a graph for an event outside it.
    pub(super) fn external(event: Event) -> Self {
        let none: Arc<[Span]> = Arc::from(Vec::new());
        Self {
            name: "wait for an event outside".into(),
            reads: Arc::clone(&none),
            writes: none,
            work: Work::External(event),
        }
    }
}

#[derive(Debug)]
struct Queued {
    sequence: u64,
    time: u64,
    clock: Clock,
    work: Work,
}

/// The lanes with what is queued on each.
#[derive(Debug)]
pub(super) struct Schedule {
    lanes: Vec<VecDeque<Queued>>,
    times: Vec<u64>,
    /// The thread that runs a piece of work just now, and the lane that the piece heads.
    running: Option<(Thread, usize)>,
}

impl Default for Schedule {
    fn default() -> Self {
        // The host's lane is there from the start; nothing is ever queued on it.
        Self { lanes: vec![VecDeque::new()], times: vec![0], running: None }
    }
}

impl Schedule {
    pub(super) fn add_lane(&mut self) -> Lane {
        self.lanes.push(VecDeque::new());
        self.times.push(0);
        Lane::numbered(self.lanes.len() - 1)
    }

    /// The number of the next piece of work on `lane`, `steps` further on.
    pub(super) fn advance(&mut self, lane: Lane, steps: u64) -> u64 {
        let time = &mut self.times[lane.index()];
        *time = time.saturating_add(steps);
        *time
    }

    pub(super) fn time(&self, lane: Lane) -> u64 {
        self.times[lane.index()]
    }

    fn is_done(&self, lane: Lane, time: u64) -> bool {
        self.lanes[lane.index()].front().is_none_or(|first| first.time > time)
    }

    /// Whether nothing that `clock` is ordered after is still to run.
    pub(super) fn reached(&self, clock: &Clock) -> bool {
        clock.entries().all(|(lane, time)| self.is_done(lane, time))
    }

    fn is_ready(&self, own: usize, work: &Queued) -> bool {
        work.clock.entries().all(|(lane, time)| lane.index() == own || self.is_done(lane, time))
    }

    /// The piece of work to run next on the way to `target`: of those ready, the one launched last.
    fn next(&self, target: &Clock) -> Option<(usize, Work)> {
        let mut heads: Vec<(usize, &Queued)> = target
            .entries()
            .filter_map(|(lane, time)| {
                Some((
                    lane.index(),
                    self.lanes[lane.index()].front().filter(|work| work.time <= time)?,
                ))
            })
            .collect();
        heads.sort_unstable_by_key(|(_, work)| std::cmp::Reverse(work.sequence));
        let ready = heads.into_iter().find(|(lane, work)| self.is_ready(*lane, work))?;
        Some((ready.0, ready.1.work.clone()))
    }

    /// A clock that is after everything that is queued.
    pub(super) fn everything(&self) -> Clock {
        let mut clock = Clock::default();
        for (lane, time) in self.times.iter().enumerate().skip(1) {
            clock.reach(Lane::numbered(lane), *time);
        }
        clock
    }

    pub(super) fn pending(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }
}

impl State {
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    /// Queues work as the next on a stream that was advanced to now.
    pub(super) fn enqueue(
        &mut self,
        stream: StreamId,
        name: &str,
        work: Work,
    ) -> (Arc<Who>, Clock) {
        let lane = self.streams.get(stream).lane;
        let time = self.schedule.advance(lane, 1);
        self.streams.get_mut(stream).clock.reach(lane, time);
        let clock = self.streams.get(stream).clock.clone();
        let place = Arc::clone(&self.streams.get(stream).name);
        let who = self.enqueue_at(lane, time, &clock, name.into(), place, work);
        (who, clock)
    }

    /// Queues work as number `time` of a lane, after all that `clock` says.
    pub(super) fn enqueue_at(
        &mut self,
        lane: Lane,
        time: u64,
        clock: &Clock,
        operation: Arc<str>,
        place: Arc<str>,
        work: Work,
    ) -> Arc<Who> {
        let sequence = self.next_sequence();
        self.schedule.lanes[lane.index()].push_back(Queued {
            sequence,
            time,
            clock: clock.clone(),
            work,
        });
        Arc::new(Who { operation, place, sequence, lane, time })
    }

    /// Queues an operation, and checks what it declares; during a capture it becomes a part of the
    /// graph. The caller keeps the operation: what it holds is not to go while the state is locked.
    pub(super) fn launch(
        &mut self,
        call: &'static str,
        stream: StreamId,
        operation: &Operation,
    ) -> Result<()> {
        self.refuse_implicit(call, stream)?;
        if self.streams.get(stream).member.is_some() {
            return self.capture(call, stream, operation.clone());
        }
        self.advance(stream);
        let (who, clock) = self.enqueue(stream, &operation.name, operation.work.clone());
        self.touch_all(&who, &clock, &operation.reads, &operation.writes);
        Ok(())
    }

    /// Checks the declared accesses of `who`, whose clock is `clock`.
    pub(super) fn touch_all(
        &mut self,
        who: &Arc<Who>,
        clock: &Clock,
        reads: &[Span],
        writes: &[Span],
    ) {
        // Writes first: of two operations only one pair is named, and a write says more.
        let mut named = Vec::new();
        for span in writes {
            self.touch(who, clock, *span, AccessKind::Write, &mut named);
        }
        for span in reads {
            self.touch(who, clock, *span, AccessKind::Read, &mut named);
        }
    }
}

/// Ends a piece of work, however it ended: takes it off its lane and lets the next one run.
struct Running<'a> {
    simulated: &'a Simulated,
    lane: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.simulated.lock();
        state.schedule.running = None;
        let done = state.schedule.lanes[self.lane].pop_front();
        drop(state);
        self.simulated.idle.notify_all();
        // What the work holds goes here, with the lock released: dropping it may call back.
        drop(done);
    }
}

const LAUNCH: &str = "cuLaunchKernel";

impl Simulated {
    /// Queues work on a stream: `action` runs when something forces it, `reads` and `writes` are
    /// checked now against every access before. During a capture it becomes a part of the graph.
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
        let mut state = self.lock();
        let id = state.stream(LAUNCH, stream)?;
        state.launch(LAUNCH, id, &operation)
    }

    /// Runs what is queued, everywhere. The host does not learn of it: this orders nothing.
    pub fn run_all(&self) -> Result<()> {
        let everything = {
            let state = self.lock();
            state.refuse_inside_work("run_all")?;
            state.schedule.everything()
        };
        self.run_until(&everything);
        Ok(())
    }

    /// Drops what is queued, everywhere, without running it.
    pub fn abandon(&self) {
        let mut state = self.lock();
        let running = state.schedule.running.map(|(_, lane)| lane);
        let mut dropped = Vec::new();
        for (index, lane) in state.schedule.lanes.iter_mut().enumerate() {
            // A piece that runs just now takes itself off.
            let keep = usize::from(running == Some(index)).min(lane.len());
            dropped.extend(lane.drain(keep..));
        }
        drop(state);
        drop(dropped);
    }

    /// How many pieces of work are still to run.
    pub fn pending(&self) -> usize {
        self.lock().schedule.pending()
    }

    /// Whether the calling thread runs a piece of work just now.
    pub fn is_inside_work(&self) -> bool {
        self.lock().refuse_inside_work("").is_err()
    }

    /// Runs what `target` is ordered after.
    pub(super) fn run_until(&self, target: &Clock) {
        let here = Thread::current();
        loop {
            let mut state = self.lock();
            while state.schedule.running.is_some() {
                state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some((lane, work)) = state.schedule.next(target) else { return };
            state.schedule.running = Some((here, lane));
            drop(state);
            let running = Running { simulated: self, lane };
            match work {
                Work::Run(action) => action(self),
                Work::Poison(start) => self.lock().memory.poison(start),
                Work::External(_) => {}
            }
            drop(running);
        }
    }
}

impl State {
    /// Refuses a host sync from inside work: it would wait for itself.
    pub(super) fn refuse_inside_work(&self, call: &'static str) -> Result<()> {
        if self.schedule.running.is_some_and(|(thread, _)| thread == Thread::current()) {
            return Err(failed(call, codes::NOT_PERMITTED));
        }
        Ok(())
    }
}
