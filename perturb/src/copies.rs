//! The bytes that multi-row copies and sets touch. Pure.

use alloc::vec::Vec;

/// A copy or set of more rows than this is ignored: it gives no ranges.
const MOST: u64 = 4096;
/// `CU_MEMORYTYPE_HOST`.
const HOST: u64 = 1;
/// `CU_MEMORYTYPE_ARRAY`: a CUDA array, which has no addresses.
const ARRAY: u64 = 3;

/// The byte ranges [low, high) of `count` rows of `size` bytes, `pitch` bytes apart. If the rows have no gaps,
/// they become one range. None for more than [`MOST`] rows.
pub(crate) fn rows(from: u64, pitch: u64, size: u64, count: u64) -> Vec<(u64, u64)> {
    if size == 0 || count == 0 || count > MOST {
        return Vec::new();
    }
    if count == 1 || pitch == size {
        return alloc::vec![(from, from.saturating_add(size.saturating_mul(count)))];
    }
    let low = |row: u64| from.saturating_add(row.saturating_mul(pitch));
    (0..count).map(|row| (low(row), low(row).saturating_add(size))).collect()
}

/// One side of a copy, source or target: its start, and the layout of its rows and slices.
struct Side {
    kind: u64,
    host: u64,
    device: u64,
    x: u64,
    y: u64,
    z: u64,
    pitch: u64,
    height: u64,
}

impl Side {
    fn touched(&self, size: u64, rows_: u64, slices: u64) -> Vec<(u64, u64)> {
        let kind = self.kind & 0xffff_ffff;
        if kind == ARRAY || rows_.saturating_mul(slices) > MOST {
            return Vec::new();
        }
        let base = if kind == HOST { self.host } else { self.device };
        let slice = self.pitch.saturating_mul(self.height);
        let begin = base
            .saturating_add(self.x)
            .saturating_add(self.y.saturating_mul(self.pitch))
            .saturating_add(self.z.saturating_mul(slice));
        (0..slices)
            .flat_map(|z| {
                rows(begin.saturating_add(z.saturating_mul(slice)), self.pitch, size, rows_)
            })
            .collect()
    }
}

fn both(sides: &[Side; 2], size: [u64; 3]) -> Vec<(u64, u64, bool)> {
    let [width, height, depth] = size;
    let mut found = Vec::new();
    for (side, writes) in sides.iter().zip([false, true]) {
        let touched = side.touched(width, height, depth);
        found.extend(touched.into_iter().map(|(low, high)| (low, high, writes)));
    }
    found
}

/// The byte ranges that a copy by a `CUDA_MEMCPY2D` touches: low, high, and whether the copy writes there.
/// `words` is the structure.
pub(crate) fn plane_of(words: &[u64]) -> Vec<(u64, u64, bool)> {
    let w = |at: usize| words.get(at).copied().unwrap_or(0);
    let side = |at: usize| Side {
        kind: w(at + 2),
        host: w(at + 3),
        device: w(at + 4),
        x: w(at),
        y: w(at + 1),
        z: 0,
        pitch: w(at + 6),
        height: 0,
    };
    both(&[side(0), side(7)], [w(14), w(15), 1])
}

/// The byte ranges that a copy by a `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER` touches: low, high, and whether the
/// copy writes there. `words` is the structure.
pub(crate) fn box_of(words: &[u64]) -> Vec<(u64, u64, bool)> {
    let w = |at: usize| words.get(at).copied().unwrap_or(0);
    let side = |at: usize| Side {
        kind: w(at + 4),
        host: w(at + 5),
        device: w(at + 6),
        x: w(at),
        y: w(at + 1),
        z: w(at + 2),
        pitch: w(at + 9),
        height: w(at + 10),
    };
    both(&[side(0), side(11)], [w(22), w(23), w(24)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_touch_are_one_range() {
        assert_eq!(rows(100, 8, 8, 3), [(100, 124)]);
        assert_eq!(rows(100, 16, 8, 2), [(100, 108), (116, 124)]);
        assert_eq!(rows(100, 0, 8, 1), [(100, 108)]);
        assert_eq!(rows(100, 16, 8, 0), []);
        assert_eq!(rows(100, 16, 8, MOST + 1), []);
    }

    #[test]
    fn a_plane_begins_at_its_offsets_and_an_array_has_no_addresses() {
        // From host memory at (4, 1) with a pitch of 32, to device memory.
        let words = [4, 1, 1, 1000, 5, 0, 32, 0, 0, 2, 6, 2000, 0, 64, 8, 2];
        let found = plane_of(&words);
        let from = [(1036, 1044, false), (1068, 1076, false)];
        assert_eq!(found, [from, [(2000, 2008, true), (2064, 2072, true)]].concat());
        let array = [0, 0, 3, 1000, 5, 0, 32, 0, 0, 2, 6, 2000, 0, 64, 8, 1];
        assert_eq!(plane_of(&array), [(2000, 2008, true)]);
    }

    #[test]
    fn a_box_has_slices_of_its_height() {
        let mut words = [0; 25];
        (words[4], words[6], words[9], words[10]) = (2, 1000, 16, 4);
        (words[15], words[17], words[20], words[21], words[13]) = (2, 9000, 8, 1, 1);
        (words[22], words[23], words[24]) = (8, 1, 2);
        assert_eq!(
            box_of(&words),
            [(1000, 1008, false), (1064, 1072, false), (9008, 9016, true), (9016, 9024, true)]
        );
    }
}
