//! A vector clock, and the names of the rules that advance clocks. Pure.

use alloc::vec::Vec;

/// The rules of the check. Tests can leave one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Work that the host has waited for comes before all later work.
    Host,
    /// The legacy default stream waits for blocking streams.
    Legacy,
    /// Blocking streams wait for the legacy default stream.
    Blocking,
    /// An event covers the work that its stream had queued when the event was last recorded.
    Record,
    /// A stream waits for an event.
    Wait,
    /// The host waits for a stream.
    Stream,
    /// The host waits for an event.
    Event,
    /// The host waits for all work.
    All,
    /// A wait covers the work that was queued when it began.
    Begin,
    /// Some copies make the host wait: blocking ones, and some with pageable memory.
    Copy,
    /// A free outside a pool waits for all work.
    Free,
    /// A pool's memory counts as written by its allocation.
    Allocated,
    /// A pool's memory counts as written when it is freed on a stream.
    Freed,
    /// A pool's memory counts as written by the host when it is freed without a stream.
    FreedByHost,
    /// Memory that is allocated again is new memory.
    Again,
    /// A stream waits for a value that another stream writes.
    Value,
    /// Work that waits for unknown work is not compared.
    Fog,
    /// A launch of an executable graph waits for the same graph's launch before.
    Graph,
    /// When a host function runs, the work before it on its stream is done.
    Function,
}

/// For each stream, the number up to which all its operations are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(super) numbers: Vec<u32>,
    /// Whether the clock's stream or event waits for unknown work.
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
