//! Fuzzes shapes, strides and copy plans against arithmetic that cannot overflow.

use std::cell::{Cell, RefCell};

use cai_bridge::copy_plan::{Block, CopyPlan, MAX_PITCH};
use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dtype::Dtype;
use cai_bridge::error::{Kind, Result};
use cai_bridge::layout::{Layout, MAX_NDIM, Reach};

use super::choices::Bytes;

const MOST: i128 = i64::MAX as i128;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let item = bytes.pick(&[1, 2, 4, 8, 16]);
    let lanes =
        if bytes.byte() < 200 { 1 } else { i64::from(u16::from_le_bytes(bytes.take())).max(1) };
    let ptr = bytes.address();
    let shape = bytes.ints();
    let strides = if bytes.flag() { None } else { Some(strides(&mut bytes, shape.len())) };
    let made = Layout::from_elements(&shape, strides.as_deref(), item * lanes);
    check(&made, &shape, strides.as_deref(), item * lanes);
    in_bytes(&mut bytes, &shape, strides.as_deref(), item);
    sizeless(bytes.int().min(0), &shape, strides.as_deref());
    if let Ok(made) = made {
        copied(&made.0, item * lanes);
        placed(ptr, made, item, u16::try_from(lanes).unwrap());
    }
}

/// Strides, usually as many as there are dimensions.
pub fn strides(bytes: &mut Bytes<'_>, ndim: usize) -> Vec<i64> {
    if bytes.byte() == 255 { bytes.ints() } else { (0..ndim).map(|_| bytes.int()).collect() }
}

/// Every reason to refuse the array. The error must name one of them.
pub fn reasons(shape: &[i64], strides: Option<&[i64]>, size: i64) -> Vec<Kind> {
    if shape.len() > MAX_NDIM {
        return vec![Kind::Ndim];
    }
    if strides.is_some_and(|strides| strides.len() != shape.len()) {
        return vec![Kind::StridesMalformed];
    }
    let mut reasons = Vec::new();
    if shape.iter().any(|extent| *extent < 0) {
        reasons.push(Kind::ShapeNegative);
    }
    let bytes = |sum: i128, extent: &i64| sum.saturating_mul(i128::from(*extent).max(1));
    if shape.iter().fold(i128::from(size), bytes) > MOST {
        reasons.push(Kind::ShapeOverflow);
    }
    let strides = strides.map(|strides| as_said(shape, strides, |stride| fits(stride, size)));
    let strides = strides.as_deref();
    if strides.unwrap_or_default().iter().any(|stride| !fits(*stride, size)) {
        reasons.push(Kind::ExtentOverflow);
    } else if !shape.contains(&0) && strides.is_some() {
        let (below, above) = reach(shape, strides.unwrap(), size);
        if below > MOST || above > MOST {
            reasons.push(Kind::ExtentOverflow);
        }
    }
    reasons
}

/// Whether the stride in bytes fits in an `i64`.
fn fits(stride: i64, size: i64) -> bool {
    i64::try_from(i128::from(stride) * i128::from(size)).is_ok()
}

/// Whether a step along the axis leads to another element.
fn is_used(shape: &[i64], axis: usize) -> bool {
    shape[axis] > 1 && !shape.contains(&0)
}

/// The strides, with compact strides in place of unused ones that are not `good`.
fn as_said(shape: &[i64], strides: &[i64], good: impl Fn(i64) -> bool) -> Vec<i64> {
    let mend = |(axis, stride): (usize, &i64)| {
        let inner = shape[axis + 1..].iter().map(|extent| i128::from((*extent).max(1)));
        let compact = inner.fold(1_i128, |size, extent| size.saturating_mul(extent));
        match i64::try_from(compact) {
            Ok(compact) if !is_used(shape, axis) && !good(*stride) => compact,
            _ => *stride,
        }
    };
    strides.iter().enumerate().map(mend).collect()
}

/// The bytes below the first element's address, and the bytes from there on.
fn reach(shape: &[i64], strides: &[i64], size: i64) -> (i128, i128) {
    let (mut below, mut above) = (0_i128, i128::from(size));
    for (extent, stride) in shape.iter().zip(strides) {
        let last = i128::from(*stride) * i128::from(size) * (i128::from(*extent) - 1);
        let side = if last < 0 { &mut below } else { &mut above };
        *side = side.saturating_add(last.saturating_abs());
    }
    (below, above)
}

/// The strides of a compact array.
pub fn compact(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

fn check(made: &Result<(Layout, Reach)>, shape: &[i64], strides: Option<&[i64]>, size: i64) {
    let reasons = reasons(shape, strides, size);
    let (layout, reached) = match made {
        Err(error) => return assert!(reasons.contains(&error.kind()), "{error} of {reasons:?}"),
        Ok(made) => made,
    };
    assert_eq!(reasons, [], "{layout:?}");
    let compact = compact(shape);
    let strides = strides.map(|strides| as_said(shape, strides, |stride| fits(stride, size)));
    let strides = strides.as_deref().unwrap_or(&compact);
    let elements: i128 = shape.iter().map(|extent| i128::from(*extent)).product();
    assert_eq!((layout.shape(), layout.strides()), (shape, strides));
    assert_eq!((usize::from(layout.ndim()), i128::from(layout.size())), (shape.len(), elements));
    let even = |axis: usize| shape[axis] == 1 || strides[axis] == compact[axis];
    assert_eq!(layout.is_contiguous(), elements == 0 || (0..shape.len()).all(even));
    let expected = if elements == 0 { (0, 0) } else { self::reach(shape, strides, size) };
    assert_eq!((i128::from(reached.below), i128::from(reached.above)), expected);
}

/// Checks that strides in bytes give the same layout as strides in elements, or that odd ones are refused.
fn in_bytes(bytes: &mut Bytes<'_>, shape: &[i64], strides: Option<&[i64]>, item: i64) {
    let odd = i64::from(bytes.byte().saturating_sub(240));
    let steps: Option<Vec<i64>> = strides.map(|strides| {
        strides.iter().map(|stride| stride.wrapping_mul(item).wrapping_add(odd)).collect()
    });
    let read = Layout::from_bytes(shape, steps.as_deref(), item);
    match steps {
        Some(steps)
            if (0..steps.len()).any(|axis| {
                steps[axis] % item != 0 && shape.get(axis).is_some_and(|_| is_used(shape, axis))
            }) =>
        {
            assert_eq!(read.unwrap_err().kind(), Kind::StrideNotMultiple);
        }
        // An unused stride may have any value.
        Some(steps) if steps.iter().any(|step| step % item != 0) => {
            let even = |stride: &i64| if stride % item == 0 { stride / item } else { 0 };
            let strides: Vec<i64> = steps.iter().map(even).collect();
            let alike = Layout::from_elements(shape, Some(&strides), item);
            let told = |made: Result<(Layout, Reach)>| {
                made.map(|(layout, reach)| (layout.size(), layout.is_contiguous(), reach)).ok()
            };
            assert_eq!(told(read), told(alike));
        }
        steps => {
            let strides =
                steps.map(|steps| steps.iter().map(|step| step / item).collect::<Vec<_>>());
            assert_eq!(read, Layout::from_elements(shape, strides.as_deref(), item));
        }
    }
}

/// Checks that an item size of 0 or less is refused.
fn sizeless(size: i64, shape: &[i64], strides: Option<&[i64]>) {
    for made in [Layout::from_bytes, Layout::from_elements] {
        assert_eq!(made(shape, strides, size).unwrap_err().kind(), Kind::ItemSize);
    }
}

/// Checks that a descriptor's array lies within the address space.
fn placed(ptr: u64, (layout, reach): (Layout, Reach), item: i64, lanes: u16) {
    let dtype = Dtype::all().find(|dtype| dtype.itemsize() == item).unwrap();
    let dtype = Dtype::from_dlpack(dtype.code(), dtype.bits(), lanes).unwrap();
    let (size, below, above) = (layout.size(), i128::from(reach.below), i128::from(reach.above));
    let at = i128::from(ptr);
    let far = Reach { above: reach.above.wrapping_add(1), ..reach };
    let apart = Descriptor::new(ptr, dtype, (layout.clone(), far), Device::cuda(0), false);
    assert_eq!(apart.unwrap_err().kind(), Kind::ItemSize);
    match Descriptor::new(ptr, dtype, (layout, reach), Device::cuda(0), false) {
        Ok(array) => {
            assert_eq!(array.ptr(), if size == 0 { 0 } else { ptr });
            assert!(size == 0 || (ptr > 0 && at >= below && at + above <= i128::from(u64::MAX)));
            assert_eq!(array.cai_size(), array.cai_shape().as_slice().iter().product::<i64>());
            // The dict's shape and strides reach just as far, with lanes.
            let strides = array.cai_strides();
            let read =
                Layout::from_bytes(array.cai_shape().as_slice(), Some(strides.as_slice()), item);
            match read {
                Ok((seen, far)) => assert!(far == reach && seen.size() == array.cai_size()),
                Err(error) => assert_eq!(
                    (error.kind(), array.layout().ndim(), lanes > 1),
                    (Kind::Ndim, 64, true)
                ),
            }
        }
        Err(error) if ptr == 0 => assert!(size > 0 && error.kind() == Kind::NullData),
        Err(error) => {
            assert_eq!(error.kind(), Kind::ExtentOverflow);
            assert!(at < below || at + above > i128::from(u64::MAX));
        }
    }
}

/// Checks that a plan copies every element once, to its place in a compact array.
fn copied(layout: &Layout, size: i64) {
    let Some(plan) = CopyPlan::new(layout, size) else { return assert_eq!(layout.size(), 0) };
    let mut all = 0;
    for (block, calls) in plan.blocks() {
        let rows = i128::from(block.rows) * i128::from(block.planes);
        all += i128::from(block.width) * rows * i128::from(calls);
        for pitch in [block.source, block.target].into_iter().filter(|_| block.rows > 1) {
            assert!((block.width..=MAX_PITCH.unsigned_abs()).contains(&pitch.row), "{plan:?}");
            assert!(pitch.plane >= block.rows, "{plan:?}");
        }
    }
    assert_eq!(all, i128::from(layout.size()) * i128::from(size), "{plan:?} of {layout:?}");
    if layout.size() > 4096 {
        return;
    }
    // For each element of the copy, the distance in bytes from the array's first element to the element that was copied
    // there.
    let made = RefCell::new(vec![None; usize::try_from(layout.size()).unwrap()]);
    let calls = Cell::new(0);
    let copy = |block: Block, target: i64, of: &dyn Fn(i128) -> Option<i128>, source: i64| {
        calls.set(calls.get() + 1);
        for (from, to) in block.offsets() {
            for at in (0..block.width).step_by(usize::try_from(size).unwrap()) {
                let from = of(i128::from(source) + i128::from(from) + i128::from(at));
                let to = (i128::from(target) + i128::from(to) + i128::from(at)) / i128::from(size);
                let old = made.borrow_mut()[usize::try_from(to).unwrap()].replace(from.unwrap());
                assert_eq!(old, None, "{plan:?}");
            }
        }
        Ok(())
    };
    plan.take(|block, source, target| copy(block, target, &Some, source)).unwrap();
    let inside = |at| made.borrow()[usize::try_from(at / i128::from(size)).unwrap()];
    plan.repeat(|block, source, target| copy(block, target, &inside, source)).unwrap();
    assert_eq!(calls.get(), plan.calls());
    let mut index = vec![0; layout.shape().len()];
    for from in made.into_inner() {
        let place = |(at, stride): (&i64, &i64)| i128::from(*at) * i128::from(*stride);
        let expected: i128 = index.iter().zip(layout.strides()).map(place).sum();
        assert_eq!(from, Some(expected * i128::from(size)), "{plan:?}");
        for (at, extent) in index.iter_mut().zip(layout.shape()).rev() {
            *at += 1;
            if *at < *extent {
                break;
            }
            *at = 0;
        }
    }
}
