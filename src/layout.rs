//! Shape and strides: elements in DLPack, bytes in the CUDA Array Interface.
//!
//! A [`Layout`] is checked once, here, and trusted below: no extent is negative, sizes and byte
//! strides fit in 63 bits, and strides are whole elements. It keeps what the producer said: size-1
//! dimensions are not normalised, negative and zero strides are legal.

use crate::error::{Error, Kind, Result};

/// The most dimensions that are taken; NumPy's own limit.
pub const MAX_NDIM: usize = 64;

const INLINE: usize = 6;

/// A short list of integers that needs no allocation up to six dimensions.
#[derive(Debug, Clone)]
pub enum Dims {
    /// Up to six.
    Inline(u8, [i64; INLINE]),
    /// More.
    Heap(Vec<i64>),
}

impl Dims {
    /// An empty list.
    pub const fn new() -> Self {
        Self::Inline(0, [0; INLINE])
    }

    /// A copy of `values`.
    pub fn from_slice(values: &[i64]) -> Self {
        if values.len() > INLINE {
            return Self::Heap(values.to_vec());
        }
        let mut dims = Self::new();
        for &value in values {
            dims.push(value);
        }
        dims
    }

    /// Adds `value` at the end.
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

    fn as_mut_slice(&mut self) -> &mut [i64] {
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
    size: i64,
    contiguous: bool,
    /// Bytes below and above the first element's address that the array reaches; (0, 0) when empty.
    reach: (i64, i64),
}

impl Layout {
    /// From DLPack: `strides` in elements of `element_size` bytes, `None` meaning C-contiguous.
    pub fn from_elements(shape: Dims, strides: Option<Dims>, element_size: i64) -> Result<Self> {
        let size = count(shape.as_slice(), element_size)?;
        let compact = compact(shape.as_slice());
        let strides = match strides {
            None => compact.clone(),
            Some(strides) if strides.as_slice().len() == shape.as_slice().len() => strides,
            Some(strides) => return Err(wrong_length(&strides, &shape)),
        };
        let contiguous =
            size == 0 || is_compact(shape.as_slice(), strides.as_slice(), compact.as_slice());
        let reach = reach(shape.as_slice(), strides.as_slice(), size, element_size)?;
        Ok(Self { shape, strides, size, contiguous, reach })
    }

    /// From the CUDA Array Interface: `strides` in bytes, `None` meaning C-contiguous.
    pub fn from_bytes(shape: Dims, strides: Option<Dims>, itemsize: i64) -> Result<Self> {
        let strides = match strides {
            None => None,
            Some(mut strides) => {
                for (axis, stride) in strides.as_mut_slice().iter_mut().enumerate() {
                    if *stride % itemsize != 0 {
                        let got = format!("{stride} bytes for items of {itemsize}");
                        return Err(Error::at(
                            Kind::StrideNotMultiple,
                            format!("strides[{axis}]"),
                            got,
                        ));
                    }
                    *stride /= itemsize;
                }
                Some(strides)
            }
        };
        Self::from_elements(shape, strides, itemsize)
    }

    /// The extents.
    pub fn shape(&self) -> &[i64] {
        self.shape.as_slice()
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        self.strides.as_slice()
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements.
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// Whether it is C-contiguous; an array without elements is.
    pub const fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Bytes below the first element's address, and bytes from it to the end of the last one, that
    /// the array reaches.
    pub const fn reach(&self) -> (i64, i64) {
        self.reach
    }
}

fn wrong_length(strides: &Dims, shape: &Dims) -> Error {
    let got =
        format!("{} strides for {} dimensions", strides.as_slice().len(), shape.as_slice().len());
    Error::new(Kind::StridesMalformed, got)
}

/// The number of elements; refuses what 63 bits do not count, zero-size shapes included.
fn count(shape: &[i64], element_size: i64) -> Result<i64> {
    if shape.len() > MAX_NDIM {
        return Err(Error::new(Kind::Ndim, shape.len().to_string()));
    }
    let mut bytes = element_size;
    let mut size = 1_i64;
    for (axis, &extent) in shape.iter().enumerate() {
        if extent < 0 {
            return Err(Error::at(
                Kind::ShapeNegative,
                format!("shape[{axis}]"),
                extent.to_string(),
            ));
        }
        bytes = bytes
            .checked_mul(extent.max(1))
            .ok_or_else(|| Error::new(Kind::ShapeOverflow, format!("{shape:?}")))?;
        size = size.wrapping_mul(extent);
    }
    Ok(size)
}

/// C-contiguous strides in elements; [`count`] has shown that the products fit.
fn compact(shape: &[i64]) -> Dims {
    let mut strides = Dims::from_slice(shape);
    let mut next = 1_i64;
    for stride in strides.as_mut_slice().iter_mut().rev() {
        let extent = *stride;
        *stride = next;
        next = next.wrapping_mul(extent.max(1));
    }
    strides
}

/// Whether `strides` describe the compact layout; the stride of a single element says nothing.
fn is_compact(shape: &[i64], strides: &[i64], compact: &[i64]) -> bool {
    shape
        .iter()
        .zip(strides.iter().zip(compact))
        .all(|(&extent, (stride, compact))| extent == 1 || stride == compact)
}

fn reach(shape: &[i64], strides: &[i64], size: i64, element_size: i64) -> Result<(i64, i64)> {
    let overflow = || {
        Error::new(
            Kind::ExtentOverflow,
            format!("{strides:?} (elements of {element_size} bytes) for shape {shape:?}"),
        )
    };
    let (mut below, mut above) = (0_i64, 0_i64);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let bytes = stride.checked_mul(element_size).ok_or_else(overflow)?;
        if size == 0 {
            continue;
        }
        let span = bytes.checked_mul(extent - 1).ok_or_else(overflow)?;
        if span < 0 {
            below =
                below.checked_add(span.checked_neg().ok_or_else(overflow)?).ok_or_else(overflow)?;
        } else {
            above = above.checked_add(span).ok_or_else(overflow)?;
        }
    }
    if size == 0 {
        return Ok((0, 0));
    }
    Ok((below, above.checked_add(element_size).ok_or_else(overflow)?))
}
