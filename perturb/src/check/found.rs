//! The pairs that were found, by the lines that queued them. Pure.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::cells::{Access, How, Touch};
use super::clocks::Operation;
use crate::memory::Memory;

/// So many occurrences of a pair are looked at in another run.
const LOOKED: usize = 4;

/// An older access that nothing orders before the new operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) first: u32,
    pub(crate) proven: bool,
    /// What each of the two does, and where.
    pub(crate) how: (How, How),
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Hit {
    /// How much is known: that both touch it, and that one writes.
    fn rank(&self) -> u8 {
        let writes = self.how.0 == How::Write || self.how.1 == How::Write;
        2 * u8::from(self.proven) + u8::from(writes)
    }

    /// Adds what was found, or keeps what says more of the same two.
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

/// Two lines of a program, and the first two operations of theirs that nothing orders.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) hit: Hit,
    pub(crate) second: u32,
    /// How many pairs of operations there are, and how many are proven.
    pub(crate) count: u64,
    pub(crate) proven: u64,
    /// The first of them: the operations, and where: which memory, and the offset there.
    pub(crate) looked: Vec<(u32, u32, u64, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    by_site: BTreeMap<(u64, u64), Pair>,
    /// Each pair of operations, and whether it is proven, if that was asked for.
    pub(crate) each: Vec<(u32, u32, bool)>,
}

/// What tells an operation of one line from those of others.
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

    /// All of them: the proven ones first, then those of which one side writes; in each by their count.
    pub(crate) fn pairs(&self) -> Vec<&Pair> {
        let mut all: Vec<&Pair> = self.by_site.values().collect();
        all.sort_by_key(|one| {
            (core::cmp::Reverse(one.hit.rank()), core::cmp::Reverse(one.count), one.second)
        });
        all
    }
}
