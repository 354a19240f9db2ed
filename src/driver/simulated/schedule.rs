//! The queued work, and which of it runs next.
//!
//! Work runs only when a point after it must be reached, such as for a host wait. Of the ready pieces before that
//! point, the one launched last runs first. This is the least helpful legal order, so that the values show a missing
//! wait.

use std::collections::{BTreeSet, VecDeque};

use super::clock::{Clock, Lane};
use super::operation::Work;
use crate::stream::Thread;

#[derive(Debug)]
pub(super) struct QueuedWork {
    pub(super) sequence: u64,
    pub(super) time: u64,
    pub(super) clock: Clock,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) lanes: Vec<VecDeque<QueuedWork>>,
    times: Vec<u64>,
    /// Holds at least every lane with work that the host's clock does not cover.
    open: BTreeSet<Lane>,
    pub(super) running: Option<(Thread, usize)>,
}

impl Default for Schedule {
    fn default() -> Self {
        // The first lane is the host's. Nothing is ever queued there.
        Self { lanes: vec![VecDeque::new()], times: vec![0], open: BTreeSet::new(), running: None }
    }
}

impl Schedule {
    pub(super) fn add_lane(&mut self) -> Lane {
        self.lanes.push(VecDeque::new());
        self.times.push(0);
        Lane::numbered(self.lanes.len() - 1)
    }

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

    /// The next ready work before `target`, with the index of its lane. Work launched later comes first.
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

    /// Whether, in any lane, the next work before `target` is a wait for another process. Asks for the record of each
    /// such wait.
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

    /// A point after all work queued so far. Leaves out work that `host`, the host's clock, covers.
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
