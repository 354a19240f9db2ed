use cai_bridge::layout::{Dims, Layout};

use crate::tables::{int, ints, rows, table, text};

#[test]
fn strides_are_bytes_in_cai_and_elements_in_dlpack() {
    for row in rows(&table("layout.toml"), "layout") {
        let shape = ints(&row["shape"]);
        let itemsize = int(&row, "itemsize");
        let bytes = row.get("bytes").map(ints);
        let layout = match row.get("given").map(ints) {
            Some(given) => Layout::from_elements(&shape, Some(&given), itemsize),
            None => Layout::from_bytes(&shape, bytes.as_deref(), itemsize),
        };
        if row.contains_key("kind") {
            assert_eq!(layout.unwrap_err().kind().name(), text(&row, "kind"), "{row:?}");
            continue;
        }
        let (layout, _) = layout.unwrap();
        assert_eq!(layout.shape(), shape);
        assert_eq!(layout.strides(), ints(&row["elements"]), "{row:?}");
        assert_eq!(layout.size(), int(&row, "size"), "{row:?}");
        assert_eq!(layout.is_contiguous(), row["contiguous"].as_bool().unwrap(), "{row:?}");
    }
}

#[test]
fn an_element_has_a_byte_or_more() {
    let strides = [None, Some([4]), Some([-1]), Some([i64::MIN])];
    for size in ints(&table("layout.toml")["item_sizes"]) {
        for strides in &strides {
            let strides = strides.as_ref().map(<[i64; 1]>::as_slice);
            for made in [Layout::from_bytes, Layout::from_elements] {
                assert_eq!(made(&[2], strides, size).unwrap_err().kind().name(), "ItemSize");
            }
        }
    }
}

/// Every offset in bytes that the array touches, by walking all indices, the last one fastest.
pub(crate) fn offsets(shape: &[i64], strides: &[i64], itemsize: i64) -> Vec<i64> {
    let mut all = vec![0];
    for (&extent, &stride) in shape.iter().zip(strides) {
        all = all
            .iter()
            .flat_map(|at| (0..extent).map(move |i| at + i * stride * itemsize))
            .collect();
    }
    all
}

/// A small generator, so that a failure can be told by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as i64) % below
    }
}

#[test]
fn reach_and_contiguity_agree_with_walking_every_element() {
    let mut random = Random(7);
    for _ in 0..20_000 {
        let ndim = random.next(4) as usize;
        let shape: Vec<i64> = (0..ndim).map(|_| random.next(4)).collect();
        let strides: Vec<i64> = (0..ndim).map(|_| random.next(13) - 6).collect();
        let itemsize = [1, 2, 4, 8, 16][random.next(5) as usize];
        let (layout, reach) = Layout::from_elements(&shape, Some(&strides), itemsize).unwrap();
        let touched = offsets(&shape, &strides, itemsize);
        assert_eq!(layout.size(), touched.len() as i64);
        if let (Some(low), Some(high)) = (touched.iter().min(), touched.iter().max()) {
            let walked = ((-low) as u64, (high + itemsize) as u64);
            assert_eq!((reach.below, reach.above), walked, "{shape:?} {strides:?}");
        } else {
            assert_eq!((reach.below, reach.above), (0, 0));
        }
        let in_order = touched.iter().enumerate().all(|(i, at)| *at == i as i64 * itemsize);
        assert_eq!(layout.is_contiguous(), in_order || touched.is_empty(), "{shape:?} {strides:?}");
    }
}

#[test]
fn no_layout_panics_on_extreme_values() {
    let extremes = [0, 1, -1, 2, i64::MAX, i64::MIN, i64::MAX / 2, i64::MIN / 2, 1 << 32];
    for &a in &extremes {
        for &b in &extremes {
            for &s in &extremes {
                for &t in &extremes {
                    let _ = Layout::from_elements(&[a, b], Some(&[s, t]), 16);
                    let _ = Layout::from_bytes(&[a, b], Some(&[s, t]), 16);
                }
            }
        }
    }
}

#[test]
fn dims_keep_their_values_in_line_and_on_the_heap_and_are_equal_where_all_of_them_are() {
    let dims = |values: &[i64]| values.iter().copied().collect::<Dims>();
    for len in 0..20_i64 {
        let values: Vec<i64> = (0..len).collect();
        let mut pushed = Dims::new();
        values.iter().for_each(|&value| pushed.push(value));
        assert_eq!((pushed.as_slice(), dims(&values)), (&values[..], pushed.clone()));
    }
    for other in [&[2][..], &[3, 2], &[2, 3, 1], &[]] {
        assert_ne!(dims(&[2, 3]), dims(other));
    }
}

// Mutants that change nothing: `span <= 0` in `Walk::step`, since a span of 0 adds 0 to either side.
