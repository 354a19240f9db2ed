//! Vector clocks: which work is ordered after which.
//!
//! A lane is a sequence of work: the host, a stream, or a branch of a graph. Work number `t` of a lane is ordered
//! before later work exactly if the later work's clock, or the host's clock at the later work's launch, has at least
//! `t` for the lane. Clocks are transitively closed: a waiting stream takes over the whole clock that it waits for.
//!
//! Other clocks can leave out what the host's clock covers: the work has run, and everything launched later follows it.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lane(usize);

impl Lane {
    /// All threads of the host count as one lane, in the order of their calls.
    pub(super) const HOST: Self = Self(0);

    pub(super) const fn numbered(index: usize) -> Self {
        Self(index)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// For each lane, the number of the last work before this point. An entry is missing if no work of the lane is before
/// this point, or if `forget` has removed the entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(BTreeMap<Lane, u64>);

impl Clock {
    pub(super) fn get(&self, lane: Lane) -> u64 {
        self.0.get(&lane).copied().unwrap_or(0)
    }

    pub(super) fn reach(&mut self, lane: Lane, time: u64) {
        if time > 0 {
            let entry = self.0.entry(lane).or_default();
            *entry = time.max(*entry);
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        for (lane, time) in other.entries() {
            self.reach(lane, time);
        }
    }

    /// Removes the entries that `host`, the host's clock, covers.
    pub(super) fn forget(&mut self, host: &Self) {
        self.0.retain(|lane, time| !host.covers(*lane, *time));
    }

    /// Whether this point comes after the work with number `time` on `lane`. After [`Self::forget`], a false answer can
    /// be wrong.
    pub(super) fn covers(&self, lane: Lane, time: u64) -> bool {
        self.get(lane) >= time
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Lane, u64)> + '_ {
        self.0.iter().map(|(lane, time)| (*lane, *time))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
