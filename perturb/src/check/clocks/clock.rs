//! A vector clock, and the rules that advance clocks. Pure.

use alloc::vec::Vec;

/// The rules. Tests can leave one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Work that the host has waited for comes before all later work.
    Host,
    /// The legacy default stream waits for blocking streams (`Legacy`), and they wait for it (`Blocking`).
    Legacy,
    Blocking,
    /// An event covers the work that its stream had queued at the last record (`Record`). A stream waits for
    /// an event (`Wait`).
    Record,
    Wait,
    /// The host waits for a stream; for an event; for all work.
    Stream,
    Event,
    All,
    /// A wait covers the work that was queued when it began.
    Begin,
    /// A copy with pageable memory makes the host wait.
    Copy,
    /// A free outside a pool waits for all work.
    Free,
    /// A pool's memory is written by its allocation, by its free, and by a free from the host.
    Allocated,
    Freed,
    FreedByHost,
    /// Memory that is allocated again is new memory.
    Again,
    /// A stream waits for a value that another stream writes.
    Value,
    /// An unknown order hides the work behind it.
    Fog,
    /// A launch of a graph waits for the graph's launch before it.
    Graph,
    /// When a host function runs, the work before it is done.
    Function,
}

/// For each stream, the number of the last operation up to which all are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(super) numbers: Vec<u32>,
    /// Whether the clock stands behind an unknown order.
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
