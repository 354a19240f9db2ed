//! The functions of the C interface for imported arrays.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use dlpark::ffi::DLTensor;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use super::abi::{CaiBridgeArray, CaiBridgeDescription};
use super::answer::{answer, answer_at, check_array, check_out, check_size};
use crate::array::origin::Origin;
use crate::descriptor::Descriptor;
use crate::dlpack::encode;
use crate::error::{Error, Kind, Result, caught};
use crate::py::doors::to_cai::source;
use crate::py::rust::memory::PythonMemory;
use crate::stream::{Alive, Stream, Thread};

pub(super) unsafe extern "C" fn import_object(
    object: *mut PyObject,
    out: *mut *mut CaiBridgeArray,
) -> c_int {
    let import = |py: Python<'_>| {
        if object.is_null() {
            let said = PyErr::take(py);
            return Err(said.unwrap_or_else(|| Error::new(Kind::Protocol, "NULL").into()));
        }
        // SAFETY: `object` is not NULL. The caller holds a reference to it, and the interpreter's lock.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        let (array, taken) = PythonMemory::new(source("C", &object)?);
        Ok(Box::into_raw(Box::new(CaiBridgeArray { array, taken })))
    };
    // SAFETY: `out` is NULL or writable, by the contract of `CaiBridgeApi`.
    unsafe { answer_at(out, import) }
}

/// The size of the first version of `CaiBridgeDescription`.
const FIRST: usize = offset_of!(CaiBridgeDescription, contiguous) + size_of::<i32>();

pub(super) unsafe extern "C" fn describe(
    array: *const CaiBridgeArray,
    out: *mut CaiBridgeDescription,
) {
    if !out.is_null() {
        // SAFETY: `array` is NULL or alive, and `out` is a description, by the contract of `CaiBridgeApi`.
        unsafe { fill(array.as_ref(), out, FIRST) }
    }
}

/// Writes the description of `array` to the `size` bytes at `out`, cut off after `size` bytes. The other bytes become
/// 0; without an array, all bytes do.
///
/// # Safety
///
/// `out` points to `size` writable bytes.
unsafe fn fill(array: Option<&CaiBridgeArray>, out: *mut CaiBridgeDescription, size: usize) {
    let out = out.cast::<u8>();
    // SAFETY: `out` has `size` bytes, as the caller promises.
    unsafe { out.write_bytes(0, size) };
    if let Some(array) = array {
        let described = description(&array.array);
        let known = size.min(size_of::<CaiBridgeDescription>());
        // SAFETY: `known` is at most `size`, and at most the size of `described`.
        unsafe { out.copy_from_nonoverlapping((&raw const described).cast(), known) };
    }
}

fn description(array: &Descriptor) -> CaiBridgeDescription {
    let (layout, dtype, device) = (array.layout(), array.dtype(), array.device());
    CaiBridgeDescription {
        data: array.ptr() as *mut c_void,
        shape: layout.shape().as_ptr(),
        strides: layout.strides().as_ptr(),
        ndim: i32::from(layout.ndim()),
        dtype_code: dtype.code(),
        dtype_bits: dtype.bits(),
        dtype_lanes: dtype.lanes(),
        device_type: device.kind.code().cast_signed(),
        device_id: device.id,
        readonly: i32::from(array.readonly()),
        contiguous: i32::from(layout.is_contiguous()),
    }
}

pub(super) unsafe extern "C" fn describe_sized(
    array: *const CaiBridgeArray,
    out: *mut CaiBridgeDescription,
    size: usize,
) -> c_int {
    answer(|_| {
        check_array(array)?;
        check_out(out)?;
        check_size(size, FIRST, "CaiBridgeDescription")?;
        // SAFETY: neither pointer is NULL. So `array` is alive, and `out` has `size` bytes, by the contract of
        // `CaiBridgeApi`.
        unsafe { fill(array.as_ref(), out, size) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn tensor(array: *const CaiBridgeArray, out: *mut c_void) -> c_int {
    answer(|_| {
        check_array(array)?;
        check_out(out)?;
        // SAFETY: `array` is not NULL, so it is alive, by the contract of `CaiBridgeApi`.
        let made = encode::borrowed(unsafe { &(*array).array });
        // SAFETY: `out` is not NULL, so it has room for a `DLTensor`, by the contract of `CaiBridgeApi`.
        unsafe { out.cast::<DLTensor>().write(made) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn ready_on(array: *const CaiBridgeArray, out: *mut u64) -> c_int {
    answer(|_| {
        check_array(array)?;
        check_out(out)?;
        // SAFETY: `array` is not NULL, so it is alive, by the contract of `CaiBridgeApi`.
        let streams = unsafe { &(*array).taken }.ready_on()?;
        // SAFETY: `out` is not NULL, so it has room for two numbers, by the contract of `CaiBridgeApi`.
        unsafe { out.cast::<[u64; 2]>().write(streams) };
        Ok(())
    })
}

/// Checks `array` and `stream`, and calls `make`. For an empty array, which needs no order, returns 0 without either.
///
/// # Safety
///
/// `array` is NULL, or an imported array that has not been released. The stream exists during the call.
unsafe fn with_stream(
    array: *const CaiBridgeArray,
    stream: u64,
    make: impl FnOnce(&CaiBridgeArray, Alive<'_>) -> Result<()>,
) -> c_int {
    // SAFETY: `array` is NULL or alive, as the caller promises.
    let Some(array) = (unsafe { array.as_ref() }) else { return answer(|_| check_array(array)) };
    if array.array.ptr() == 0 {
        return 0;
    }
    answer(|_| {
        let stream = Stream::from_native(stream, Thread::current());
        // SAFETY: the stream exists, as the caller promises.
        let alive = |place| unsafe { Alive::kept(stream, place) };
        let place = array.taken.check_stream(&array.array, alive(array.taken.place()))?;
        Ok(make(array, alive(place))?)
    })
}

pub(super) unsafe extern "C" fn order(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: `array` is NULL or alive, and the stream exists, by the contract of `CaiBridgeApi`.
    unsafe { with_stream(array, stream, |it, alive| it.taken.order_for("C", alive)) }
}

pub(super) unsafe extern "C" fn give_back(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: `array` is NULL or alive, and the stream exists, by the contract of `CaiBridgeApi`.
    unsafe { with_stream(array, stream, |it, alive| it.taken.give_back_or_owe(alive)) }
}

pub(super) unsafe extern "C" fn device(array: *const CaiBridgeArray) -> i32 {
    // SAFETY: `array` is NULL or alive, by the contract of `CaiBridgeApi`.
    match unsafe { array.as_ref() } {
        Some(array) => array.taken.place().ordinal,
        None => answer(|_| check_array(array)),
    }
}

pub(super) unsafe extern "C" fn release(array: *mut CaiBridgeArray) {
    if !array.is_null() {
        // SAFETY: `array` was imported, and is released only once, by the contract of `CaiBridgeApi`.
        let array = unsafe { Box::from_raw(array) };
        let _ = caught(|| drop(array));
    }
}
