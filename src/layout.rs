//! Shape and strides: elements in DLPack, bytes in the CUDA Array Interface.
//!
//! A [`Layout`] is checked once, here, and trusted below: no extent is negative, sizes and byte
//! strides fit in 63 bits, and strides are whole elements. It keeps what the producer said: size-1
//! dimensions are not normalised, negative and zero strides are legal.

use crate::error::{Error, Kind, Result};

/// The most dimensions that are taken; NumPy's own limit.
pub const MAX_NDIM: usize = 64;

/// How many dimensions need no allocation. Views are moved a few times on their way to Python, so
/// room that is seldom used costs each of them.
const INLINE: usize = 4;

/// A short list of integers.
#[derive(Debug, Clone)]
pub enum Dims {
    /// Up to four.
    Inline(u8, [i64; INLINE]),
    /// More.
    Heap(Vec<i64>),
}

impl Dims {
    /// An empty list.
    pub const fn new() -> Self {
        Self::Inline(0, [0; INLINE])
    }

    /// As many zeros.
    fn zeros(count: usize) -> Self {
        match u8::try_from(count) {
            Ok(short) if count <= INLINE => Self::Inline(short, [0; INLINE]),
            _ => Self::Heap(vec![0; count]),
        }
    }

    /// Adds `value` at the end.
    #[inline]
    pub fn push(&mut self, value: i64) {
        match self {
            Self::Heap(values) => values.push(value),
            Self::Inline(len, values) => {
                if let Some(slot) = values.get_mut(usize::from(*len)) {
                    *slot = value;
                    *len += 1;
                } else {
                    let mut heap = values.to_vec();
                    heap.push(value);
                    *self = Self::Heap(heap);
                }
            }
        }
    }

    /// The values.
    pub fn as_slice(&self) -> &[i64] {
        match self {
            Self::Inline(len, values) => values.get(..usize::from(*len)).unwrap_or(&[]),
            Self::Heap(values) => values,
        }
    }

    /// The values, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [i64] {
        match self {
            Self::Inline(len, values) => values.get_mut(..usize::from(*len)).unwrap_or(&mut []),
            Self::Heap(values) => values,
        }
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<i64> for Dims {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        let mut dims = Self::new();
        values.into_iter().for_each(|value| dims.push(value));
        dims
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Dims {}

/// A checked shape with its strides, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    contiguous: bool,
    size: i64,
}

/// The bytes that an array reaches: below the first element's address, and from it to the end of
/// the last element. (0, 0) where there are no elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Bytes below.
    pub below: u64,
    /// Bytes from the first element's address on.
    pub above: u64,
}

impl Layout {
    /// From DLPack: `strides` in elements of `element_size` bytes, `None` meaning C-contiguous.
    #[inline]
    pub fn from_elements(
        shape: &[i64],
        strides: Option<&[i64]>,
        element_size: i64,
    ) -> Result<(Self, Reach)> {
        if shape.len() > MAX_NDIM {
            return Err(Error::new(Kind::Ndim, shape.len().to_string()));
        }
        if let Some(strides) = strides.filter(|strides| strides.len() != shape.len()) {
            return Err(count_of_strides(strides.len(), shape.len()));
        }
        let mut walk = Walk::new(element_size);
        let mut lists = [Dims::zeros(shape.len()), Dims::zeros(shape.len())];
        let [extents, written] = lists.each_mut().map(Dims::as_mut_slice);
        extents.copy_from_slice(shape);
        for axis in (0..shape.len()).rev() {
            let stride = strides.map(|strides| strides[axis]);
            written[axis] = walk.step(shape, axis, stride)?;
        }
        let reach = walk.reach(shape, strides)?;
        let contiguous = walk.contiguous || walk.size == 0;
        let [shape, strides] = lists;
        Ok((Self { shape, strides, contiguous, size: walk.size }, reach))
    }

    /// From the CUDA Array Interface: `strides` in bytes, `None` meaning C-contiguous.
    #[inline]
    pub fn from_bytes(
        shape: &[i64],
        strides: Option<Dims>,
        itemsize: i64,
    ) -> Result<(Self, Reach)> {
        let Some(mut strides) = strides else {
            return Self::from_elements(shape, None, itemsize);
        };
        for (axis, stride) in strides.as_mut_slice().iter_mut().enumerate() {
            if *stride % itemsize != 0 {
                let got = format!("{stride} bytes for items of {itemsize}");
                return Err(Error::at(Kind::StrideNotMultiple, format!("strides[{axis}]"), got));
            }
            *stride /= itemsize;
        }
        Self::from_elements(shape, Some(strides.as_slice()), itemsize)
    }

    /// The extents.
    pub fn shape(&self) -> &[i64] {
        self.shape.as_slice()
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        self.strides.as_slice()
    }

    /// The number of dimensions, [`MAX_NDIM`] at most.
    pub fn ndim(&self) -> u8 {
        u8::try_from(self.shape().len()).unwrap_or(u8::MAX)
    }

    /// The number of elements.
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// Whether it is C-contiguous; an array without elements is.
    pub const fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

/// One pass over the dimensions, the last first.
struct Walk {
    element_size: i64,
    size: i64,
    /// The bytes of a compact array of the dimensions seen, empty ones counted as 1.
    bytes: i64,
    /// The stride that a compact array has next.
    compact: i64,
    contiguous: bool,
    below: i64,
    above: i64,
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
            overflow: false,
        }
    }

    /// Takes the next dimension and returns its stride.
    #[inline]
    fn step(&mut self, shape: &[i64], axis: usize, stride: Option<i64>) -> Result<i64> {
        let extent = shape[axis];
        if extent < 0 {
            return Err(negative(axis, extent));
        }
        let stride = stride.unwrap_or(self.compact);
        self.contiguous &= extent == 1 || stride == self.compact;
        // A byte stride that overflows could not be shown to anybody, so it counts in empty arrays too.
        let Some(step) = stride.checked_mul(self.element_size) else {
            return Err(too_far(shape, stride, self.element_size));
        };
        match step.checked_mul(extent.max(1) - 1) {
            Some(span) if span < 0 => self.grow_below(span),
            Some(span) => match self.above.checked_add(span) {
                Some(above) => self.above = above,
                None => self.overflow = true,
            },
            None => self.overflow = true,
        }
        let Some(bytes) = self.bytes.checked_mul(extent.max(1)) else {
            return Err(Error::new(Kind::ShapeOverflow, format!("{shape:?}")));
        };
        self.bytes = bytes;
        // No overflow: neither is larger than `bytes`.
        self.compact *= extent.max(1);
        self.size *= extent;
        Ok(stride)
    }

    fn grow_below(&mut self, span: i64) {
        match span.checked_neg().and_then(|span| self.below.checked_add(span)) {
            Some(below) => self.below = below,
            None => self.overflow = true,
        }
    }

    #[inline]
    fn reach(&self, shape: &[i64], strides: Option<&[i64]>) -> Result<Reach> {
        if self.size == 0 {
            return Ok(Reach { below: 0, above: 0 });
        }
        if self.overflow {
            return Err(Error::new(
                Kind::ExtentOverflow,
                format!(
                    "{:?} (in elements of {} bytes) for shape {shape:?}",
                    strides.unwrap_or_default(),
                    self.element_size
                ),
            ));
        }
        Ok(Reach { below: self.below.unsigned_abs(), above: self.above.unsigned_abs() })
    }
}

/// The refusal of `strides` strides for an array of `ndim` dimensions.
#[cold]
pub fn count_of_strides(strides: usize, ndim: usize) -> Error {
    Error::new(Kind::StridesMalformed, format!("{strides} strides for {ndim} dimensions"))
}

#[cold]
fn negative(axis: usize, extent: i64) -> Error {
    Error::at(Kind::ShapeNegative, format!("shape[{axis}]"), extent.to_string())
}

#[cold]
fn too_far(shape: &[i64], stride: i64, element_size: i64) -> Error {
    let got = format!("{stride} (in elements of {element_size} bytes) for shape {shape:?}");
    Error::new(Kind::ExtentOverflow, got)
}
