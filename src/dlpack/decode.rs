//! Reads the structures of C into descriptors.
//!
//! Refused: major versions other than 1, memory that CUDA cannot reach. Accepted as older producers write them: NULL strides from legacy tensors and from
//! versions before 1.2, any `byte_offset`.
#![allow(unsafe_code)]

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use dlpark::{DlpackFlags, Managed};

use super::fields::{self, Fields};
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

/// The fields of a managed tensor beside its `DLTensor`.
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
///     // SAFETY: the caller's.
///     unsafe { descriptor(tensor, Header::LEGACY) }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version, `None` for a legacy tensor.
    pub version: Option<DLPackVersion>,
    /// The flags, empty for a legacy tensor.
    pub flags: DlpackFlags,
}

impl Header {
    /// A legacy tensor's.
    pub const LEGACY: Self = Self { version: None, flags: DlpackFlags::empty() };
}

/// Refuses a major version that this crate does not know. Only the version field of a structure of
/// another major version may be read, so this comes first.
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
/// /// A tensor of C's, or NULL.
/// unsafe fn taken(tensor: *const DLManagedTensor) -> Option<Result<Descriptor, Error>> {
///     // SAFETY: the caller's.
///     (!tensor.is_null()).then(|| unsafe { decode::legacy(tensor) })
/// }
/// ```
///
/// # Safety
///
/// - `managed` points to an initialised `DLManagedTensor` that stays alive during the call;
/// - where `ndim` is positive, its `shape` is NULL or points to `ndim` integers, and so is `strides`.
pub unsafe fn legacy(managed: *const DLManagedTensor) -> Result<Descriptor> {
    // SAFETY: the caller vouches for the structure.
    let tensor = unsafe { &(*managed).dl_tensor };
    // SAFETY: the caller vouches for shape and strides.
    unsafe { descriptor(tensor, Header::LEGACY) }.map_err(|error| explained(error, tensor))
}

/// Why a legacy tensor was refused: where it begins with a version in place of an address, it is a versioned one
/// under the other's name. Its device is then one half of a pointer, which is a multiple of 8 and so no kind of CUDA's
/// memory: none is ever taken for a legacy one.
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

/// Refuses a copy, for those who asked an object for its own memory: what is written to a copy is not
/// seen by the object.
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
/// /// A tensor of C's.
/// unsafe fn taken(tensor: *const DLManagedTensorVersioned) -> Result<Descriptor, Error> {
///     // SAFETY: the caller's.
///     unsafe { decode::versioned(tensor) }.map(|(array, _flags)| array)
/// }
/// ```
///
/// # Safety
///
/// Those of [`legacy`]; of a structure of another major version only the version field has to be there.
pub unsafe fn versioned(
    managed: *const DLManagedTensorVersioned,
) -> Result<(Descriptor, DlpackFlags)> {
    // SAFETY: the version is the first field of every version of the structure.
    let version = unsafe { (*managed).version };
    check_version(version)?;
    // SAFETY: major version 1, so the fields are where the structure has them; the caller vouches for it.
    let flags = unsafe { (*managed).flags };
    // SAFETY: as above.
    let tensor = unsafe { &(*managed).dl_tensor };
    // SAFETY: the caller vouches for shape and strides.
    let array = unsafe { descriptor(tensor, Header { version: Some(version), flags }) }?;
    Ok((array, flags))
}

/// Reads a managed tensor that is owned.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn managed(managed: &Managed<DLManagedTensorVersioned>) -> Result<Descriptor> {
    check_version(managed.version())?;
    let header = Header { version: Some(managed.version()), flags: managed.flags() };
    // SAFETY: the handle's maker vouched for a valid tensor (`Managed::from_raw`), whose shape and strides
    // hold `ndim` integers while it lives.
    unsafe { descriptor(managed.tensor(), header) }
}

/// The address that its `manager_ctx` holds.
#[doc(hidden)]
pub fn context(managed: &Managed<DLManagedTensorVersioned>) -> usize {
    // SAFETY: the handle's maker vouched for an initialised structure, which lives as long as the handle.
    unsafe { (*managed.as_ptr()).manager_ctx }.addr()
}

/// Reads a legacy managed tensor that is owned.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn managed_legacy(managed: &Managed<DLManagedTensor>) -> Result<Descriptor> {
    // SAFETY: as above.
    unsafe { descriptor(managed.tensor(), Header::LEGACY) }
}

/// Reads `tensor`.
///
/// # Examples
///
/// See [`Header`].
///
/// # Safety
///
/// Where `ndim` is positive, `shape` is NULL or points to `ndim` integers, and so is `strides`.
pub unsafe fn descriptor(tensor: &DLTensor, header: Header) -> Result<Descriptor> {
    let mut array = Descriptor::EMPTY;
    // SAFETY: the caller's own argument.
    unsafe { read_into(&mut array, tensor, header) }?;
    Ok(array)
}

/// Reads `tensor` into `array`, which is neither the old nor the new one after a refusal.
///
/// # Safety
///
/// Those of [`descriptor`].
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
    // SAFETY: the caller vouches for `ndim` integers behind a pointer that is not NULL.
    let Some(shape) = (unsafe { dims(tensor.shape, ndim) }) else {
        return Err(Error::new(Kind::NullShape, format!("NULL for {ndim} dimensions")));
    };
    let said = Fields {
        data: tensor.data as u64,
        device,
        dtype,
        shape,
        // SAFETY: as above.
        strides: unsafe { dims(tensor.strides, ndim) },
        byte_offset: tensor.byte_offset,
        version: header.version.map(|version| (version.major, version.minor)),
        readonly: header.flags.contains(DlpackFlags::READ_ONLY),
        padded,
    };
    said.put(array, on, of)
}

/// `ndim` integers; none at all need no pointer.
///
/// # Safety
///
/// `values` is NULL or points to `ndim` integers.
#[inline(always)]
unsafe fn dims<'a>(values: *const i64, ndim: usize) -> Option<&'a [i64]> {
    if ndim == 0 {
        return Some(&[]);
    }
    if values.is_null() {
        return None;
    }
    // SAFETY: not NULL, checked above; the caller vouches for the length; C's int64_t pointers are
    // aligned as the structure's own definition has them. The caller of the caller keeps the tensor
    // while the result is used, which is not beyond `descriptor`.
    Some(unsafe { std::slice::from_raw_parts(values, ndim) })
}
