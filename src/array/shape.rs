//! Changes an array's description without copying its memory: writable or read-only, another shape, other strides.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{Array, ArrayMut};
use crate::descriptor::Descriptor;
use crate::device::MemoryKind;
use crate::error::{Error, Kind, Result};
use crate::layout::{Layout, Reach};
use crate::stream::Alive;

impl Array {
    /// Converts the array to a writable one over the same memory.
    ///
    /// # Errors
    ///
    /// [`NotWritable`](Kind::NotWritable): the array is read-only.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::Array) -> cai_bridge::Result<()> {
    /// let x: cai_bridge::ArrayMut = x.writable()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn writable(self) -> Result<ArrayMut> {
        if self.readonly() {
            return Err(Error::new(Kind::NotWritable, "read-only memory"));
        }
        Ok(ArrayMut(self))
    }

    /// Marks the array as read-only. Its clones stay as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::Array) {
    /// assert!(x.into_readonly().readonly());
    /// # }
    /// ```
    #[must_use]
    pub fn into_readonly(mut self) -> Self {
        self.descriptor = self.descriptor.with_readonly(Some(true));
        self
    }

    /// Returns an array over the same memory, with the same elements in another shape. This array must be C-contiguous.
    ///
    /// # Errors
    ///
    /// [`NotContiguous`](Kind::NotContiguous): the array is not C-contiguous. [`Reshape`](Kind::Reshape): `shape` has
    /// another number of elements. Other errors for an invalid shape.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, ErrorKind};
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let x: Array = Array::empty::<f32>(&stream, &[6])?.into();
    /// assert_eq!(x.reshape(&[2, 3])?.shape(), [2, 3]);
    /// assert_eq!(x.reshape(&[4]).unwrap_err().kind(), ErrorKind::Reshape);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn reshape(&self, shape: &[i64]) -> Result<Self> {
        if !self.is_contiguous() {
            return Err(Error::new(Kind::NotContiguous, format!("{:?}", self.strides())));
        }
        let layout = Layout::from_elements(shape, None, self.dtype().element_size())?;
        if layout.0.size() != self.descriptor.layout().size() {
            let got = format!("{shape:?} for {} elements", self.descriptor.layout().size());
            return Err(Error::new(Kind::Reshape, got));
        }
        self.described(self.ptr(), layout)
    }

    /// Returns an array over the same memory with another shape and other strides. Its first element lies `offset`
    /// elements after this array's first one in memory. `offset` and `strides` count elements and may be negative.
    /// Every element of the result must lie between this array's lowest and highest element; gaps between this array's
    /// elements may be used.
    ///
    /// # Errors
    ///
    /// [`Reshape`](Kind::Reshape): an element of the result would lie outside this array. [`SubByte`](Kind::SubByte):
    /// the elements are packed, and the result's first element would begin inside a byte. Other errors for an invalid
    /// shape or stride.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, ErrorKind};
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let x: Array = Array::from_host(&stream, &[1_u8, 2, 3, 4, 5], &[5])?.into();
    /// let every_other = x.strided(0, &[3], &[2])?;
    /// assert_eq!(every_other.to_vec::<u8>(&stream)?, [1, 3, 5]);
    /// let backwards = x.strided(4, &[5], &[-1])?;
    /// assert_eq!(backwards.to_vec::<u8>(&stream)?, [5, 4, 3, 2, 1]);
    /// assert_eq!(x.strided(1, &[3], &[2]).unwrap_err().kind(), ErrorKind::Reshape);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn strided(&self, offset: i64, shape: &[i64], strides: &[i64]) -> Result<Self> {
        let (dtype, own) = (self.dtype(), self.descriptor.layout());
        let layout = Layout::from_elements(shape, Some(strides), dtype.element_size())?;
        let outside = || {
            let got = format!("{shape:?} by {strides:?} from the element {offset} on");
            Error::new(Kind::Reshape, got)
        };
        // Compare elements, not bytes: packed elements share bytes.
        let reach = |layout: &Layout| layout.reach(1).ok_or_else(outside);
        let (own, new) = (reach(own)?, reach(&layout.0)?);
        let is_inside = i128::from(offset) - i128::from(new.below) >= -i128::from(own.below)
            && i128::from(offset) + i128::from(new.above) <= i128::from(own.above);
        if layout.0.size() == 0 {
            return self.described(0, layout);
        }
        if !is_inside {
            return Err(outside());
        }
        let bytes = dtype.byte_offset(offset).ok_or_else(|| {
            let got = format!("{dtype:?} from the element {offset} on, inside a byte");
            Error::new(Kind::SubByte, got)
        })?;
        self.described(self.ptr().wrapping_add_signed(bytes), layout)
    }

    pub(super) fn split_at(&self, axis: usize, at: i64) -> Result<(Self, Self)> {
        let (shape, strides) = (self.shape(), self.strides());
        let Some(extent) = shape.get(axis).copied().filter(|extent| (0..=*extent).contains(&at))
        else {
            let got = format!("{shape:?} to be split at {at} of the axis {axis}");
            return Err(Error::new(Kind::Reshape, got));
        };
        let part = |offset, count| {
            let mut shape = shape.to_vec();
            shape[axis] = count;
            self.strided(offset, &shape, strides)
        };
        // The product overflows only if the second part has no elements, and then `strided` ignores the offset.
        let start = at.wrapping_mul(strides[axis]);
        Ok((part(0, at)?, part(start, extent - at)?))
    }

    fn described(&self, ptr: u64, layout: (Layout, Reach)) -> Result<Self> {
        let (device, readonly) = (self.device(), self.readonly());
        let descriptor = Descriptor::new(ptr, self.dtype(), layout, device, readonly)?;
        Ok(Self { descriptor, origin: Arc::clone(&self.origin) })
    }
}

impl Array {
    /// Fails if the array is in device memory of another GPU than the stream `to`. Accepts all managed and pinned
    /// memory.
    pub(super) fn check_device(&self, to: Alive<'_>) -> Result<()> {
        let (device, ordinal) = (self.device(), to.place().ordinal);
        if device.kind != MemoryKind::Device || device.id == ordinal {
            return Ok(());
        }
        let stream = to.stream();
        let got = format!("{stream} of device {ordinal} for an array on device {}", device.id);
        Err(Error::new(Kind::StreamDevice, got))
    }
}

impl Deref for ArrayMut {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.0
    }
}

impl ArrayMut {
    /// Like [`Array::reshape`], but consumes the array, so that the result is not a second writable array of the
    /// memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::reshape`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::ArrayMut) -> cai_bridge::Result<()> {
    /// let x: cai_bridge::ArrayMut = x.reshape(&[2, 3])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reshape(self, shape: &[i64]) -> Result<Self> {
        self.0.reshape(shape).map(Self)
    }

    /// Like [`Array::strided`], but consumes the array, so that the result is not a second writable array of the
    /// memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::strided`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::ArrayMut) -> cai_bridge::Result<()> {
    /// let every_other: cai_bridge::ArrayMut = x.strided(0, &[3], &[2])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn strided(self, offset: i64, shape: &[i64], strides: &[i64]) -> Result<Self> {
        self.0.strided(offset, shape, strides).map(Self)
    }

    /// Converts the array to a read-only one, like [`Array::into_readonly`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(x: cai_bridge::ArrayMut) {
    /// let x: cai_bridge::Array = x.into_readonly();
    /// # }
    /// ```
    #[must_use]
    pub fn into_readonly(self) -> Array {
        self.0.into_readonly()
    }
}

impl From<ArrayMut> for Array {
    fn from(array: ArrayMut) -> Self {
        array.0
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readonly = if self.readonly() { ", read-only" } else { "" };
        write!(f, "Array({:?} {:?}", self.dtype(), self.shape())?;
        if !self.is_contiguous() {
            write!(f, " by {:?}", self.strides())?;
        }
        write!(f, " at {:#x} on {:?}{readonly})", self.ptr(), self.device())
    }
}

impl fmt::Debug for ArrayMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrayMut({:?})", self.0)
    }
}
