//! The accesses to one block of memory that a later access could still race with.
//!
//! An access is forgotten, byte by byte, once that loses no racing operation:
//! - The host is ordered after it. Whatever comes later is then as well, since every launch comes
//!   after all that the host did before.
//! - A later access to the byte is ordered after it and excludes as much (it writes, or the earlier
//!   one only reads). What races with the earlier one is unordered with the later one too.

use std::sync::Arc;

use super::clock::{Clock, Lane};
use super::report::{AccessKind, AccessRange, Side};

/// Who accesses memory: an operation of a stream, or the host.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) operation: Arc<str>,
    pub(super) place: Arc<str>,
    pub(super) sequence: u64,
    pub(super) lane: Lane,
    pub(super) time: u64,
}

impl Actor {
    pub(super) fn side(&self, touched: AccessRange) -> Side {
        Side {
            operation: Arc::clone(&self.operation),
            place: Arc::clone(&self.place),
            sequence: self.sequence,
            touched: Some(touched),
        }
    }
}

/// One access, as declared, and the part of it that is not forgotten yet.
#[derive(Debug, Clone)]
pub(super) struct Access {
    who: Arc<Actor>,
    touched: AccessRange,
    start: u64,
    end: u64,
}

impl Access {
    pub(super) fn new(who: &Arc<Actor>, touched: AccessRange) -> Self {
        let (start, end) = (touched.bytes.start, touched.bytes.end);
        Self { who: Arc::clone(who), touched, start, end }
    }

    fn writes(&self) -> bool {
        self.touched.access != AccessKind::Read
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn side(&self) -> Side {
        self.who.side(self.touched.clone())
    }
}

/// The accesses that are not forgotten yet.
#[derive(Debug, Default)]
pub(super) struct History(Vec<Access>);

impl History {
    /// Adds an access whose clock is `clock`, and returns the pairs that race. An earlier operation
    /// that is in `named` is left out; those returned are added to it, so that two operations are
    /// paired once.
    pub(super) fn admit(
        &mut self,
        access: Access,
        clock: &Clock,
        host: &Clock,
        named: &mut Vec<u64>,
    ) -> Vec<(Side, Side)> {
        self.0.retain(|earlier| !host.covers(earlier.who.lane, earlier.who.time));
        let mut races = Vec::new();
        let mut kept = Vec::with_capacity(self.0.len().saturating_add(1));
        for earlier in self.0.drain(..) {
            if !earlier.overlaps(&access) {
                kept.push(earlier);
                continue;
            }
            let ordered = clock.covers(earlier.who.lane, earlier.who.time);
            let excluding = earlier.writes() || access.writes();
            if excluding && !ordered && !named.contains(&earlier.who.sequence) {
                named.push(earlier.who.sequence);
                races.push((earlier.side(), access.side()));
            }
            if ordered && (access.writes() || !earlier.writes()) {
                keep_outside(earlier, &access, &mut kept);
            } else {
                kept.push(earlier);
            }
        }
        kept.push(access);
        self.0 = kept;
        races
    }
}

/// Keeps the parts of `earlier` that lie outside `access`.
fn keep_outside(earlier: Access, access: &Access, kept: &mut Vec<Access>) {
    if earlier.start < access.start {
        kept.push(Access { end: access.start, ..earlier.clone() });
    }
    if access.end < earlier.end {
        kept.push(Access { start: access.end, ..earlier });
    }
}
