//! Chooses the late streams of each seed. Pure.

/// The number of seeds of the covering design. For any two of 64 streams, one of these seeds makes the first
/// late and the second not.
pub(crate) const COVERING: u64 = 12;

/// Whether the stream with this index is late under this seed.
///
/// Below [`COVERING`], seeds 2k and 2k + 1 look at bit k of the index. Seed 2k delays streams with the bit set,
/// seed 2k + 1 the others. Two indices below 64 differ in one of the six bits, so one of this bit's two seeds
/// delays only the first stream, and the other only the second. From [`COVERING`] on, a seed delays each stream
/// with probability 1/2.
pub(crate) fn is_late(seed: u64, index: u64) -> bool {
    if seed < COVERING {
        (index >> (seed / 2)) & 1 != seed & 1
    } else {
        mixed((seed << 32) ^ index) & 1 == 1
    }
}

/// Hashes a number: the finalizer of `SplitMix64`.
fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(seeds: u64, streams: u64) -> bool {
        (0..streams).all(|first| {
            (0..streams)
                .filter(|second| *second != first)
                .all(|second| (0..seeds).any(|seed| is_late(seed, first) && !is_late(seed, second)))
        })
    }

    #[test]
    fn each_ordered_pair_of_64_streams_has_a_seed_with_the_first_late_alone() {
        assert!(covered(COVERING, 64));
        assert!(!covered(COVERING, 65));
    }

    #[test]
    fn n_streams_need_twice_the_logarithm_of_n_seeds() {
        for (streams, seeds) in [(2, 2), (4, 4), (8, 6), (16, 8), (32, 10)] {
            assert!(covered(seeds, streams), "{streams}");
            assert!(!covered(seeds, streams + 1), "{streams}");
        }
    }

    #[test]
    fn a_later_seed_delays_about_half_of_the_streams_and_another_seed_others() {
        let late = |seed| (0..64).filter(|index| is_late(seed, *index)).collect::<Vec<_>>();
        for seed in COVERING..COVERING + 50 {
            assert!((12..=52).contains(&late(seed).len()), "{seed}");
        }
        assert_ne!(late(COVERING), late(COVERING + 1));
        assert_eq!(late(COVERING), late(COVERING));
    }
}
