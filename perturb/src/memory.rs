//! The memory that the program has allocated by, registered with or mapped by the driver. Pure.

use alloc::collections::BTreeMap;

use crate::entries::Row;

/// The kind of an allocation's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Device memory from a pool. It is allocated and freed in a stream's order.
    Pool,
    /// Page-locked host memory.
    Host,
    /// Managed memory: device and host touch it.
    Managed,
}

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) low: u64,
    pub(crate) size: u64,
    pub(crate) place: Place,
    /// The allocation's number, counted from 0. A run that allocates in the same order gives the same numbers.
    pub(crate) ordinal: u64,
    /// Whether another process may use the range as well.
    pub(crate) shared: bool,
}

impl Range {
    pub(crate) fn high(&self) -> u64 {
        self.low.saturating_add(self.size)
    }
}

/// All memory that is allocated, registered or mapped now.
#[derive(Debug)]
pub(crate) struct Memory {
    all: BTreeMap<u64, Range>,
    taken: u64,
    /// The bounds of all memory that was ever allocated.
    low: u64,
    high: u64,
}

impl Memory {
    pub(crate) const NEW: Self = Self { all: BTreeMap::new(), taken: 0, low: u64::MAX, high: 0 };

    pub(crate) fn take(&mut self, low: u64, size: u64, place: Place) {
        self.release(low, size);
        let ordinal = self.taken;
        self.taken += 1;
        self.all.insert(low, Range { low, size, place, ordinal, shared: false });
        self.low = self.low.min(low);
        self.high = self.high.max(low.saturating_add(size));
    }

    /// Removes all ranges that overlap these bytes.
    pub(crate) fn release(&mut self, low: u64, size: u64) {
        while let Some(range) = self.all.range(..low.saturating_add(size)).next_back() {
            if range.1.high() <= low {
                break;
            }
            let first = *range.0;
            self.all.remove(&first);
        }
    }

    /// Removes the range that begins at `low`.
    pub(crate) fn free(&mut self, low: u64) {
        self.all.remove(&low);
    }

    /// Marks the range that contains this address as shared.
    pub(crate) fn share(&mut self, address: u64) {
        let nearest = self.all.range_mut(..=address).next_back().map(|(_, range)| range);
        if let Some(range) = nearest.filter(|range| address < range.high()) {
            range.shared = true;
        }
    }

    /// The range that contains this address.
    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        let found = *self.all.range(..=address).next_back()?.1;
        (address < found.high()).then_some(found)
    }

    pub(crate) fn by_ordinal(&self, ordinal: u64) -> Option<Range> {
        self.all.values().find(|one| one.ordinal == ordinal).copied()
    }

    /// Whether a word may be an address in memory that was ever allocated.
    pub(crate) fn may_have(&self, word: u64) -> bool {
        self.low <= word && word < self.high
    }

    /// Applies a successful call. `found` are the values that the driver wrote to its first two arguments'
    /// addresses: the address of the memory, and the pitch or 0.
    pub(crate) fn follow(&mut self, row: Row, arguments: &[u64], found: [u64; 2]) {
        let [first, second] = [0, 1].map(|at| arguments.get(at).copied().unwrap_or(0));
        match effect(row) {
            Some(Effect::Allocates(place) | Effect::Names(place)) => {
                let (low, size) = taken(row, arguments, found);
                self.take(low, size, place);
            }
            Some(Effect::Releases) => self.release(first, second),
            Some(Effect::Shares) => self.share(second),
            Some(Effect::Frees) => self.free(first),
            None => {}
        }
    }
}

/// The effect of a call on the memory that is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Allocates memory. The driver writes the address to the first argument's address.
    Allocates(Place),
    /// Adds the memory that the first two arguments name: address and size.
    Names(Place),
    /// Removes the memory that the first two arguments name: address and size.
    Releases,
    /// Frees the memory that begins at the first argument.
    Frees,
    /// Lets another process use the allocation that contains the second argument.
    Shares,
}

pub(crate) fn effect(row: Row) -> Option<Effect> {
    Some(match row {
        Row::cuMemAlloc_v2 | Row::cuMemAllocPitch_v2 => Effect::Allocates(Place::Device),
        Row::cuMemAllocManaged => Effect::Allocates(Place::Managed),
        Row::cuMemAllocAsync | Row::cuMemAllocFromPoolAsync => Effect::Allocates(Place::Pool),
        Row::cuMemAllocHost_v2 | Row::cuMemHostAlloc => Effect::Allocates(Place::Host),
        Row::cuMemHostRegister_v2 => Effect::Names(Place::Host),
        Row::cuMemMap => Effect::Names(Place::Device),
        Row::cuMemUnmap => Effect::Releases,
        Row::cuMemFree_v2 | Row::cuMemFreeHost | Row::cuMemHostUnregister | Row::cuMemFreeAsync => {
            Effect::Frees
        }
        Row::cuIpcGetMemHandle => Effect::Shares,
        _ => return None,
    })
}

/// The address and the size of memory that a call allocates or names.
pub(crate) fn taken(row: Row, arguments: &[u64], found: [u64; 2]) -> (u64, u64) {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    match (effect(row), row) {
        (Some(Effect::Names(_)), _) => (argument(0), argument(1)),
        (_, Row::cuMemAllocPitch_v2) => (found[0], found[1].saturating_mul(argument(3))),
        _ => (found[0], argument(1)),
    }
}

/// Whether the call makes a stream, an event, an executable graph or memory, and writes its handle or address
/// to the first argument's address.
pub(crate) fn gives(row: Row) -> bool {
    let is_other = matches!(
        row,
        Row::cuStreamCreate
            | Row::cuStreamCreateWithPriority
            | Row::cuEventCreate
            | Row::cuGraphInstantiate_v2
            | Row::cuGraphInstantiateWithFlags
            | Row::cuGraphInstantiateWithParams
    );
    is_other || matches!(effect(row), Some(Effect::Allocates(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_range_that_has_it_and_what_was_there_before_is_gone() {
        let mut all = Memory::NEW;
        all.take(100, 10, Place::Device);
        all.take(120, 10, Place::Pool);
        assert_eq!(all.find(99), None);
        assert_eq!(all.find(109).map(|one| one.ordinal), Some(0));
        assert_eq!(all.find(110), None);
        assert_eq!(all.by_ordinal(1).map(|one| one.low), Some(120));
        all.share(110); // memory whose allocation was not seen
        all.share(129);
        assert_eq!(
            [100, 120].map(|low| all.find(low).map(|one| one.shared)),
            [Some(false), Some(true)]
        );
        all.take(105, 20, Place::Host);
        assert_eq!((all.find(100), all.find(125)), (None, None));
        assert_eq!(all.find(124).map(|one| one.ordinal), Some(2));
        assert!(all.may_have(129) && !all.may_have(130) && !all.may_have(99));
        all.free(105);
        assert_eq!(all.find(110), None);
    }
}
