//! What crosses between the protocols: pointer, type, layout, device, read-only.
//!
//! Invariants, stated once: the pointer is 0 exactly where there are no elements; everything that
//! the layout reaches lies inside the 64-bit address space. The type and layout are DLPack's, lanes
//! kept, so that a view of our own goes back as it came; the CUDA Array Interface sees lanes as a
//! trailing dimension ([`Descriptor::cai_shape`]).

use crate::device::Device;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::{Dims, Layout, Reach};
use crate::stream::Ready;

/// An array, as both protocols can describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    ptr: u64,
    dtype: Dtype,
    layout: Layout,
    device: Device,
    readonly: bool,
}

impl Descriptor {
    /// Checks the pointer against what the layout reaches.
    #[inline]
    pub fn new(
        ptr: u64,
        dtype: Dtype,
        (layout, reach): (Layout, Reach),
        device: Device,
        readonly: bool,
    ) -> Result<Self> {
        if layout.size() == 0 {
            return Ok(Self { ptr: 0, dtype, layout, device, readonly });
        }
        if ptr == 0 {
            return Err(null(&layout));
        }
        let Reach { below, above } = reach;
        if ptr.checked_sub(below).is_none() || ptr.checked_add(above).is_none() {
            let got = format!("{below} bytes below and {above} above the pointer {ptr:#x}");
            return Err(Error::new(Kind::ExtentOverflow, got));
        }
        Ok(Self { ptr, dtype, layout, device, readonly })
    }

    /// The address of the first element, 0 where there is none.
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The element type.
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape and strides, in DLPack's elements.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the memory is.
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Whether nobody may write through it.
    pub const fn readonly(&self) -> bool {
        self.readonly
    }

    /// The same with `readonly` as the caller wants it: `None` keeps what the producer says.
    #[must_use]
    pub fn with_readonly(mut self, readonly: Option<bool>) -> Self {
        self.readonly = readonly.unwrap_or(self.readonly);
        self
    }

    /// The same memory under another of the names that reach it.
    #[must_use]
    pub fn on(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// What is pending on its memory, given what the producer says: nothing where there is none.
    pub const fn pending(&self, ready: Ready) -> Ready {
        if self.ptr == 0 { Ready::Nothing } else { ready }
    }

    /// The number of scalars: elements times lanes.
    pub fn cai_size(&self) -> i64 {
        self.layout.size() * i64::from(self.dtype.lanes())
    }

    /// The shape, with lanes as a trailing dimension.
    pub fn cai_shape(&self) -> Dims {
        let mut shape: Dims = self.layout.shape().iter().copied().collect();
        if self.dtype.lanes() > 1 {
            shape.push(i64::from(self.dtype.lanes()));
        }
        shape
    }

    /// The strides in bytes, with that of the lanes last. [`Layout`] has shown that they fit.
    pub fn cai_strides(&self) -> Dims {
        let element = self.dtype.element_size();
        let mut strides = Dims::new();
        for stride in self.layout.strides() {
            strides.push(stride * element);
        }
        if self.dtype.lanes() > 1 {
            strides.push(self.dtype.itemsize());
        }
        strides
    }
}

/// Why an array with elements needs a pointer.
#[cold]
pub fn null(layout: &Layout) -> Error {
    Error::new(Kind::NullData, format!("a NULL pointer for {} elements", layout.size()))
}
