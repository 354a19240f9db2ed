//! Vector clocks: which work is ordered after which.
//!
//! A lane is anything whose work happens one piece after the other: the host, each stream, each
//! branch of a graph. Work number `t` of a lane happens before some later work exactly when that
//! work's clock has at least `t` for the lane. Clocks are transitively closed, since whoever waits
//! takes over the whole clock of what it waits for.

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

/// For every lane, up to which of its work this point is ordered after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// The last work of `lane` that this point is ordered after; 0 for none.
    pub(super) fn get(&self, lane: Lane) -> u64 {
        self.0.get(lane.0).copied().unwrap_or(0)
    }

    /// Moves `lane` forward to `time`. It never goes back.
    pub(super) fn reach(&mut self, lane: Lane, time: u64) {
        if self.0.len() <= lane.0 {
            self.0.resize(lane.0.saturating_add(1), 0);
        }
        if let Some(entry) = self.0.get_mut(lane.0) {
            *entry = time.max(*entry);
        }
    }

    /// From here on, also ordered after everything that `other` is ordered after.
    pub(super) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Whether work number `time` of `lane` happens before this point.
    pub(super) fn covers(&self, lane: Lane, time: u64) -> bool {
        self.get(lane) >= time
    }

    /// The lanes that it is ordered after some work of.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Lane, u64)> + '_ {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, time)| **time > 0)
            .map(|(index, time)| (Lane(index), *time))
    }
}
