//! Shape and strides: elements in DLPack, bytes in the CUDA Array Interface.
//!
//! A [`Layout`] is checked once, here, and trusted by all other modules. No extent is negative, sizes and byte strides
//! fit in an `i64`, and strides are whole elements. A layout keeps the producer's strides as they are, negative and
//! zero strides too. In an axis of one element, or in an array without elements, any stride is legal. If such a stride
//! cannot be expressed, it becomes that of a C-contiguous array.
//!
//! ```
//! use cai_bridge::layout::Layout;
//!
//! // Strides in elements, as DLPack has them, or in bytes, as the CUDA Array Interface has them.
//! let (columns, reach) = Layout::from_elements(&[2, 3], Some(&[1, 2]), 4)?;
//! assert_eq!(columns, Layout::from_bytes(&[2, 3], Some(&[4, 8]), 4)?.0);
//! assert!(!columns.is_contiguous() && columns.is_compact());
//! assert_eq!((columns.size(), reach.above), (6, 24));
//!
//! let (backwards, reach) = Layout::from_elements(&[3], Some(&[-1]), 4)?;
//! assert_eq!((backwards.strides(), reach.below, reach.above), (&[-1][..], 8, 4));
//!
//! assert!(Layout::from_bytes(&[2], Some(&[3]), 2).is_err(), "no whole elements");
//! # Ok::<(), cai_bridge::Error>(())
//! ```

mod lists;

pub use self::lists::Dims;
use self::lists::Lists;
use crate::error::{Error, Kind, Result};

/// The highest number of dimensions that the bridge accepts. NumPy 2 has the same limit.
///
/// # Examples
///
/// See [`Layout`].
pub const MAX_NDIM: usize = 64;

/// A checked shape with its strides, in elements.
///
/// # Examples
///
/// ```
/// use cai_bridge::layout::{Layout, MAX_NDIM};
///
/// let (rows, _) = Layout::from_elements(&[2, 3], None, 8)?;
/// assert_eq!((rows.shape(), rows.strides(), rows.ndim()), (&[2, 3][..], &[3, 1][..], 2));
/// let (twice, _) = Layout::from_elements(&[4, 2], Some(&[0, 1]), 8)?;
/// assert!(rows.is_without_overlap() && !twice.is_without_overlap());
/// let (columns, _) = Layout::from_bytes(&[2, 3], Some(&[8, 16]), 8)?;
/// assert!(rows.is_contiguous() && columns.is_compact() && !columns.is_contiguous());
/// let (mut row, _) = Layout::from_elements(&[1, 3], Some(&[7, 1]), 8)?; // with one row the first stride is unused
/// assert!(row.has_odd_unused() && row.is_contiguous());
/// row.compact_unused();
/// assert_eq!(row.strides(), [3, 1]);
/// assert!(Layout::from_elements(&[1; MAX_NDIM + 1], None, 8).is_err());
/// assert_eq!(Layout::EMPTY.size(), 0);
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Layout {
    lists: Lists,
    contiguous: bool,
    size: i64,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.lists.both() == other.lists.both()
    }
}

impl Eq for Layout {}

/// How many bytes an array reaches below its first element's address, and how many from there on. Both numbers are 0
/// for an array without elements.
///
/// # Examples
///
/// ```
/// use cai_bridge::layout::{Layout, Reach};
///
/// let (_, reach) = Layout::from_bytes(&[2, 2], Some(&[-16, 4]), 4)?;
/// assert_eq!(reach, Reach { below: 16, above: 8 });
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The number of bytes below the first element's address.
    pub below: u64,
    /// The number of bytes from the first element's address on.
    pub above: u64,
}

impl Layout {
    /// A placeholder until the layout of an array is known: no dimensions, and size 0. An array without dimensions has
    /// size 1.
    pub const EMPTY: Self = Self { lists: Lists::EMPTY, contiguous: true, size: 0 };

    /// A layout in DLPack's terms: `strides` counts elements of `element_size` bytes; `None` means C-contiguous.
    ///
    /// # Errors
    ///
    /// An element size below 1, a negative extent, more than [`MAX_NDIM`] dimensions, a different number of strides
    /// than extents, or an array whose size or reach in bytes does not fit in 63 bits. For the size, an empty dimension
    /// counts as 1.
    #[inline]
    pub fn from_elements(
        shape: &[i64],
        strides: Option<&[i64]>,
        element_size: i64,
    ) -> Result<(Self, Reach)> {
        let mut layout = Self::EMPTY;
        let reach = layout.set_elements(shape, strides, element_size)?;
        Ok((layout, reach))
    }

    /// After an error the layout is unusable.
    #[inline(always)]
    pub(crate) fn set_elements(
        &mut self,
        shape: &[i64],
        strides: Option<&[i64]>,
        element_size: i64,
    ) -> Result<Reach> {
        check_counts(shape, strides, element_size)?;
        self.fill(shape, strides, element_size)
    }

    /// `None` if the reach, a byte stride or the size in bytes overflows.
    pub(crate) fn reach(&self, element_size: i64) -> Option<Reach> {
        let (shape, strides) = self.lists.both();
        let mut walk = Walk::new(element_size);
        shape.iter().zip(strides).rev().for_each(|(extent, stride)| walk.step(*extent, *stride));
        walk.reach()
    }

    /// `strides` must have as many entries as `shape`. After an error the layout is unusable.
    #[inline(always)]
    fn fill(&mut self, shape: &[i64], strides: Option<&[i64]>, element_size: i64) -> Result<Reach> {
        let mut walk = Walk::new(element_size);
        self.lists = Lists::zeros(shape.len());
        let (extents, written) = self.lists.both_mut();
        let to = extents.iter_mut().zip(written).zip(shape).enumerate();
        for (axis, ((extent_to, stride_to), extent)) in to.rev() {
            let stride = strides.map_or(walk.compact, |strides| strides[axis]);
            walk.step(*extent, stride);
            (*extent_to, *stride_to) = (*extent, stride);
        }
        let Some(reach) = walk.reach() else {
            return match strides.and_then(|strides| used(shape, strides, element_size)) {
                Some(used) => self.fill(shape, Some(used.as_slice()), element_size),
                None => Err(why(shape, strides, element_size)),
            };
        };
        self.contiguous = walk.contiguous || walk.size == 0;
        self.size = walk.size;
        Ok(reach)
    }

    /// A layout in CAI's terms: `strides` counts bytes; `None` means C-contiguous.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::from_elements`], or a used stride that is not a whole number of items. Strides are unused
    /// in axes of one element and in arrays without elements.
    pub fn from_bytes(
        shape: &[i64],
        strides: Option<&[i64]>,
        itemsize: i64,
    ) -> Result<(Self, Reach)> {
        let mut layout = Self::EMPTY;
        let reach = layout.set_bytes(shape, strides, itemsize)?;
        Ok((layout, reach))
    }

    /// After an error the layout is unusable.
    #[inline]
    pub(crate) fn set_bytes(
        &mut self,
        shape: &[i64],
        strides: Option<&[i64]>,
        itemsize: i64,
    ) -> Result<Reach> {
        let Some(strides) = strides else { return self.set_elements(shape, None, itemsize) };
        check_size(itemsize)?;
        let mut elements = Dims::new();
        for (axis, stride) in strides.iter().enumerate() {
            elements.push(match stride % itemsize {
                0 => stride / itemsize,
                _ if is_used(shape, axis) => return Err(not_multiple(axis, *stride, itemsize)),
                _ => compact(shape, axis),
            });
        }
        self.set_elements(shape, Some(elements.as_slice()), itemsize)
    }

    /// Describes the array by single bytes, with one more axis for the bytes of an item. After an error the layout is
    /// unusable.
    pub(crate) fn set_items(
        &mut self,
        shape: &[i64],
        strides: Option<&[i64]>,
        itemsize: i64,
    ) -> Result<Reach> {
        check_counts(shape, strides, itemsize)?;
        // Check the shape by itself first, so that an error in the shape does not name the strides.
        self.fill(shape, None, itemsize)?;
        let with = |dims: &[i64], last| dims.iter().copied().chain([last]).collect::<Dims>();
        let strides = strides.map(|strides| with(strides, 1));
        self.fill(with(shape, itemsize).as_slice(), strides.as_ref().map(Dims::as_slice), 1)
    }

    /// The extents, in elements.
    pub fn shape(&self) -> &[i64] {
        self.lists.both().0
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        self.lists.both().1
    }

    /// The number of dimensions: at most [`MAX_NDIM`], or one more for a layout of an array's bytes.
    pub fn ndim(&self) -> u8 {
        u8::try_from(self.shape().len()).unwrap_or(u8::MAX)
    }

    /// The number of elements.
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// Whether the array is compact in some order of its axes: no gaps, no repeated elements, no negative strides. The
    /// strides of axes with one element do not count. An array without elements is compact.
    pub fn is_compact(&self) -> bool {
        let (shape, strides) = self.lists.both();
        let mut axes: Vec<_> =
            shape.iter().zip(strides).filter(|(extent, _)| **extent > 1).collect();
        axes.sort_unstable_by_key(|(_, stride)| **stride);
        let mut next = 1;
        self.contiguous
            || axes.into_iter().all(|(extent, stride)| {
                let follows = *stride == next;
                next = next.wrapping_mul(*extent);
                follows
            })
    }

    /// Whether an unused stride differs from a C-contiguous array's. Strides are unused in axes of one element and in
    /// arrays without elements. Such a stride changes nothing, but some consumers refuse it.
    pub fn has_odd_unused(&self) -> bool {
        let (shape, strides) = self.lists.both();
        let odd = |axis| !is_used(shape, axis) && strides[axis] != compact(shape, axis);
        (0..shape.len()).any(odd)
    }

    /// Sets the strides of the axes that [`Self::has_odd_unused`] finds to those of a C-contiguous array.
    pub fn compact_unused(&mut self) {
        let (shape, strides) = self.lists.both_mut();
        for (axis, stride) in strides.iter_mut().enumerate() {
            if !is_used(shape, axis) {
                *stride = compact(shape, axis);
            }
        }
    }

    /// True only if no element is repeated: each stride, whatever its sign, steps over everything that the axes with
    /// smaller strides reach. False does not prove that an element is repeated.
    pub fn is_without_overlap(&self) -> bool {
        let (shape, strides) = self.lists.both();
        let used = shape.iter().zip(strides).filter(|(extent, _)| **extent > 1);
        let mut axes: Vec<_> =
            used.map(|(extent, stride)| (stride.unsigned_abs(), extent - 1)).collect();
        axes.sort_unstable();
        let mut reached = 0_u64;
        self.size == 0
            || axes.into_iter().all(|(stride, steps)| {
                let over = stride > reached;
                // Neither operation wraps around: the array lies in the address space.
                reached = reached.wrapping_add(stride.wrapping_mul(steps.unsigned_abs()));
                over
            })
    }

    /// Whether the array is C-contiguous. The strides of axes with one element do not count. An array without elements
    /// is C-contiguous.
    pub const fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

#[inline(always)]
fn check_counts(shape: &[i64], strides: Option<&[i64]>, element_size: i64) -> Result<()> {
    check_size(element_size)?;
    if shape.len() > MAX_NDIM {
        return Err(Error::new(Kind::Ndim, shape.len().to_string()));
    }
    match strides {
        Some(strides) if strides.len() != shape.len() => {
            Err(count_of_strides(strides.len(), shape.len()))
        }
        _ => Ok(()),
    }
}

#[inline(always)]
fn check_size(size: i64) -> Result<()> {
    if size >= 1 { Ok(()) } else { Err(no_size(size)) }
}

#[cold]
fn no_size(size: i64) -> Error {
    Error::new(Kind::ItemSize, size.to_string())
}

/// One pass over the dimensions, last to first. Overflows are checked once, at the end.
struct Walk {
    element_size: i64,
    size: i64,
    /// The size in bytes of a compact array of the dimensions so far. An empty dimension counts as 1.
    bytes: i64,
    /// The next axis's stride in a C-contiguous array, in elements.
    compact: i64,
    contiguous: bool,
    /// The bytes reached below the first element, as a negative number or 0.
    below: i64,
    above: i64,
    /// An extent is negative, or the size or a byte stride overflows.
    wrong: bool,
    /// Whether the reach overflows, which matters only if there are elements.
    overflow: bool,
}

impl Walk {
    const fn new(element_size: i64) -> Self {
        Self {
            element_size,
            size: 1,
            bytes: element_size,
            compact: 1,
            contiguous: true,
            below: 0,
            above: element_size,
            wrong: false,
            overflow: false,
        }
    }

    #[inline(always)]
    fn step(&mut self, extent: i64, stride: i64) {
        let count = extent.max(1);
        let (bytes, large) = self.bytes.overflowing_mul(count);
        self.wrong |= extent < 0 || large;
        if stride == self.compact && self.above == self.bytes {
            self.above = bytes;
        } else {
            self.contiguous &= extent == 1 || stride == self.compact;
            self.reach_by(count, stride);
        }
        // If a product overflows, the layout is `wrong`: an extent is negative, or `bytes` (no smaller) overflows.
        self.compact = self.compact.wrapping_mul(count);
        self.size = self.size.wrapping_mul(extent);
        self.bytes = bytes;
    }

    fn reach_by(&mut self, count: i64, stride: i64) {
        // A byte stride that overflows is wrong in an empty array as well. `Layout::fill` replaces it if it is unused.
        let (step, far) = stride.overflowing_mul(self.element_size);
        self.wrong |= far;
        let (span, long) = step.overflowing_mul(count - 1);
        let (above, high) = self.above.overflowing_add(span.max(0));
        let (below, low) = self.below.overflowing_add(span.min(0));
        self.overflow |= long || high || low || below == i64::MIN;
        (self.above, self.below) = (above, below);
    }

    /// `None` if the layout is `wrong`. If the layout has elements, also `None` if the reach overflows.
    #[inline(always)]
    const fn reach(&self) -> Option<Reach> {
        match (self.wrong, self.size, self.overflow) {
            (true, ..) => None,
            (_, 0, _) => Some(Reach { below: 0, above: 0 }),
            (_, _, true) => None,
            _ => Some(Reach { below: self.below.unsigned_abs(), above: self.above.unsigned_abs() }),
        }
    }
}

/// Whether a step along the axis reaches an element. If not, the axis may have any stride.
fn is_used(shape: &[i64], axis: usize) -> bool {
    shape.get(axis).is_some_and(|&extent| extent > 1) && !shape.contains(&0)
}

/// The axis's stride in a C-contiguous array, in elements. An empty dimension counts as 1. Wraps on overflow.
fn compact(shape: &[i64], axis: usize) -> i64 {
    let inner = shape.iter().skip(axis + 1);
    inner.fold(1_i64, |size, extent| size.wrapping_mul((*extent).max(1)))
}

/// Replaces unused strides that overflow in bytes by those of a C-contiguous array. `None` if nothing is replaced.
#[cold]
fn used(shape: &[i64], strides: &[i64], element_size: i64) -> Option<Dims> {
    let wrong = |axis: usize| {
        !is_used(shape, axis)
            && strides[axis].checked_mul(element_size).is_none()
            && compact(shape, axis).checked_mul(element_size).is_some()
    };
    let axes = 0..strides.len();
    let mend = |axis| if wrong(axis) { compact(shape, axis) } else { strides[axis] };
    axes.clone().any(wrong).then(|| axes.map(mend).collect())
}

#[cold]
fn why(shape: &[i64], strides: Option<&[i64]>, element_size: i64) -> Error {
    let mut bytes = element_size;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        if extent < 0 {
            return negative(axis, extent);
        }
        if let Some(stride) = strides.map(|strides| strides[axis])
            && stride.checked_mul(element_size).is_none()
        {
            return too_far(shape, stride, element_size);
        }
        match bytes.checked_mul(extent.max(1)) {
            Some(more) => bytes = more,
            None => return Error::new(Kind::ShapeOverflow, format!("{shape:?}")),
        }
    }
    let strides = strides.unwrap_or_default();
    let got = format!("{strides:?} (in elements of {element_size} bytes) for shape {shape:?}");
    Error::new(Kind::ExtentOverflow, got)
}

#[cold]
#[doc(hidden)]
pub fn count_of_strides(strides: usize, ndim: usize) -> Error {
    Error::new(Kind::StridesMalformed, format!("{strides} strides for {ndim} dimensions"))
}

#[cold]
fn not_multiple(axis: usize, stride: i64, itemsize: i64) -> Error {
    let got = format!("{stride} bytes for items of {itemsize}");
    Error::at(Kind::StrideNotMultiple, format!("strides[{axis}]"), got)
}

fn negative(axis: usize, extent: i64) -> Error {
    Error::at(Kind::ShapeNegative, format!("shape[{axis}]"), extent.to_string())
}

fn too_far(shape: &[i64], stride: i64, element_size: i64) -> Error {
    let got = format!("{stride} (in elements of {element_size} bytes) for shape {shape:?}");
    Error::new(Kind::ExtentOverflow, got)
}
