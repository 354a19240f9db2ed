//! Numbers operations alike in each run of a program. Pure.
//!
//! Threads queue operations concurrently, so a count over all threads differs in each run. A count for each
//! thread does not. [`number`] puts the thread's number before its count.

use alloc::vec::Vec;

/// The number of bits that a thread's count has in an operation's number.
const BITS: u32 = 40;

/// The number of an operation: the thread's number and the thread's count of operations before it, both from 0.
pub(crate) fn number(thread: u64, count: u64) -> u64 {
    (thread << BITS) | (count & ((1 << BITS) - 1))
}

/// The settings for single operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Ranges of the numbers of free operations, each without its end. A free operation runs as it would, or
    /// late. Before and after each other operation the host waits until all work is done. None: all are free.
    free: Option<Vec<(u64, u64)>>,
    /// The numbers of operations after which the host waits until all work is done.
    settled: Vec<u64>,
}

impl Chosen {
    /// Reads `free`, a list of `low-high` ranges, and `settled`, a list of numbers. Commas separate; what is
    /// neither is left out.
    pub(crate) fn read(free: Option<&[u8]>, settled: &[u8]) -> Self {
        let range = |text: &[u8]| {
            let mut ends = text.split(|byte| *byte == b'-').map(decimal);
            Some((ends.next()??, ends.next()??))
        };
        let ranges = |text: &[u8]| text.split(|byte| *byte == b',').filter_map(range).collect();
        Self { free: free.map(ranges), settled: list(settled) }
    }

    pub(crate) fn is_free(&self, number: u64) -> bool {
        let has = |range: &(u64, u64)| (range.0..range.1).contains(&number);
        self.free.as_ref().is_none_or(|ranges| ranges.iter().any(has))
    }

    pub(crate) fn settles(&self, number: u64) -> bool {
        self.settled.contains(&number)
    }
}

/// Reads decimal numbers that are separated by commas. Leaves out what is no number.
pub(crate) fn list(text: &[u8]) -> Vec<u64> {
    text.split(|byte| *byte == b',').filter_map(decimal).collect()
}

/// Reads a decimal number; None if it has other characters, or does not fit in 64 bits.
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
    fn ranges_leave_their_ends_out_and_without_any_all_is_free() {
        let which = |free: Option<&[u8]>| -> Vec<u64> {
            let chosen = Chosen::read(free, b"1,7");
            assert!(chosen.settles(1) && chosen.settles(7) && !chosen.settles(3));
            (0..9).filter(|one| chosen.is_free(*one)).collect()
        };
        assert_eq!(which(Some(b"3-5,5-6")), [3, 4, 5]);
        assert_eq!(which(None), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        for none in [&b""[..], b"3", b"a-b", b"3-", b"99999999999999999999-3"] {
            assert_eq!(which(Some(none)), []);
        }
    }
}
