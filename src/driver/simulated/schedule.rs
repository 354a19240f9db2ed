//! What is queued, and which of it runs next.
//!
//! Only what the forced point is ordered after runs, always the piece that was launched last among those
//! that are ready. That is the least helpful order that is legal, so a missing wait shows in the values.

use std::collections::{BTreeSet, VecDeque};

use super::clock::{Clock, Lane};
use super::operation::Work;
use crate::stream::Thread;

/// A piece of work: number `time` of its lane.
#[derive(Debug)]
pub(super) struct QueuedWork {
    pub(super) sequence: u64,
    pub(super) time: u64,
    pub(super) clock: Clock,
    pub(super) work: Work,
}

/// The lanes with what is queued on each.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) lanes: Vec<VecDeque<QueuedWork>>,
    times: Vec<u64>,
    /// The lanes with work that the host may not be ordered after yet.
    open: BTreeSet<Lane>,
    /// The thread that runs a piece of work just now, and the lane that the piece heads.
    pub(super) running: Option<(Thread, usize)>,
}

impl Default for Schedule {
    fn default() -> Self {
        // The host's lane is there from the start; nothing is ever queued on it.
        Self { lanes: vec![VecDeque::new()], times: vec![0], open: BTreeSet::new(), running: None }
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
        self.open.insert(lane);
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

    fn is_ready(&self, own: usize, work: &QueuedWork) -> bool {
        work.work.is_free()
            && work
                .clock
                .entries()
                .all(|(lane, time)| lane.index() == own || self.is_done(lane, time))
    }

    /// The piece of work to run next on the way to `target`: of those ready, the one launched last.
    pub(super) fn next(&self, target: &Clock) -> Option<(usize, Work)> {
        let mut heads: Vec<(usize, &QueuedWork)> = target
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

    /// Whether other processes hold up what `target` is ordered after; those are asked to go on.
    pub(super) fn awaits(&self, target: &Clock) -> bool {
        let heads = target.entries().filter_map(|(lane, time)| {
            self.lanes[lane.index()].front().filter(|work| work.time <= time)
        });
        heads.fold(false, |awaits, work| match &work.work {
            Work::Await(slot, record) => {
                slot.need(*record);
                true
            }
            _ => awaits,
        })
    }

    /// A clock that is after everything that is queued. What `host`, the host's clock, covers has run, and is left
    /// out.
    pub(super) fn everything(&mut self, host: &Clock) -> Clock {
        self.open.retain(|lane| !host.covers(*lane, self.times[lane.index()]));
        let mut clock = Clock::default();
        for lane in &self.open {
            clock.reach(*lane, self.time(*lane));
        }
        clock
    }

    pub(super) fn pending(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }
}
