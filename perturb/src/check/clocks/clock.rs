//! A clock, and the rules by which clocks go on. Pure.

use alloc::vec::Vec;

/// The rules, so that tests can leave one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What the host has waited for is over, for whatever comes.
    Host,
    /// The legacy default stream waits for blocking streams, and they for it.
    Legacy,
    Blocking,
    /// An event stands for what its stream had queued when it was recorded last; a stream waits for it.
    Record,
    Wait,
    /// The host waits for a stream, for an event, for everything.
    Stream,
    Event,
    All,
    /// A wait covers what was queued when it began.
    Begin,
    /// A copy with pageable memory makes the host wait.
    Copy,
    /// Memory that is not from a pool is freed when everything is over.
    Free,
    /// Memory of a pool is written by its allocation, its free, and a free by the host.
    Allocated,
    Freed,
    FreedByHost,
    /// Memory that is given out again is another one.
    Again,
    /// A stream waits for a value that another one writes.
    Value,
    /// An order that is not known.
    Fog,
    /// A launch of a graph waits for the one before.
    Graph,
    /// When a host function runs, what was queued before it is over.
    Function,
}

/// Of each stream, up to which of its operations all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(super) numbers: Vec<u32>,
    /// Whether it is behind something whose order is not known.
    pub(super) fog: bool,
}

impl Clock {
    pub(super) fn join(&mut self, other: &Self) {
        self.fog |= other.fog;
        self.join_known(other);
    }

    pub(super) fn join_known(&mut self, other: &Self) {
        if self.numbers.len() < other.numbers.len() {
            self.numbers.resize(other.numbers.len(), 0);
        }
        for (to, from) in self.numbers.iter_mut().zip(&other.numbers) {
            *to = (*to).max(*from);
        }
    }

    pub(super) fn has(&self, stream: u32, number: u32) -> bool {
        self.numbers.get(stream as usize).copied().unwrap_or(0) >= number
    }

    pub(super) fn set(&mut self, stream: usize, number: u32) {
        if self.numbers.len() <= stream {
            self.numbers.resize(stream + 1, 0);
        }
        if let Some(to) = self.numbers.get_mut(stream) {
            *to = number;
        }
    }
}
