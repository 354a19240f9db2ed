//! A tensor's fields as plain values, without C structures and without dependencies.

use crate::descriptor::{Descriptor, null};
use crate::device::Device;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::{Layout, MAX_NDIM};

/// The fields of a `DLTensor`, with the version and two flags of the managed tensor around it.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    /// `data`: the address before `byte_offset` is added.
    pub data: u64,
    /// `device`: type and id.
    pub device: (u32, i32),
    /// `dtype`: code, bits and lanes.
    pub dtype: (u8, u8, u16),
    /// `shape`, of `ndim` extents.
    pub shape: &'a [i64],
    /// `strides` in elements; `None` for NULL.
    pub strides: Option<&'a [i64]>,
    /// `byte_offset`.
    pub byte_offset: u64,
    /// `version`: major and minor; `None` for the legacy structure.
    pub version: Option<(u32, u32)>,
    /// Whether the flag `READ_ONLY` is set.
    pub readonly: bool,
    /// Whether the flag `IS_SUBBYTE_TYPE_PADDED` is set.
    pub padded: bool,
}

/// The major version of the structures that this crate reads and makes.
pub(super) const MAJOR: u32 = 1;

impl<'a> Fields<'a> {
    /// The fields that describe `array` in a tensor of DLPack 1.3. Strides are explicit, and `byte_offset` is 0.
    ///
    /// # Examples
    ///
    /// See [`dlpack`](crate::dlpack).
    pub fn of(array: &'a Descriptor) -> Self {
        let (device, dtype, layout) = (array.device(), array.dtype(), array.layout());
        Self {
            data: array.ptr(),
            device: (device.kind.code(), device.id),
            dtype: (dtype.code(), dtype.bits(), dtype.lanes()),
            shape: layout.shape(),
            strides: Some(layout.strides()),
            byte_offset: 0,
            version: Some((MAJOR, 3)),
            readonly: array.readonly(),
            padded: dtype.is_padded(),
        }
    }

    /// Checks the fields, and makes a descriptor of them.
    ///
    /// # Errors
    ///
    /// A malformed field, such as a major version other than 1, memory that CUDA cannot reach, strides that leave the
    /// address space, or an unexpected NULL.
    ///
    /// # Examples
    ///
    /// See [`dlpack`](crate::dlpack).
    pub fn decode(&self) -> Result<Descriptor> {
        if let Some((major, minor)) = self.version {
            check_major(major, minor)?;
        }
        let (device, dtype) = named(self.device, self.dtype, self.padded)?;
        check_ndim(i64::try_from(self.shape.len()).unwrap_or(i64::MAX), dtype)?;
        let mut array = Descriptor::EMPTY;
        self.put(&mut array, device, dtype)?;
        Ok(array)
    }

    /// Does not check the number of dimensions or the major version. After an error `array` is unusable.
    #[inline(always)]
    pub(super) fn put(&self, array: &mut Descriptor, device: Device, dtype: Dtype) -> Result<()> {
        let must_be_there = |(_, minor)| minor >= 2 && !self.shape.is_empty();
        if self.strides.is_none() && self.version.is_some_and(must_be_there) {
            let got = format!("NULL for {} dimensions", self.shape.len());
            return Err(Error::new(Kind::NullStrides, got));
        }
        let size = dtype.element_size();
        let reach = array.layout_mut().set_elements(self.shape, self.strides, size)?;
        let ptr = self.address(array.layout())?;
        array.set(ptr, dtype, reach, device, self.readonly)
    }

    /// 0 if there are no elements.
    #[inline(always)]
    fn address(&self, layout: &Layout) -> Result<u64> {
        let (base, offset) = (self.data, self.byte_offset);
        if layout.size() == 0 {
            return Ok(0);
        }
        if base == 0 {
            return Err(null(layout));
        }
        base.checked_add(offset).ok_or_else(|| {
            Error::new(Kind::ByteOffset, format!("{offset} after the pointer {base:#x}"))
        })
    }
}

#[inline(always)]
pub(super) fn named(
    (kind, id): (u32, i32),
    (code, bits, lanes): (u8, u8, u16),
    padded: bool,
) -> Result<(Device, Dtype)> {
    let device = Device::from_dlpack(kind, id)?;
    Ok((device, Dtype::of_dlpack(code, bits, lanes)?.with_padding(padded)))
}

#[inline(always)]
pub(super) fn check_major(major: u32, minor: u32) -> Result<()> {
    if major == MAJOR {
        return Ok(());
    }
    Err(Error::new(Kind::DlpackVersion, format!("{major}.{minor}")))
}

/// Several lanes count as one more dimension, since CAI has lanes as the last dimension of the shape.
#[inline(always)]
pub(super) fn check_ndim(ndim: i64, dtype: Dtype) -> Result<usize> {
    let most = MAX_NDIM - usize::from(dtype.lanes() > 1);
    usize::try_from(ndim).ok().filter(|&ndim| ndim <= most).ok_or_else(|| {
        let lanes = if dtype.lanes() > 1 { " and lanes" } else { "" };
        Error::new(Kind::Ndim, format!("{ndim}{lanes}"))
    })
}
