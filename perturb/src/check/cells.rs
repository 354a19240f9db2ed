//! Divides memory into cells between the addresses that a record names. Pure.
//!
//! Nobody knows how far a kernel goes from an address that it was given. The checker assumes that the kernel
//! stays in the cell that begins there, since the record names the memory after this cell by another address. A
//! known range of bytes may span several cells.

use alloc::vec::Vec;

/// How an operation touches bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    /// A kernel was given the address. It may read, write, or do nothing.
    Given,
}

/// The bytes [low, high) that an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) how: How,
    /// The place of the address among the kernel's parameters, as a number; 0 if the bytes are known.
    pub(crate) place: u64,
}

impl Touch {
    pub(crate) fn exact(low: u64, high: u64, how: How) -> Self {
        Self { low, high, how, place: 0 }
    }

    /// Whether the two touches overlap.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.low < other.high && other.low < self.high
    }

    /// Whether the order of two overlapping touches matters. None: no, both read. Some(true): yes, since one
    /// writes and the other touches the bytes. Some(false): perhaps, since one is only a given address.
    pub(crate) fn conflicts(&self, other: &Self) -> Option<bool> {
        match (self.how, other.how) {
            (How::Read, How::Read) => None,
            (How::Given, _) | (_, How::Given) => Some(false),
            _ => Some(true),
        }
    }
}

/// An operation's touch, with what the check compares of the operation, so that the check need not look the
/// operation up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) operation: u32,
    pub(crate) stream: u32,
    /// The operation's number on its stream.
    pub(crate) number: u32,
    /// Whether the host's patience ended during the operation.
    pub(crate) lost: bool,
    /// A hash of the operation's stack and name.
    pub(crate) site: u64,
    pub(crate) touch: Touch,
}

impl Access {
    /// Whether this access may replace `old`, which is ordered before it: both have the same stack and name,
    /// stream and touch. Later work that races with `old` then races with this access too.
    pub(crate) fn replaces(&self, old: &Self) -> bool {
        self.site == old.site && self.touch == old.touch && self.stream == old.stream
    }
}

/// All cells, with their accesses.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    bounds: Vec<u64>,
    lists: Vec<Vec<Access>>,
}

impl Cells {
    /// Makes a cell from each address to the next one.
    pub(crate) fn new(mut bounds: Vec<u64>) -> Self {
        bounds.sort_unstable();
        bounds.dedup();
        let mut lists = Vec::new();
        lists.resize_with(bounds.len(), Vec::new);
        Self { bounds, lists }
    }

    /// The index of the cell that has an address; 0 for an address below all cells.
    fn at(&self, address: u64) -> usize {
        self.bounds.partition_point(|one| *one <= address).saturating_sub(1)
    }

    /// The end of the cell that has an address; `u64::MAX` for the last cell.
    pub(crate) fn end(&self, address: u64) -> u64 {
        self.bounds.get(self.at(address) + 1).copied().unwrap_or(u64::MAX)
    }

    /// Passes each cell that a touch overlaps to `call`: its ends and its accesses.
    pub(crate) fn each(&mut self, touch: &Touch, mut call: impl FnMut(u64, u64, &mut Vec<Access>)) {
        let mut at = self.at(touch.low);
        while let (Some(low), Some(list)) = (self.bounds.get(at), self.lists.get_mut(at)) {
            if *low >= touch.high {
                break;
            }
            call(*low, self.bounds.get(at + 1).copied().unwrap_or(u64::MAX), list);
            at += 1;
        }
    }

    /// Forgets all accesses in the cells that have these bytes.
    pub(crate) fn clear(&mut self, low: u64, high: u64) {
        if low < high {
            self.each(&Touch::exact(low, high, How::Write), |_, _, list| list.clear());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_goes_from_one_address_to_the_next() {
        let mut cells = Cells::new(alloc::vec![30, 10, 20, 10]);
        assert_eq!((cells.end(10), cells.end(19), cells.end(20)), (20, 20, 30));
        assert_eq!(cells.end(30), u64::MAX);
        let ends = |cells: &mut Cells, low, high| {
            let mut found = Vec::new();
            cells.each(&Touch::exact(low, high, How::Read), |low, high, _| found.push((low, high)));
            found
        };
        assert_eq!(ends(&mut cells, 10, 20), [(10, 20)]);
        assert_eq!(ends(&mut cells, 15, 21), [(10, 20), (20, 30)]);
        assert_eq!(ends(&mut Cells::new(Vec::new()), 1, 2), []);
    }

    #[test]
    fn two_readers_do_not_conflict_and_an_address_alone_proves_nothing() {
        let touch = |how| Touch::exact(0, 8, how);
        assert_eq!(touch(How::Read).conflicts(&touch(How::Read)), None);
        assert_eq!(touch(How::Read).conflicts(&touch(How::Given)), Some(false));
        assert_eq!(touch(How::Given).conflicts(&touch(How::Write)), Some(false));
        assert_eq!(touch(How::Write).conflicts(&touch(How::Read)), Some(true));
        assert!(!Touch::exact(0, 8, How::Read).meets(&Touch::exact(8, 9, How::Read)));
    }
}
