//! The number of an operation, which is the same in each run of a program. Pure.
//!
//! Threads launch side by side, so a count over all of them is another one each time. A count of each
//! thread is not: [`number`] puts the thread's own number in front.

/// The bits of the count within a thread.
const BITS: u32 = 40;

/// The number of a thread's operation, both counted from 0.
pub(crate) fn number(thread: u64, count: u64) -> u64 {
    (thread << BITS) | (count & ((1 << BITS) - 1))
}

/// The operations that may be late: `low-high`, the first and the one behind the last. From `serial` on
/// each waits for all that was queued before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) serial: u64,
}

impl Chosen {
    pub(crate) const ALL: Self = Self { low: 0, high: u64::MAX, serial: u64::MAX };

    /// Whether the seed decides over this operation.
    pub(crate) fn may_be_late(self, number: u64) -> bool {
        number >= self.low && number < self.high && !self.is_serial(number)
    }

    pub(crate) fn is_serial(self, number: u64) -> bool {
        number >= self.serial
    }

    /// Reads `low-high`; all where it is not that.
    pub(crate) fn read(range: &[u8], serial: Option<u64>) -> Self {
        let mut parts = range.split(|byte| *byte == b'-');
        let ends = (parts.next().and_then(decimal), parts.next().and_then(decimal));
        let (low, high) = match ends {
            (Some(low), Some(high)) => (low, high),
            _ => (Self::ALL.low, Self::ALL.high),
        };
        Self { low, high, serial: serial.unwrap_or(Self::ALL.serial) }
    }
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
    fn a_range_leaves_the_end_out_and_what_is_serial_is_never_late() {
        let chosen = Chosen::read(b"3-9", Some(6));
        let late: Vec<u64> = (0..12).filter(|one| chosen.may_be_late(*one)).collect();
        assert_eq!(late, [3, 4, 5]);
        assert!(chosen.is_serial(6) && !chosen.is_serial(5));
        assert!((0..12).all(|one| Chosen::ALL.may_be_late(one)));
    }

    #[test]
    fn what_is_no_range_is_all() {
        for text in [&b""[..], b"3", b"a-b", b"3-", b"99999999999999999999-3"] {
            assert_eq!(Chosen::read(text, None), Chosen::ALL);
        }
    }
}
