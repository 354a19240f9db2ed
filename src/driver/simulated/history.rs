//! Finds races: compares each new access to a block of memory with the earlier accesses that it could race with.
//!
//! [`History::admit`] forgets an access to a byte in two cases, in which each later operation that races is still
//! found:
//! - The host is ordered after the access. Every later launch follows the host, and so the access.
//! - A later access to the byte is ordered after the earlier one and excludes as much: the later access writes, or the
//!   earlier one only reads. Then a new access that races with the earlier one also races with the later.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::clock::{Clock, Lane};
use super::report::{AccessKind, AccessRange, Side};

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

#[derive(Debug)]
pub(super) struct Access {
    who: Arc<Actor>,
    touched: AccessRange,
}

impl Access {
    pub(super) fn new(who: &Arc<Actor>, touched: AccessRange) -> Self {
        Self { who: Arc::clone(who), touched }
    }

    fn writes(&self) -> bool {
        self.touched.access != AccessKind::Read
    }

    fn side(&self) -> Side {
        self.who.side(self.touched.clone())
    }
}

#[derive(Debug, Clone)]
struct Run {
    end: u64,
    accesses: Vec<(u64, Arc<Access>)>,
}

/// The accesses to a block that later accesses could race with. The key is the offset of a range's first byte.
#[derive(Debug, Default)]
pub(super) struct History {
    runs: BTreeMap<u64, Run>,
    admitted: u64,
}

impl History {
    /// Returns the races of `access` with earlier accesses, but none with an operation whose number is in `named`.
    pub(super) fn admit(
        &mut self,
        access: Access,
        clock: &Clock,
        host: &Clock,
        named: &mut HashSet<u64>,
    ) -> Vec<(Side, Side)> {
        let Range { start, end } = access.touched.bytes;
        if start >= end {
            return Vec::new();
        }
        self.admitted = self.admitted.saturating_add(1);
        let (access, number) = (Arc::new(access), self.admitted);
        self.split(start);
        self.split(end);
        let (mut racing, mut gaps, mut at) = (BTreeMap::new(), Vec::new(), start);
        for (from, run) in self.runs.range_mut(start..end) {
            gaps.extend((at < *from).then_some((at, *from)));
            at = run.end;
            run.accesses.retain(|(number, earlier)| {
                if host.covers(earlier.who.lane, earlier.who.time) {
                    return false;
                }
                let ordered = clock.covers(earlier.who.lane, earlier.who.time);
                let excluding = earlier.writes() || access.writes();
                if excluding && !ordered && !named.contains(&earlier.who.sequence) {
                    racing.insert(*number, Arc::clone(earlier));
                }
                !(ordered && (access.writes() || !earlier.writes()))
            });
            run.accesses.push((number, Arc::clone(&access)));
        }
        gaps.extend((at < end).then_some((at, end)));
        for (from, end) in gaps {
            self.runs.insert(from, Run { end, accesses: vec![(number, Arc::clone(&access))] });
        }
        self.join(start, end);
        let first = racing.into_values().filter(|earlier| named.insert(earlier.who.sequence));
        first.map(|earlier| (earlier.side(), access.side())).collect()
    }

    fn split(&mut self, at: u64) {
        let Some((_, run)) = self.runs.range_mut(..at).next_back() else { return };
        if run.end > at {
            let rest = run.clone();
            run.end = at;
            self.runs.insert(at, rest);
        }
    }

    fn join(&mut self, start: u64, end: u64) {
        let numbers =
            |run: &Run| run.accesses.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        let mut last = None;
        for (from, run) in self.runs.range(start..end) {
            let these = numbers(run);
            match joined.last_mut().filter(|_| last.as_ref() == Some(&these)) {
                Some((_, to)) => *to = run.end,
                None => joined.push((*from, run.end)),
            }
            last = Some(these);
        }
        for (from, to) in joined {
            let inner: Vec<u64> = self.runs.range(from..to).skip(1).map(|(at, _)| *at).collect();
            for at in inner {
                self.runs.remove(&at);
            }
            if let Some(run) = self.runs.get_mut(&from) {
                run.end = to;
            }
        }
    }
}
