//! How to copy a strided array into a C-contiguous one, the *copy*.
//!
//! One CUDA call copies a *block*: a run of bytes, rows with a pitch, or planes of such rows. The dimensions outside
//! the block are *walked*: the plan copies a block at each of their positions. From a dimension of stride 0, the plan
//! copies only the first item, and then repeats the item within the copy.

use crate::error::Result;
use crate::layout::Layout;

/// The largest pitch in bytes that GPUs report as `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
pub const MAX_PITCH: i64 = i32::MAX as i64;

/// Rows of a single element are preferred to longer runs only if they need fewer calls by more than this factor.
const FEWER: i64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pitch {
    /// Bytes from one row to the next.
    pub row: u64,
    /// Rows from one plane to the next.
    pub plane: u64,
}

/// What one call copies: `planes` planes of `rows` rows of `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub width: u64,
    pub rows: u64,
    pub planes: u64,
    pub source: Pitch,
    pub target: Pitch,
}

impl Block {
    /// For each row, its distance in bytes from the first row, in the source and in the target.
    pub fn offsets(self) -> impl Iterator<Item = (u64, u64)> {
        let at = |pitch: Pitch, plane: u64, row: u64| (plane * pitch.plane + row) * pitch.row;
        (0..self.planes).flat_map(move |plane| {
            (0..self.rows)
                .map(move |row| (at(self.source, plane, row), at(self.target, plane, row)))
        })
    }
}

/// A dimension, with the bytes from one item to the next in the source and in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    extent: i64,
    source: i64,
    target: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Blocks {
    block: Block,
    /// The offset in bytes, from the copy's first byte, to which the first block is copied.
    target: i64,
    /// Outermost first.
    walked: Vec<Axis>,
}

/// Offsets and counts do not overflow: [`Layout`] has checked the array's size and reach in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlan {
    taken: Blocks,
    /// The steps that fill dimensions of stride 0 within the copy, in order.
    repeated: Vec<Blocks>,
}

impl CopyPlan {
    /// `element_size`, in bytes, must be the size that `layout` was checked with. Returns `None` if there are no
    /// elements.
    pub fn new(layout: &Layout, element_size: i64) -> Option<Self> {
        if layout.size() == 0 {
            return None;
        }
        let axes = merged(layout, element_size);
        let (repeats, axes): (Vec<Axis>, _) = axes.into_iter().partition(|axis| axis.source == 0);
        // Fill inner dimensions of stride 0 before outer ones: an item of an outer dimension contains the inner ones.
        let repeated = repeats.iter().rev().flat_map(|axis| doubled(*axis, &axes)).collect();
        Some(Self { taken: Blocks::taken(&together(axes), element_size), repeated })
    }

    pub fn calls(&self) -> i64 {
        self.blocks().map(|(_, calls)| calls).sum()
    }

    pub fn blocks(&self) -> impl Iterator<Item = (Block, i64)> {
        let all = std::iter::once(&self.taken).chain(&self.repeated);
        all.map(|blocks| (blocks.block, blocks.calls()))
    }

    /// Calls `copy` for each block of the array, until a call fails. The offsets are in bytes, from the array's first
    /// element and from the copy's first byte.
    pub fn take(&self, copy: impl FnMut(Block, i64, i64) -> Result<()>) -> Result<()> {
        self.taken.each(copy)
    }

    /// Call this after [`Self::take`]. Both offsets are in bytes from the copy's first byte.
    pub fn repeat(&self, mut copy: impl FnMut(Block, i64, i64) -> Result<()>) -> Result<()> {
        self.repeated.iter().try_for_each(|blocks| blocks.each(&mut copy))
    }
}

impl Blocks {
    fn taken(axes: &[Axis], element_size: i64) -> Self {
        let single = Self::of_rows(axes, element_size);
        let runs = |last: &Axis| last.source == element_size && last.target == element_size;
        let Some((last, outer)) = axes.split_last().filter(|(last, _)| runs(last)) else {
            return single;
        };
        let runs = Self::of_rows(outer, element_size * last.extent);
        if single.calls() < runs.calls() / FEWER { single } else { runs }
    }

    /// Chooses at most two of `axes` as the rows, of `width` bytes, and the planes of the block. A pitch must be
    /// positive and at least as wide as a row (`CUDA_MEMCPY3D` in CUDA's driver API).
    fn of_rows(axes: &[Axis], width: i64) -> Self {
        let (mut best, mut most) = ((None, None), 1);
        for (at, row) in axes.iter().enumerate() {
            if !(width..=MAX_PITCH).contains(&row.source) || row.target > MAX_PITCH {
                continue;
            }
            if row.extent > most {
                (best, most) = ((None, Some(at)), row.extent);
            }
            // In the copy only a dimension further out steps by whole rows, so only such a dimension can be the planes.
            for (further, plane) in axes.iter().enumerate().take(at) {
                let apart = plane.source / row.source;
                let fits = plane.source % row.source == 0 && apart >= row.extent;
                if fits && row.extent * plane.extent > most {
                    (best, most) = ((Some(further), Some(at)), row.extent * plane.extent);
                }
            }
        }
        let (plane, row) = best;
        let walked = axes.iter().enumerate();
        let walked = walked.filter(|(at, _)| Some(*at) != plane && Some(*at) != row);
        let pick = |at: Option<usize>| at.and_then(|at| axes.get(at).copied());
        Self {
            block: block(width, pick(row), pick(plane)),
            target: 0,
            walked: walked.map(|(_, axis)| *axis).collect(),
        }
    }

    fn calls(&self) -> i64 {
        self.walked.iter().map(|axis| axis.extent).product()
    }

    fn each(&self, mut copy: impl FnMut(Block, i64, i64) -> Result<()>) -> Result<()> {
        let mut index = vec![0; self.walked.len()];
        let (mut source, mut target) = (0, self.target);
        loop {
            copy(self.block, source, target)?;
            let mut turned = true;
            for (at, axis) in index.iter_mut().zip(&self.walked).rev() {
                *at += 1;
                turned = *at == axis.extent;
                if !turned {
                    source += axis.source;
                    target += axis.target;
                    break;
                }
                // Go back from the last item. The offset one step past the last item may overflow.
                source -= axis.source * (axis.extent - 1);
                target -= axis.target * (axis.extent - 1);
                *at = 0;
            }
            if turned {
                return Ok(());
            }
        }
    }
}

/// The steps that fill the dimension `repeat` from its first item. Each step but the last doubles the filled items.
fn doubled(repeat: Axis, axes: &[Axis]) -> impl Iterator<Item = Blocks> {
    let outer = axes.iter().filter(|axis| axis.target > repeat.target);
    let outer = together(outer.map(|axis| Axis { source: axis.target, ..*axis }).collect());
    let filled = std::iter::successors(Some(1_i64), |filled| filled.checked_mul(2));
    filled.take_while(move |filled| *filled < repeat.extent).map(move |filled| {
        let more = filled.min(repeat.extent - filled);
        let blocks = Blocks::of_rows(&outer, more * repeat.target);
        Blocks { target: filled * repeat.target, ..blocks }
    })
}

/// The array's dimensions of extent above 1, outermost first and merged by [`together`], with strides in bytes.
fn merged(layout: &Layout, element_size: i64) -> Vec<Axis> {
    let mut compact = element_size;
    let mut axes = Vec::with_capacity(layout.shape().len());
    for (&extent, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
        if extent > 1 {
            axes.push(Axis { extent, source: stride * element_size, target: compact });
        }
        compact *= extent;
    }
    axes.reverse();
    together(axes)
}

/// Merges neighbouring axes if, in the source and in the target, one outer step is as long as all inner steps together.
fn together(axes: Vec<Axis>) -> Vec<Axis> {
    let mut made: Vec<Axis> = Vec::with_capacity(axes.len());
    for inner in axes {
        let all = |step: i64| step.checked_mul(inner.extent);
        match made.last_mut() {
            Some(outer)
                if all(inner.source) == Some(outer.source)
                    && all(inner.target) == Some(outer.target) =>
            {
                *outer = Axis { extent: outer.extent * inner.extent, ..inner };
            }
            _ => made.push(inner),
        }
    }
    made
}

fn block(width: i64, row: Option<Axis>, plane: Option<Axis>) -> Block {
    let apart = |row: Option<i64>, plane: Option<i64>, rows: i64| {
        let row = row.unwrap_or(width);
        let plane = plane.map_or(rows, |plane| plane / row);
        Pitch { row: row.unsigned_abs(), plane: plane.unsigned_abs() }
    };
    let extent = |axis: Option<Axis>| axis.map_or(1, |axis| axis.extent);
    let rows = extent(row);
    Block {
        width: width.unsigned_abs(),
        rows: rows.unsigned_abs(),
        planes: extent(plane).unsigned_abs(),
        source: apart(row.map(|axis| axis.source), plane.map(|axis| axis.source), rows),
        target: apart(row.map(|axis| axis.target), plane.map(|axis| axis.target), rows),
    }
}
