//! Makes managed tensors from descriptors. A managed tensor keeps the owner of its memory until its deleter is called.
//!
//! Strides are always explicit. In the tensors of [`versioned`] and [`legacy`], `byte_offset` is 0. The element type
//! keeps its lanes.
#![allow(unsafe_code)]

use std::ffi::c_void;

use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLTensor,
};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, OpaqueContext};

use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

/// Makes a versioned managed tensor of DLPack 1.3. `keep` is dropped when the tensor is deleted, on whichever thread
/// that happens, or at once if this fails.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn versioned<C: OpaqueContext>(
    array: &Descriptor,
    keep: C,
) -> Result<Managed<DLManagedTensorVersioned>> {
    with_byte_offset(array, 0, keep)
}

/// Makes a legacy managed tensor. Fails for read-only memory and for padded elements, since a legacy tensor has no
/// flags. `keep` is dropped when the tensor is deleted, on whichever thread that happens, or at once if this fails.
///
/// # Examples
///
/// See [`dlpack`](crate::dlpack).
pub fn legacy<C: OpaqueContext>(array: &Descriptor, keep: C) -> Result<Managed<DLManagedTensor>> {
    check_legacy(array)?;
    with_byte_offset(array, 0, keep)
}

/// Fails if a legacy tensor cannot describe the array: the array is read-only, or its elements are padded.
#[doc(hidden)]
pub fn check_legacy(array: &Descriptor) -> Result<()> {
    if array.readonly() {
        return Err(Error::new(
            Kind::ReadOnlyLegacy,
            "read-only memory and a consumer that asks for a legacy capsule",
        ));
    }
    check_padding(array, "asks for a legacy capsule")
}

/// Fails for padded elements. `consumer` completes the message "a consumer that ...".
#[doc(hidden)]
pub fn check_padding(array: &Descriptor, consumer: &str) -> Result<()> {
    if array.dtype().is_padded() {
        let got = format!("{:?}, padded, and a consumer that {consumer}", array.dtype());
        return Err(Error::new(Kind::SubByte, got));
    }
    Ok(())
}

/// Makes a tensor whose data pointer lies `byte_offset` bytes before the first element, but not below address 0. For a
/// legacy tensor, the caller must have called [`check_legacy`].
#[doc(hidden)]
pub fn with_byte_offset<M: ManagedTensorBase, C: OpaqueContext>(
    array: &Descriptor,
    byte_offset: u64,
    keep: C,
) -> Result<Managed<M>> {
    tensor(array, byte_offset, device(array), flags(array), keep)
}

/// Makes a tensor of a copy that only the consumer has: `IS_COPIED` is set, and `READ_ONLY` is not. For a legacy
/// tensor, the caller must have called [`check_padding`].
#[doc(hidden)]
pub fn copied<M: ManagedTensorBase, C: OpaqueContext>(
    array: &Descriptor,
    on_host: bool,
    keep: C,
) -> Result<Managed<M>> {
    tensor(array, 0, place(array, on_host), DlpackFlags::IS_COPIED, keep)
}

/// Makes a tensor of the array's own memory; with `on_host`, its device is the CPU. For a legacy tensor, the caller
/// must have called [`check_legacy`].
#[doc(hidden)]
pub fn shared<M: ManagedTensorBase, C: OpaqueContext>(
    array: &Descriptor,
    on_host: bool,
    keep: C,
) -> Result<Managed<M>> {
    tensor(array, 0, place(array, on_host), flags(array), keep)
}

fn flags(array: &Descriptor) -> DlpackFlags {
    if array.readonly() { DlpackFlags::READ_ONLY } else { DlpackFlags::empty() }
}

fn tensor<M: ManagedTensorBase, C: OpaqueContext>(
    array: &Descriptor,
    byte_offset: u64,
    device: DLDevice,
    flags: DlpackFlags,
    keep: C,
) -> Result<Managed<M>> {
    let layout = array.layout();
    let prepared = Dynamic::new(layout.shape(), layout.strides())
        .prepare_as::<M>()
        .map_err(|error| Error::new(Kind::ShapeOverflow, error.to_string()))?;
    let mut initialized = prepared.initialize(keep);
    // Limit the offset to the address, so that the offset is 0 for a NULL pointer.
    let byte_offset = byte_offset.min(array.ptr());
    initialized.set_data((array.ptr() - byte_offset) as *mut c_void);
    initialized.set_byte_offset(byte_offset);
    initialized.set_device(device);
    initialized.set_dtype(dtype(array));
    let padded = if array.dtype().is_padded() {
        DlpackFlags::IS_SUBBYTE_TYPE_PADDED
    } else {
        DlpackFlags::empty()
    };
    let flags = flags | padded;
    // SAFETY: IS_SUBBYTE_TYPE_PADDED is set exactly if the descriptor says so. READ_ONLY is set exactly if the
    // descriptor says so, except by `copied`, which never sets it. Only `copied` sets IS_COPIED, and only the consumer
    // has that memory, so the consumer may write to it. There is no other flag.
    unsafe { initialized.set_flags_unchecked(flags) };
    // SAFETY: the address, the dtype, the shape and the strides are the descriptor's, and DLPack has the same
    // invariants. The device is the descriptor's, or the CPU if the caller says so. The caller passes the memory's
    // owner as `keep`.
    Ok(unsafe { initialized.finish() })
}

/// An owner that is one box, or nothing. A managed tensor keeps this box directly, without another box around it.
#[doc(hidden)]
pub trait Boxed: Sized {
    type Inner: Send;
    fn into_box(self) -> Option<Box<Self::Inner>>;
    fn of_box(inner: Box<Self::Inner>) -> Self;
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Keep<B>(pub B);

// SAFETY: the pointer comes from a box whose content is `Send`, or is NULL. So `drop_raw` may be called on any thread:
// it makes the owner from the box there, and drops the owner.
unsafe impl<B: Boxed> OpaqueContext for Keep<B> {
    fn into_raw(self) -> *mut c_void {
        self.0.into_box().map_or(std::ptr::null_mut(), |inner| Box::into_raw(inner).cast())
    }

    unsafe fn drop_raw(raw: *mut c_void) {
        if !raw.is_null() {
            // SAFETY: `raw` is not NULL, so it is the box that `into_raw` gave up. The caller promises to drop it once.
            drop(B::of_box(unsafe { Box::from_raw(raw.cast::<B::Inner>()) }));
        }
    }
}

/// A `DLTensor` that borrows the shape and strides of `array`. The `DLTensor` is valid until `array` is moved, changed
/// or dropped.
///
/// # Examples
///
/// ```
/// let array = |array: &cai_bridge::Descriptor| cai_bridge::dlpack::encode::borrowed(array).ndim;
/// ```
pub fn borrowed(array: &Descriptor) -> DLTensor {
    let layout = array.layout();
    DLTensor {
        data: array.ptr() as *mut c_void,
        device: device(array),
        ndim: i32::from(layout.ndim()),
        dtype: dtype(array),
        shape: layout.shape().as_ptr().cast_mut(),
        strides: layout.strides().as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

fn place(array: &Descriptor, on_host: bool) -> DLDevice {
    let host = DLDevice { device_type: DLDeviceType::CPU, device_id: 0 };
    if on_host { host } else { device(array) }
}

fn device(array: &Descriptor) -> DLDevice {
    let device = array.device();
    DLDevice { device_type: DLDeviceType(device.kind.code()), device_id: device.id }
}

fn dtype(array: &Descriptor) -> DLDataType {
    let dtype = array.dtype();
    DLDataType { code: DLDataTypeCode(dtype.code()), bits: dtype.bits(), lanes: dtype.lanes() }
}
