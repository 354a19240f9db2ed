//! The number of an operation, which is the same in each run of a program. Pure.
//!
//! Threads launch side by side, so a count over all of them is another one each time. A count of each
//! thread is not: [`number`] puts the thread's own number in front.

use alloc::vec::Vec;

/// The bits of the count within a thread.
const BITS: u32 = 40;

/// The number of a thread's operation, both counted from 0.
pub(crate) fn number(thread: u64, count: u64) -> u64 {
    (thread << BITS) | (count & ((1 << BITS) - 1))
}

/// What is asked of single operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The ones that may be late: the first of some, and the one behind the last. All if there are none.
    ranges: Vec<(u64, u64)>,
    /// From which operation on a thread's others wait for all that was queued before; one of each such thread.
    serial: Vec<u64>,
}

impl Chosen {
    /// Reads `low-high` and more of these with commas between them; all where it is not that.
    pub(crate) fn read(ranges: &[u8], serial: &[u8]) -> Self {
        let range = |text: &[u8]| {
            let mut ends = text.split(|byte| *byte == b'-').map(decimal);
            Some((ends.next()??, ends.next()??))
        };
        let ranges = ranges.split(|byte| *byte == b',').filter_map(range).collect();
        Self { ranges, serial: list(serial) }
    }

    /// Whether the seed decides over this operation.
    pub(crate) fn may_be_late(&self, number: u64) -> bool {
        let has = |range: &(u64, u64)| (range.0..range.1).contains(&number);
        self.ranges.is_empty() || self.ranges.iter().any(has)
    }

    pub(crate) fn is_serial(&self, number: u64) -> bool {
        let is_behind = |from: &u64| from >> BITS == number >> BITS && number >= *from;
        !self.may_be_late(number) && self.serial.iter().any(is_behind)
    }
}

/// Reads numbers with commas between them.
pub(crate) fn list(text: &[u8]) -> Vec<u64> {
    text.split(|byte| *byte == b',').filter_map(decimal).collect()
}

/// Reads a decimal number.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(*byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_by_thread_and_then_by_count() {
        assert_eq!(number(0, 7), 7);
        assert!(number(1, 0) > number(0, 1_000_000));
        assert!(number(1, 1) > number(1, 0));
    }

    #[test]
    fn ranges_leave_their_ends_out_and_what_may_be_late_is_never_serial() {
        let chosen = Chosen::read(b"3-5,5-6", b"1");
        let which = |asked: fn(&Chosen, u64) -> bool| -> Vec<u64> {
            (0..9).filter(|one| asked(&chosen, *one)).collect()
        };
        assert_eq!(which(Chosen::may_be_late), [3, 4, 5]);
        assert_eq!(which(Chosen::is_serial), [1, 2, 6, 7, 8]);
    }

    #[test]
    fn each_thread_is_serial_from_an_operation_of_its_own_on() {
        let serial = [number(0, 4), number(2, 1)].map(|one| one.to_string()).join(",");
        let chosen = Chosen::read(b"0-1", serial.as_bytes());
        assert!(chosen.is_serial(number(0, 4)) && !chosen.is_serial(number(0, 3)));
        assert!(chosen.is_serial(number(2, 7)) && !chosen.is_serial(number(2, 0)));
        // Neither of these was asked for, and both have higher numbers than the first thread's.
        assert!(!chosen.is_serial(number(1, 9)) && !chosen.is_serial(number(3, 9)));
    }

    #[test]
    fn what_is_no_range_is_all() {
        for text in [&b""[..], b"3", b"a-b", b"3-", b"99999999999999999999-3"] {
            let chosen = Chosen::read(text, b"");
            assert!((0..12).chain([number(9, 9)]).all(|one| chosen.may_be_late(one)));
        }
    }
}
