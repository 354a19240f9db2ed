//! Reads C structures into descriptors. The descriptor's pointer includes `byte_offset`.
//!
//! Memory that CUDA cannot reach is an error, and so is a major version other than 1. NULL strides are accepted in
//! legacy tensors, in versions before 1.2, and in tensors without dimensions.
#![allow(unsafe_code)]

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use dlpark::{DlpackFlags, Managed};

use super::fields::{self, Fields};
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

/// The version and the flags of a managed tensor.
///
/// # Examples
///
/// ```
/// use cai_bridge::dlpack::decode::{Header, descriptor};
/// use cai_bridge::dlpark::ffi::DLTensor;
/// use cai_bridge::{Descriptor, Error};
///
/// /// # Safety
/// ///
/// /// Its shape and strides are NULL or `ndim` integers.
/// unsafe fn bare(tensor: &DLTensor) -> Result<Descriptor, Error> {
///     // SAFETY: the caller vouches for the tensor.
///     unsafe { descriptor(tensor, Header::LEGACY) }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version; `None` for a legacy tensor.
    pub version: Option<DLPackVersion>,
    /// The flags; empty for a legacy tensor.
    pub flags: DlpackFlags,
}

impl Header {
    /// The header of a legacy tensor.
    pub const LEGACY: Self = Self { version: None, flags: DlpackFlags::empty() };
}

/// Fails unless the major version is 1. Make this check first: for a structure of another major version, only the
/// version may be read and the deleter called.
///
/// # Examples
///
/// ```
/// use cai_bridge::dlpack::decode::check_version;
/// use cai_bridge::dlpark::ffi::DLPackVersion;
///
/// check_version(DLPackVersion { major: 1, minor: 3 })?;
/// assert!(check_version(DLPackVersion { major: 2, minor: 0 }).is_err());
/// # Ok::<(), cai_bridge::Error>(())
/// ```
pub fn check_version(version: DLPackVersion) -> Result<()> {
    fields::check_major(version.major, version.minor)
}

/// Reads a legacy managed tensor.
///
/// # Examples
///
/// ```
/// use cai_bridge::dlpack::decode;
/// use cai_bridge::dlpark::ffi::DLManagedTensor;
/// use cai_bridge::{Descriptor, Error};
///
/// /// # Safety
/// ///
/// /// `tensor` is NULL or points to an initialised tensor.
/// unsafe fn taken(tensor: *const DLManagedTensor) -> Option<Result<Descriptor, Error>> {
///     // SAFETY: the caller vouches for the tensor.
///     (!tensor.is_null()).then(|| unsafe { decode::legacy(tensor) })
/// }
/// ```
///
/// # Safety
///
/// - `managed` points to an initialised `DLManagedTensor` that stays alive during the call;
/// - if `ndim` is positive, `shape` and `strides` are each NULL or point to `ndim` integers, which nothing changes
///   during the call.
pub unsafe fn legacy(managed: *const DLManagedTensor) -> Result<Descriptor> {
    // SAFETY: the caller promises that the structure is initialised and lives during the call.
    let tensor = unsafe { &(*managed).dl_tensor };
    // SAFETY: the caller promises that shape and strides are as `descriptor` requires.
    unsafe { descriptor(tensor, Header::LEGACY) }.map_err(|error| explained(error, tensor))
}

/// Returns a clearer error if `tensor` looks like a versioned tensor in a capsule with the legacy name, else `error`. A
/// versioned tensor begins with its version (1.x), where a legacy tensor has its data pointer.
#[cold]
fn explained(error: Error, tensor: &DLTensor) -> Error {
    let first = tensor.data as u64;
    let (major, minor) = (first & 0xFFFF_FFFF, first >> 32);
    if error.kind() != Kind::DeviceKind || major != 1 || minor > 0xFF {
        return error;
    }
    let got = format!("a versioned structure ({major}.{minor}) in a capsule named 'dltensor'");
    Error::new(Kind::CapsuleName, got)
}

/// Fails for a tensor that is marked as a copy: the producer would not see writes to a copy.
#[doc(hidden)]
pub fn check_own(flags: DlpackFlags) -> Result<()> {
    if flags.contains(DlpackFlags::IS_COPIED) {
        return Err(Error::new(Kind::Copied, "IS_COPIED"));
    }
    Ok(())
}

/// Reads a versioned managed tensor, with its flags.
///
/// # Examples
///
/// ```
/// use cai_bridge::dlpack::decode;
/// use cai_bridge::dlpark::ffi::DLManagedTensorVersioned;
/// use cai_bridge::{Descriptor, Error};
///
/// /// # Safety
/// ///
/// /// `tensor` points to an initialised tensor.
/// unsafe fn taken(tensor: *const DLManagedTensorVersioned) -> Result<Descriptor, Error> {
///     // SAFETY: the caller vouches for the tensor.
///     unsafe { decode::versioned(tensor) }.map(|(array, _flags)| array)
/// }
/// ```
///
/// # Safety
///
/// The contract of [`legacy`]. A structure of another major version needs only its version field.
pub unsafe fn versioned(
    managed: *const DLManagedTensorVersioned,
) -> Result<(Descriptor, DlpackFlags)> {
    // SAFETY: every version of the structure begins with the version field, which the caller promises is initialised.
    let version = unsafe { (*managed).version };
    check_version(version)?;
    // SAFETY: the major version is 1, so the structure has these fields; the caller promises that they are initialised.
    let flags = unsafe { (*managed).flags };
    // SAFETY: the major version is 1, and the caller promises an initialised structure.
    let tensor = unsafe { &(*managed).dl_tensor };
    // SAFETY: the caller promises that shape and strides are as `descriptor` requires.
    let array = unsafe { descriptor(tensor, Header { version: Some(version), flags }) }?;
    Ok((array, flags))
}

/// Reads an owned versioned managed tensor. Fails for a major version other than 1.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn managed(managed: &Managed<DLManagedTensorVersioned>) -> Result<Descriptor> {
    check_version(managed.version())?;
    let header = Header { version: Some(managed.version()), flags: managed.flags() };
    // SAFETY: the code that made the handle promised valid shape and strides while the handle exists
    // (`Managed::from_raw`).
    unsafe { descriptor(managed.tensor(), header) }
}

/// The address in the tensor's `manager_ctx`.
#[doc(hidden)]
pub fn context(managed: &Managed<DLManagedTensorVersioned>) -> usize {
    // SAFETY: the code that made the handle promised an initialised structure (`Managed::from_raw`), which lives as
    // long as the handle.
    unsafe { (*managed.as_ptr()).manager_ctx }.addr()
}

/// Reads an owned legacy managed tensor.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn managed_legacy(managed: &Managed<DLManagedTensor>) -> Result<Descriptor> {
    // SAFETY: the code that made the handle promised valid shape and strides while the handle exists
    // (`Managed::from_raw`).
    unsafe { descriptor(managed.tensor(), Header::LEGACY) }
}

/// Reads `tensor` into a descriptor. Does not check the major version in `header`: call [`check_version`] first.
///
/// # Examples
///
/// See [`Header`].
///
/// # Safety
///
/// If `ndim` is positive, `shape` and `strides` are each NULL or point to `ndim` integers, which nothing changes during
/// the call.
pub unsafe fn descriptor(tensor: &DLTensor, header: Header) -> Result<Descriptor> {
    let mut array = Descriptor::EMPTY;
    // SAFETY: the caller promises that shape and strides are as `read_into` requires.
    unsafe { read_into(&mut array, tensor, header) }?;
    Ok(array)
}

/// Does not check the major version in `header`. After an error `array` is unusable.
///
/// # Safety
///
/// The contract of [`descriptor`].
#[inline(always)]
pub(super) unsafe fn read_into(
    array: &mut Descriptor,
    tensor: &DLTensor,
    header: Header,
) -> Result<()> {
    let device = (tensor.device.device_type.0, tensor.device.device_id);
    let dtype = (tensor.dtype.code.0, tensor.dtype.bits, tensor.dtype.lanes);
    let padded = header.flags.contains(DlpackFlags::IS_SUBBYTE_TYPE_PADDED);
    let (on, of) = fields::named(device, dtype, padded)?;
    let ndim = fields::check_ndim(i64::from(tensor.ndim), of)?;
    // SAFETY: the caller promises NULL or `ndim` integers, and the slice is used only in this call.
    let Some(shape) = (unsafe { dims(tensor.shape, ndim) }) else {
        return Err(Error::new(Kind::NullShape, format!("NULL for {ndim} dimensions")));
    };
    let said = Fields {
        data: tensor.data as u64,
        device,
        dtype,
        shape,
        // SAFETY: the caller promises NULL or `ndim` integers, and the slice is used only in this call.
        strides: unsafe { dims(tensor.strides, ndim) },
        byte_offset: tensor.byte_offset,
        version: header.version.map(|version| (version.major, version.minor)),
        readonly: header.flags.contains(DlpackFlags::READ_ONLY),
        padded,
    };
    said.put(array, on, of)
}

/// The `ndim` integers at `values`. `None` if `values` is NULL and `ndim` is not 0.
///
/// # Safety
///
/// If `ndim` is positive, `values` is NULL or points to `ndim` integers, which stay valid and unchanged during `'a`.
#[inline(always)]
unsafe fn dims<'a>(values: *const i64, ndim: usize) -> Option<&'a [i64]> {
    if ndim == 0 {
        return Some(&[]);
    }
    if values.is_null() {
        return None;
    }
    // SAFETY: `ndim` is positive and `values` is not NULL, so the caller promises `ndim` integers, valid and unchanged
    // during `'a`.
    Some(unsafe { std::slice::from_raw_parts(values, ndim) })
}
