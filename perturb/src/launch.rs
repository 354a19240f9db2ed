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

/// The operations that may be late: `low-high`, the first and the one behind the last, and all from
/// `also` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) also: u64,
}

impl Chosen {
    pub(crate) const ALL: Self = Self { low: 0, high: u64::MAX, also: u64::MAX };

    /// Whether the seed decides over this operation, or nothing delays it, or it is late anyway.
    pub(crate) fn says(self, number: u64, by_seed: bool) -> bool {
        number >= self.also || (by_seed && number >= self.low && number < self.high)
    }

    /// Reads `low-high`; all where it is not that.
    pub(crate) fn read(range: &[u8], also: Option<u64>) -> Self {
        let mut parts = range.split(|byte| *byte == b'-');
        let ends = (parts.next().and_then(decimal), parts.next().and_then(decimal));
        let (low, high) = match ends {
            (Some(low), Some(high)) => (low, high),
            _ => (Self::ALL.low, Self::ALL.high),
        };
        Self { low, high, also: also.unwrap_or(Self::ALL.also) }
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
    fn a_range_leaves_the_end_out_and_also_is_late_whatever_the_seed_says() {
        let chosen = Chosen::read(b"3-5", Some(9));
        let late: Vec<u64> = (0..12).filter(|one| chosen.says(*one, true)).collect();
        assert_eq!(late, [3, 4, 9, 10, 11]);
        assert!(!chosen.says(4, false));
        assert!(chosen.says(9, false));
        assert!((0..12).all(|one| Chosen::ALL.says(one, true)));
    }

    #[test]
    fn what_is_no_range_is_all() {
        for text in [&b""[..], b"3", b"a-b", b"3-", b"99999999999999999999-3"] {
            assert_eq!(Chosen::read(text, None), Chosen::ALL);
        }
    }
}
