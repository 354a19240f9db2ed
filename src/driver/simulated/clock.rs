//! Vector clocks: which work is ordered after which.
//!
//! A lane is a sequence of work: the host, a stream, or a branch of a graph. Work number `t` of a lane happens before
//! work that is launched later exactly if the later work's clock, or the host's clock when the later work is launched,
//! has at least `t` for the lane. Clocks are transitively closed: a waiting stream takes over the whole clock that it
//! waits for.
//!
//! Other clocks may leave out what the host's clock covers: the work has run, and everything launched later follows it.

use std::collections::BTreeMap;

/// A sequence of work, in which each piece follows the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lane(usize);

impl Lane {
    /// All threads of the host. The simulated device treats them as one, in the order of their calls.
    pub(super) const HOST: Self = Self(0);

    pub(super) const fn numbered(index: usize) -> Self {
        Self(index)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// A point in the order of work: for each lane, the number of the last work before the point. Entries that the host's
/// clock covers may be left out. A lane with 0 has no entry, since a program may have had thousands of streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(BTreeMap<Lane, u64>);

impl Clock {
    /// The number in the entry of `lane`; 0 if there is no entry.
    pub(super) fn get(&self, lane: Lane) -> u64 {
        self.0.get(&lane).copied().unwrap_or(0)
    }

    /// Advances `lane` to `time`. It never goes back.
    pub(super) fn reach(&mut self, lane: Lane, time: u64) {
        if time > 0 {
            let entry = self.0.entry(lane).or_default();
            *entry = time.max(*entry);
        }
    }

    /// Adds everything that `other` is ordered after.
    pub(super) fn join(&mut self, other: &Self) {
        for (lane, time) in other.entries() {
            self.reach(lane, time);
        }
    }

    /// Removes the entries that `host`, the host's clock, covers: the work has run, and everything launched later
    /// follows it anyway.
    pub(super) fn forget(&mut self, host: &Self) {
        self.0.retain(|lane, time| !host.covers(*lane, *time));
    }

    /// Whether the entry of `lane` puts work number `time` of `lane` before this point.
    pub(super) fn covers(&self, lane: Lane, time: u64) -> bool {
        self.get(lane) >= time
    }

    /// The entries: each lane with its number.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Lane, u64)> + '_ {
        self.0.iter().map(|(lane, time)| (*lane, *time))
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
