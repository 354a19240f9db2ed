//! Vector clocks: which work is ordered after which.
//!
//! A lane is anything whose work happens one piece after the other: the host, each stream, each
//! branch of a graph. Work number `t` of a lane happens before some later work exactly when that
//! work's clock has at least `t` for the lane. Clocks are transitively closed, since what waits
//! takes over the whole clock of what it waits for.
//!
//! What the host is ordered after is in the host's clock alone: it has run, and every launch comes after it.

use std::collections::BTreeMap;

/// A sequence of work, one piece after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lane(usize);

impl Lane {
    /// All threads of the host: the simulated device takes them as one, in the order of their calls.
    pub(super) const HOST: Self = Self(0);

    pub(super) const fn numbered(index: usize) -> Self {
        Self(index)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// For each lane, up to which of its work this point is ordered after. Lanes that it knows nothing of take no
/// room, since a program may have had thousands of streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(BTreeMap<Lane, u64>);

impl Clock {
    /// The last work of `lane` that this point is ordered after; 0 for none.
    pub(super) fn get(&self, lane: Lane) -> u64 {
        self.0.get(&lane).copied().unwrap_or(0)
    }

    /// Moves `lane` forward to `time`. It never goes back.
    pub(super) fn reach(&mut self, lane: Lane, time: u64) {
        if time > 0 {
            let entry = self.0.entry(lane).or_default();
            *entry = time.max(*entry);
        }
    }

    /// From here on, also ordered after everything that `other` is ordered after.
    pub(super) fn join(&mut self, other: &Self) {
        for (lane, time) in other.entries() {
            self.reach(lane, time);
        }
    }

    /// Forgets what `host`, the host's clock, covers: that has run, and every caller is after it anyway.
    pub(super) fn forget(&mut self, host: &Self) {
        self.0.retain(|lane, time| !host.covers(*lane, *time));
    }

    /// Whether work number `time` of `lane` happens before this point.
    pub(super) fn covers(&self, lane: Lane, time: u64) -> bool {
        self.get(lane) >= time
    }

    /// The lanes that it is ordered after some work of.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Lane, u64)> + '_ {
        self.0.iter().map(|(lane, time)| (*lane, *time))
    }

    /// How many lanes it is ordered after some work of.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
