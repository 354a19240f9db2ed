//! The pairs of unordered operations that were found, grouped by the lines that queued them. Pure.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::cells::{Access, How, Touch};
use super::operation::Operation;
use crate::memory::Memory;

/// The most occurrences of a pair of lines to look at in another run.
const LOOKED: usize = 4;

/// An older access that nothing orders before a new operation on the same bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) first: u32,
    pub(crate) proven: bool,
    /// How the older and the new operation touch the memory from `low` to `high`.
    pub(crate) how: (How, How),
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Hit {
    /// The strength of a hit: a proven hit is stronger than any other, and else a hit with a known write.
    fn rank(&self) -> u8 {
        let writes = self.how.0 == How::Write || self.how.1 == How::Write;
        2 * u8::from(self.proven) + u8::from(writes)
    }

    /// Adds a hit. Of two hits for the same older operation, keeps the stronger.
    pub(crate) fn add(
        to: &mut Vec<Self>,
        old: &Access,
        new: &Touch,
        both: (u64, u64),
        proven: bool,
    ) {
        let how = (old.touch.how, new.how);
        let hit = Self { first: old.operation, proven, how, low: both.0, high: both.1 };
        match to.iter_mut().find(|one| one.first == hit.first) {
            Some(known) if known.rank() >= hit.rank() => {}
            Some(known) => *known = hit,
            None => to.push(hit),
        }
    }
}

/// Two lines of a program, with the strongest of their pairs of unordered operations.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) hit: Hit,
    pub(crate) second: u32,
    /// The number of pairs of operations by these lines.
    pub(crate) count: u64,
    /// How many of these pairs are proven.
    pub(crate) proven: u64,
    /// The first pairs, at most [`LOOKED`]: both operations, the number of the allocation, and the offset in
    /// it.
    pub(crate) looked: Vec<(u32, u32, u64, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    by_site: BTreeMap<(u64, u64), Pair>,
    /// Each pair of operations, older first, and whether it is proven; only if every pair was asked for.
    pub(crate) each: Vec<(u32, u32, bool)>,
}

/// A hash of an operation's stack and name; of the driver's function, if it has no name.
pub(crate) fn site(one: &Operation) -> u64 {
    let what =
        if one.name == u32::MAX { u64::from(one.row) << 32 } else { u64::from(one.name) + 1 };
    what.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(one.stack)
}

impl Found {
    pub(crate) fn add(
        &mut self,
        second: u32,
        hits: &[Hit],
        all: &[Operation],
        memory: &Memory,
        every: bool,
    ) {
        let of = |index: u32| all.get(index as usize).map_or(0, site);
        for hit in hits {
            if every {
                self.each.push((hit.first, second, hit.proven));
            }
            let new = || Pair { hit: *hit, second, count: 0, proven: 0, looked: Vec::new() };
            let pair = self.by_site.entry((of(hit.first), of(second))).or_insert_with(new);
            pair.count += 1;
            pair.proven += u64::from(hit.proven);
            if hit.rank() > pair.hit.rank() {
                (pair.hit, pair.second) = (*hit, second);
            }
            if pair.looked.len() < LOOKED
                && let Some(range) = memory.find(hit.low)
            {
                pair.looked.push((hit.first, second, range.ordinal, hit.low - range.low));
            }
        }
    }

    /// All pairs of lines, by the rank of their strongest hit and then by their count, the highest first.
    pub(crate) fn pairs(&self) -> Vec<&Pair> {
        let mut all: Vec<&Pair> = self.by_site.values().collect();
        all.sort_by_key(|one| {
            (core::cmp::Reverse(one.hit.rank()), core::cmp::Reverse(one.count), one.second)
        });
        all
    }
}
