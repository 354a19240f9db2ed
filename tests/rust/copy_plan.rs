//! The plan of a copy, against an oracle that copies element by element.

use std::cell::{Cell, RefCell};

use cai_bridge::copy_plan::{Block, CopyPlan, MAX_PITCH};
use cai_bridge::error::{Error, Kind};
use cai_bridge::layout::Layout;

use crate::layout::{Random, offsets};

/// What the calls copy that take the array's own.
fn first(plan: &CopyPlan) -> Block {
    plan.blocks().next().unwrap().0
}

fn layout(shape: &[i64], strides: &[i64], item: i64) -> Layout {
    Layout::from_elements(shape, Some(strides), item).unwrap().0
}

/// For each byte of the copy, the bytes from the first element to the one that it was copied from.
fn copied(plan: &CopyPlan, bytes: i64) -> Vec<Option<i64>> {
    let made = RefCell::new(vec![None; bytes as usize]);
    let calls = Cell::new(0);
    let copy = |block: Block, target: i64, of: &dyn Fn(i64) -> Option<i64>, source: i64| {
        calls.set(calls.get() + 1);
        for (from, to) in block.offsets() {
            for byte in 0..block.width as i64 {
                let from = of(source + from as i64 + byte);
                assert_ne!(from, None, "what is copied within the copy is there");
                let at = &mut made.borrow_mut()[(target + to as i64 + byte) as usize];
                assert_eq!(*at, None, "a byte is copied once");
                *at = from;
            }
        }
        Ok(())
    };
    plan.take(|block, source, target| copy(block, target, &Some, source)).unwrap();
    let inside = |at: i64| made.borrow()[at as usize];
    plan.repeat(|block, source, target| copy(block, target, &inside, source)).unwrap();
    assert_eq!(calls.get(), plan.calls());
    made.into_inner()
}

/// What `CUDA_MEMCPY2D` and `CUDA_MEMCPY3D` ask of their pitches.
fn check_block(plan: &CopyPlan) {
    for (block, _) in plan.blocks() {
        for pitch in [block.source, block.target] {
            assert!(pitch.row >= block.width && pitch.plane >= block.rows, "{block:?}");
            assert!(block.rows == 1 || pitch.row <= MAX_PITCH as u64, "{block:?}");
        }
        assert!(block.planes == 1 || block.rows > 1, "planes are of rows");
    }
}

#[test]
fn a_plan_copies_every_element_of_any_layout_to_its_place_in_c_order() {
    let mut random = Random(11);
    for _ in 0..30_000 {
        let ndim = random.next(6) as usize;
        let shape: Vec<i64> = (0..ndim).map(|_| random.next(4)).collect();
        let strides: Vec<i64> = match random.next(3) {
            // Anything: overlapping, negative, broadcast.
            0 => (0..ndim).map(|_| random.next(17) - 8).collect(),
            // A permuted array with gaps, some axes reversed or broadcast.
            kind => {
                let mut order: Vec<usize> = (0..ndim).collect();
                if kind == 2 {
                    for i in (1..ndim).rev() {
                        order.swap(i, random.next(i as i64 + 1) as usize);
                    }
                }
                let (mut strides, mut step) = (vec![0; ndim], 1 + random.next(2));
                for axis in order {
                    let sign = [1, 1, 1, -1, 0][random.next(5) as usize];
                    strides[axis] = sign * step;
                    step *= shape[axis].max(1) + random.next(2);
                }
                strides
            }
        };
        let item = [1, 2, 4, 12][random.next(4) as usize];
        let array = layout(&shape, &strides, item);
        let Some(plan) = CopyPlan::new(&array, item) else {
            assert_eq!(array.size(), 0);
            continue;
        };
        check_block(&plan);
        let wanted: Vec<Option<i64>> = offsets(&shape, &strides, item)
            .into_iter()
            .flat_map(|at| (0..item).map(move |byte| Some(at + byte)))
            .collect();
        assert_eq!(copied(&plan, array.size() * item), wanted, "{shape:?} {strides:?} {plan:?}");
    }
}

#[test]
fn one_call_copies_what_cuda_copies_by_one_call() {
    // Shape, strides, and the calls with their width in elements, rows and planes.
    let cases: [(&[i64], &[i64], [u64; 4]); 17] = [
        (&[], &[], [1, 1, 1, 1]),
        (&[1, 1], &[77, -5], [1, 1, 1, 1]),
        (&[24], &[1], [1, 24, 1, 1]),
        (&[4, 6], &[6, 1], [1, 24, 1, 1]),
        (&[2, 1, 4, 6], &[24, 99, 6, 1], [1, 48, 1, 1]),
        (&[4, 6], &[8, 1], [1, 6, 4, 1]),
        (&[4, 6], &[12, 2], [1, 1, 24, 1]),
        (&[24], &[3], [1, 1, 24, 1]),
        (&[2, 4, 6], &[40, 8, 1], [1, 6, 4, 2]),
        (&[2, 4, 6], &[32, 8, 1], [1, 6, 8, 1]),
        (&[4, 6], &[26, 2], [1, 1, 6, 4]),
        // A plane that is no whole number of rows apart is walked, and so is a reversed dimension, or a
        // row that overlaps the next.
        (&[2, 4, 6], &[41, 8, 1], [2, 6, 4, 1]),
        (&[3, 4], &[-4, 1], [3, 4, 1, 1]),
        (&[4, 3], &[4, -1], [3, 1, 4, 1]),
        // Transposed: the longer dimension makes the rows.
        (&[6, 4], &[1, 6], [4, 1, 6, 1]),
        // Windows: by columns, where they are many times fewer.
        (&[100, 3], &[1, 1], [3, 1, 100, 1]),
        (&[6, 3], &[1, 1], [6, 3, 1, 1]),
    ];
    for (shape, strides, wanted) in cases {
        for item in [1, 4, 16] {
            let plan = CopyPlan::new(&layout(shape, strides, item), item).unwrap();
            let block = first(&plan);
            let calls = plan.calls() as u64;
            let made = [calls, block.width / item as u64, block.rows, block.planes];
            assert_eq!(made, wanted, "{shape:?} {strides:?}");
        }
    }
}

#[test]
fn a_repeated_dimension_is_taken_once_and_doubled() {
    // Shape, strides, and the calls.
    let cases: [(&[i64], &[i64], i64); 12] = [
        (&[2], &[0], 2),
        (&[3, 4], &[0, 1], 3),
        (&[4, 3], &[1, 0], 3),
        (&[1 << 20], &[0], 21),
        (&[(1 << 20) + 1], &[0], 22),
        (&[1000, 1 << 20], &[0, 0], 31),
        (&[1 << 20, 5], &[0, 1], 21),
        (&[5, 1 << 20], &[1, 0], 21),
        // Between others, and more than one: a call fills every row, or plane of rows, that is there.
        (&[3, 1000, 5], &[5, 0, 1], 11),
        (&[1000, 3, 1000, 5, 1000], &[0, 5, 0, 1, 0], 31),
        // What is reversed is walked once; what was copied is not.
        (&[3, 4, 1000], &[-4, 1, 0], 13),
        (&[1000, 3, 4], &[0, -4, 1], 13),
    ];
    for (shape, strides, wanted) in cases {
        for item in [1, 4, 16] {
            let plan = CopyPlan::new(&layout(shape, strides, item), item).unwrap();
            check_block(&plan);
            assert_eq!(plan.calls(), wanted, "{shape:?} {strides:?}");
        }
    }
}

#[test]
fn an_item_is_doubled_up_to_the_most_that_a_layout_may_have() {
    for (extent, calls) in [(1 << 62, 63), ((1 << 62) + 1, 64), (i64::MAX, 64)] {
        let plan = CopyPlan::new(&layout(&[extent], &[0], 1), 1).unwrap();
        assert_eq!(plan.calls(), calls);
        let copied: u64 = plan.blocks().map(|(block, calls)| block.width * calls as u64).sum();
        assert_eq!(copied, extent as u64);
    }
}

#[test]
fn a_pitch_that_cuda_does_not_take_is_walked() {
    for (stride, calls) in [(MAX_PITCH, 1), (MAX_PITCH + 1, 3), (-MAX_PITCH, 3)] {
        let plan = CopyPlan::new(&layout(&[3, 8], &[stride, 1], 1), 1).unwrap();
        assert_eq!(plan.calls(), calls);
        assert_eq!(first(&plan).width, 8);
    }
    // The copy's own rows may lie too far apart as well.
    for (repeats, rows) in [(MAX_PITCH, 1 << 30), (MAX_PITCH + 1, 1)] {
        let plan = CopyPlan::new(&layout(&[1 << 30, repeats], &[2, 0], 1), 1).unwrap();
        assert_eq!(first(&plan).rows, rows);
    }
    let huge = CopyPlan::new(&layout(&[2, 1 << 40], &[1 << 41, 1], 4), 4).unwrap();
    assert_eq!((huge.calls(), first(&huge).width), (2, 4 << 40));
}

#[test]
fn no_elements_need_no_call_and_the_first_error_ends_a_plan() {
    assert_eq!(CopyPlan::new(&layout(&[3, 0, 2], &[1, 1, 1], 4), 4), None);
    let plan = CopyPlan::new(&layout(&[5], &[-1], 4), 4).unwrap();
    let mut seen = 0;
    let error = plan.take(|_, _, _| {
        seen += 1;
        if seen == 3 { Err(Error::new(Kind::NullData, "a test")) } else { Ok(()) }
    });
    assert_eq!((seen, error.unwrap_err().kind()), (3, Kind::NullData));
}

#[test]
fn the_walk_ends_at_the_last_element_however_far_apart_they_are() {
    let layout = layout(&[2, 2], &[1 << 61, 1 << 62], 1);
    let mut found = Vec::new();
    CopyPlan::new(&layout, 1)
        .unwrap()
        .take(|_, source, target| {
            found.push((source, target));
            Ok(())
        })
        .unwrap();
    assert_eq!(found, [(0, 0), (1 << 62, 1), (1 << 61, 2), (3 << 61, 3)]);
}
