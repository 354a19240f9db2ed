//! The description that crosses between the protocols: pointer, type, layout, device, read-only.
//!
//! For every descriptor that was made without an error, the pointer is 0 if and only if there are no elements, and all
//! bytes that the layout reaches lie inside the 64-bit address space.
//!
//! The *CAI array* is the same array in the terms of the CUDA Array Interface. Several lanes of a type that both
//! protocols have are its last dimension. An array that only the CUDA Array Interface can express is held as an array
//! of bytes, with one more dimension for the bytes of an item.

use std::slice;

use crate::device::Device;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::{Dims, Layout, Reach};
use crate::stream::Ready;

/// The description of an array: pointer, element type, layout, device, and whether it is read-only.
///
/// # Examples
///
/// ```
/// use cai_bridge::layout::Layout;
/// use cai_bridge::{Descriptor, Device, Dtype};
///
/// let pairs = Dtype::from_dlpack(2, 32, 2)?; // float2, which the CUDA Array Interface has as a dimension
/// let layout = Layout::from_elements(&[4], None, pairs.element_size())?;
/// let array = Descriptor::new(0x7f00_0000, pairs, layout, Device::cuda(0), true)?;
/// assert_eq!((array.layout().shape(), array.dtype(), array.device()), (&[4][..], pairs, Device::cuda(0)));
/// assert_eq!((array.cai_shape().as_slice(), array.cai_strides().as_slice()), (&[4, 2][..], &[8, 4][..]));
/// assert_eq!(array.cai_extents().zip(array.cai_steps()).last(), Some((2, 4))); // the same without a list
/// assert_eq!((array.cai_size(), array.cai_itemsize(), array.nbytes()), (8, 4, 32));
/// assert_eq!((array.ptr(), array.span(), array.readonly()), (0x7f00_0000, (0x7f00_0000, 32), true));
/// assert!(array.is_aligned(16) && array.check_aligned(16).is_err(), "its lanes are 4 bytes apart");
/// assert!(!array.with_readonly(Some(false)).on(Device::cuda(1)).readonly());
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    ptr: u64,
    dtype: Dtype,
    layout: Layout,
    device: Device,
    readonly: bool,
}

impl Descriptor {
    pub(crate) const EMPTY: Self = Self {
        ptr: 0,
        dtype: Dtype::FIRST,
        layout: Layout::EMPTY,
        device: Device::cuda(0),
        readonly: false,
    };

    /// An array whose first element is at `ptr`. [`Layout::from_elements`], [`Layout::from_bytes`] or
    /// [`cai::Fields::decode`](crate::cai::Fields::decode) make the layout and its reach. For an array without elements
    /// `ptr` is ignored, and [`Self::ptr`] is 0.
    ///
    /// # Errors
    ///
    /// A reach that differs from the reach of `layout` with elements of `dtype`'s size, a negative device number, NULL
    /// for an array with elements, or an array that reaches out of the address space.
    #[inline]
    pub fn new(
        ptr: u64,
        dtype: Dtype,
        (layout, reach): (Layout, Reach),
        device: Device,
        readonly: bool,
    ) -> Result<Self> {
        if layout.reach(dtype.element_size()) != Some(reach) {
            return Err(other_size(dtype, &layout, reach));
        }
        device.check()?;
        let mut array = Self { ptr, dtype, layout, device, readonly };
        array.check(reach)?;
        Ok(array)
    }

    /// Sets everything but the layout, which must be set before and have the reach `reach`. Does not check the device's
    /// number.
    #[inline(always)]
    pub(crate) fn set(
        &mut self,
        ptr: u64,
        dtype: Dtype,
        reach: Reach,
        device: Device,
        readonly: bool,
    ) -> Result<()> {
        (self.ptr, self.dtype, self.device, self.readonly) = (ptr, dtype, device, readonly);
        self.check(reach)
    }

    #[inline(always)]
    fn check(&mut self, reach: Reach) -> Result<()> {
        if self.layout.size() == 0 {
            self.ptr = 0;
            return Ok(());
        }
        if self.ptr == 0 {
            return Err(null(&self.layout));
        }
        let Reach { below, above } = reach;
        if self.ptr < below || self.ptr.checked_add(above).is_none() {
            return Err(self.too_far(reach));
        }
        Ok(())
    }

    #[cold]
    fn too_far(&self, Reach { below, above }: Reach) -> Error {
        let got = format!("{below} bytes below and {above} above the pointer {:#x}", self.ptr);
        Error::new(Kind::ExtentOverflow, got)
    }

    /// Whether the first element's address is a multiple of `bytes`, a power of two.
    #[inline(always)]
    pub const fn is_aligned(&self, bytes: u64) -> bool {
        self.ptr & (bytes - 1) == 0
    }

    /// Fails if an item of the CAI array is at an address that is not a multiple of `bytes`, a power of two. A kernel
    /// that loads such an item as a whole fails with `CUDA_ERROR_MISALIGNED_ADDRESS`, and all later CUDA work of the
    /// process fails too.
    #[cold]
    pub fn check_aligned(&self, bytes: u64) -> Result<()> {
        let refused =
            |got: String| format!("{got} for items that a GPU reads at multiples of {bytes}");
        if !self.is_aligned(bytes) {
            return Err(Error::new(Kind::Misaligned, refused(format!("{:#x}", self.ptr))));
        }
        let used = self.cai_extents().zip(self.cai_steps()).enumerate();
        for (axis, (extent, step)) in used {
            if extent > 1 && self.ptr != 0 && !step.unsigned_abs().is_multiple_of(bytes) {
                let got = refused(format!("{step} bytes"));
                return Err(Error::at(Kind::Misaligned, format!("strides[{axis}]"), got));
            }
        }
        Ok(())
    }

    /// If a change makes the layout reach other bytes, call [`Self::set`] afterwards.
    pub(crate) const fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    /// The address of the first element; 0 if there are none.
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The element type.
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape and strides, in elements of [`Self::dtype`].
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The array's device.
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Whether the memory must not be written through this array.
    pub const fn readonly(&self) -> bool {
        self.readonly
    }

    /// Returns the descriptor with its read-only flag replaced. `None` keeps the flag.
    #[must_use]
    pub const fn with_readonly(mut self, readonly: Option<bool>) -> Self {
        self.set_readonly(readonly);
        self
    }

    pub(crate) const fn set_readonly(&mut self, readonly: Option<bool>) {
        if let Some(readonly) = readonly {
            self.readonly = readonly;
        }
    }

    /// The new device must be able to access the memory.
    #[cfg(feature = "python")]
    pub(crate) const fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// Whether the bytes of [`Self::span`] include some of the `length` bytes from `start`.
    pub fn overlaps(&self, start: u64, length: u64) -> bool {
        let (own, long) = self.span();
        start < own.saturating_add(long) && start.saturating_add(length) > own
    }

    /// The lowest address of the elements' bytes, and the number of bytes from this address to the end of the highest
    /// element, gaps included. (0, 0) without elements.
    pub fn span(&self) -> (u64, u64) {
        if self.ptr == 0 {
            return (0, 0);
        }
        if self.layout.is_contiguous() {
            return (self.ptr, self.dtype.bytes_of(self.layout.size().unsigned_abs()));
        }
        let (mut before, mut after) = (0_u64, 1_u64);
        for (extent, stride) in self.layout.shape().iter().zip(self.layout.strides()) {
            let elements = (extent - 1).unsigned_abs().saturating_mul(stride.unsigned_abs());
            let side = if *stride < 0 { &mut before } else { &mut after };
            *side = side.saturating_add(elements);
        }
        let (below, above) = (self.dtype.bytes_of(before), self.dtype.bytes_of(after));
        (self.ptr.saturating_sub(below), below.saturating_add(above))
    }

    /// Replaces the element type. `dtype` must have the same element size as the old type.
    #[cfg(feature = "python")]
    #[must_use]
    pub(crate) fn of(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Returns the descriptor with another device, which must be able to access the memory. The device's number is not
    /// checked.
    #[must_use]
    pub fn on(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Returns `ready` for an array with elements, and [`Ready::Nothing`] for an array without elements.
    #[doc(hidden)]
    pub const fn pending(&self, ready: Ready) -> Ready {
        if self.ptr == 0 { Ready::Nothing } else { ready }
    }

    /// The number of items of the CAI array ([`Self::cai_itemsize`] says what an item is).
    pub fn cai_size(&self) -> i64 {
        let size = self.layout.size();
        match self.dtype {
            dtype if dtype.is_shared() => size * i64::from(dtype.lanes()),
            dtype if dtype.is_cais_alone() => size / self.cai_itemsize(),
            _ => size,
        }
    }

    /// The size in bytes of one item of the CAI array. If both protocols have the type, an item is one lane; if only
    /// DLPack has it, a whole element. If only the CUDA Array Interface can express the array, the size is the layout's
    /// last extent.
    pub fn cai_itemsize(&self) -> i64 {
        match self.dtype {
            dtype if dtype.is_shared() => dtype.itemsize(),
            dtype if dtype.is_cais_alone() => self.layout.shape().last().map_or(1, |size| *size),
            dtype => dtype.element_size(),
        }
    }

    /// The size in bytes of all elements with all their lanes, without the gaps between elements. Packed elements count
    /// in bits, and the sum is rounded up to whole bytes.
    pub fn nbytes(&self) -> i64 {
        let bytes = self.dtype.bytes_of(self.layout.size().unsigned_abs());
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// The shape of the CAI array. If both protocols have the type and it has several lanes, the lanes are the last
    /// dimension. If only the CUDA Array Interface can express the array, the layout's last dimension, the bytes of an
    /// item, is left out.
    pub fn cai_shape(&self) -> Dims {
        self.cai_extents().collect()
    }

    /// The strides of the CAI array in bytes, one for each extent of [`Self::cai_shape`].
    pub fn cai_strides(&self) -> Dims {
        self.cai_steps().collect()
    }

    /// The extents of [`Self::cai_shape`], one by one.
    #[inline]
    pub fn cai_extents(&self) -> CaiDims<'_> {
        let lanes = self.dtype.lanes();
        let last = self.has_lanes().then_some(i64::from(lanes));
        CaiDims { values: self.of_items(self.layout.shape()).iter(), factor: 1, last }
    }

    const fn has_lanes(&self) -> bool {
        self.dtype.is_shared() && self.dtype.lanes() > 1
    }

    /// The strides of [`Self::cai_strides`], one by one.
    #[inline]
    pub fn cai_steps(&self) -> CaiDims<'_> {
        let factor = self.dtype.element_size();
        let last = self.has_lanes().then_some(self.dtype.itemsize());
        CaiDims { values: self.of_items(self.layout.strides()).iter(), factor, last }
    }

    #[inline]
    fn of_items<'a>(&self, dims: &'a [i64]) -> &'a [i64] {
        match dims.split_last() {
            Some((_, dims)) if self.dtype.is_cais_alone() => dims,
            _ => dims,
        }
    }
}

/// An iterator over the extents, or over the strides, of an array in the terms of the CUDA Array Interface.
///
/// # Examples
///
/// ```
/// fn rows(array: &cai_bridge::Descriptor) -> Option<i64> {
///     array.cai_extents().chain(array.cai_steps()).next()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CaiDims<'a> {
    values: slice::Iter<'a, i64>,
    factor: i64,
    /// The value for the dimension of the lanes, until it is returned. `None` if the CAI array has no such dimension.
    last: Option<i64>,
}

impl Iterator for CaiDims<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        self.values.next().map(|value| value * self.factor).or_else(|| self.last.take())
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.values.len() + usize::from(self.last.is_some());
        (count, Some(count))
    }
}

impl ExactSizeIterator for CaiDims<'_> {}

#[cold]
fn other_size(dtype: Dtype, layout: &Layout, Reach { below, above }: Reach) -> Error {
    let got = format!(
        "elements of {} bytes ({dtype:?}) with shape {:?} and strides {:?} that reach {below} bytes below and {above} above",
        dtype.element_size(),
        layout.shape(),
        layout.strides(),
    );
    Error::new(Kind::ItemSize, got)
}

#[doc(hidden)]
#[cold]
pub fn null(layout: &Layout) -> Error {
    Error::new(Kind::NullData, format!("a NULL pointer for {} elements", layout.size()))
}
