//! The C interface: a table of functions in a capsule of the Python package, for extensions in C and C++.
//!
//! `python/cai_bridge/include/cai_bridge.h` is generated from this file. An extension imports the table once, with
//! `PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0)`, and shares the package's state: it needs nothing of Rust's to build.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "cbindgen reads what is public")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi::PyObject;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use crate::array::origin::Origin;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};
use crate::py::doors::to_cai::source;
use crate::py::interpreter::attached;
use crate::py::rust::memory::PythonMemory;
use crate::stream::{Alive, Stream, Thread};

/// The version of the table. Later ones only add fields at its end.
pub const CAI_BRIDGE_VERSION: u32 = 1;

/// An array that was imported. It keeps the memory until it is released.
#[derive(Debug)]
pub struct CaiBridgeArray {
    array: Descriptor,
    taken: PythonMemory,
}

/// What an array is. The lists are the array's, and good until it is released.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeDescription {
    /// The address of the first element; NULL where there is none.
    pub data: *mut c_void,
    /// The extents.
    pub shape: *const i64,
    /// The strides, in elements.
    pub strides: *const i64,
    /// The number of dimensions.
    pub ndim: i32,
    /// DLPack's type code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 and more 8-bit floats.
    pub dtype_code: u8,
    /// The bits of a lane.
    pub dtype_bits: u8,
    /// The lanes.
    pub dtype_lanes: u16,
    /// DLPack's device type: 2 CUDA, 3 pinned host memory, 13 managed memory.
    pub device_type: i32,
    /// The ordinal; 0 for pinned and managed memory.
    pub device_id: i32,
    /// 1 where the memory must not be written, else 0.
    pub readonly: i32,
    /// 1 where the elements are C-contiguous, else 0.
    pub contiguous: i32,
}

/// The functions. Those that return an int return 0, or -1 with a Python exception set. In a thread that has no
/// Python thread state, and once the interpreter has ended, -1 is all they tell. Streams are `cudaStream_t` or
/// `CUstream`, as integers: 0 and 1 are the legacy default stream, 2 is the calling thread's.
#[repr(C)]
#[derive(Debug)]
pub struct CaiBridgeApi {
    /// `CAI_BRIDGE_VERSION`, or more.
    pub version: u32,
    /// Imports an object that speaks DLPack or the CUDA Array Interface, or a capsule. The lock of the interpreter is
    /// held. The caller releases the array. NULL for an object keeps the exception that is set.
    pub import_object: unsafe extern "C" fn(*mut PyObject, *mut *mut CaiBridgeArray) -> c_int,
    /// Describes an array.
    pub describe: unsafe extern "C" fn(*const CaiBridgeArray, *mut CaiBridgeDescription),
    /// Makes a stream wait for the work that the array's producer has queued. The stream exists. With or without the
    /// lock of the interpreter.
    pub order: unsafe extern "C" fn(*const CaiBridgeArray, u64) -> c_int,
    /// Makes the producer's stream wait for the work that was queued on a stream, which exists; the array stays. With
    /// or without the lock of the interpreter.
    pub give_back: unsafe extern "C" fn(*const CaiBridgeArray, u64) -> c_int,
    /// Lets go of an array; NULL is nothing to let go of. With or without the lock of the interpreter, from any
    /// thread.
    pub release: unsafe extern "C" fn(*mut CaiBridgeArray),
}

static API: CaiBridgeApi = CaiBridgeApi {
    version: CAI_BRIDGE_VERSION,
    import_object,
    describe,
    order,
    give_back,
    release,
};

/// The name of the table's capsule.
const CAPSULE: &std::ffi::CStr = c"cai_bridge._core._c_api";

/// Puts the table on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table: *const CaiBridgeApi = &raw const API;
    // SAFETY: the table is static, and nothing is to be done at the capsule's end.
    let capsule = unsafe {
        let made = pyo3::ffi::PyCapsule_New(table.cast_mut().cast(), CAPSULE.as_ptr(), None);
        Bound::from_owned_ptr_or_err(module.py(), made)?
    };
    module.setattr("_c_api", capsule)
}

/// Runs `call` with the interpreter's lock; what it fails with is the pending exception.
fn answer(call: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    let done = attached(|py| {
        let done = catch_unwind(AssertUnwindSafe(|| call(py)));
        match done.unwrap_or_else(|_| Err(PanicException::new_err("a panic in cai_bridge"))) {
            Ok(()) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    });
    done.unwrap_or(-1)
}

unsafe extern "C" fn import_object(object: *mut PyObject, out: *mut *mut CaiBridgeArray) -> c_int {
    answer(|py| {
        if object.is_null() {
            let said = PyErr::take(py);
            return Err(said.unwrap_or_else(|| Error::new(Kind::Protocol, "NULL").into()));
        }
        // SAFETY: not NULL, by the above; the caller has a reference, and the lock.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        let (array, taken) = PythonMemory::new(source("C", &object)?);
        let made = Box::into_raw(Box::new(CaiBridgeArray { array, taken }));
        // SAFETY: the caller's place for a pointer.
        unsafe { out.write(made) };
        Ok(())
    })
}

unsafe extern "C" fn describe(array: *const CaiBridgeArray, out: *mut CaiBridgeDescription) {
    // SAFETY: an array of `import_object`, not released yet.
    let array = unsafe { &(*array).array };
    let (layout, dtype, device) = (array.layout(), array.dtype(), array.device());
    let described = CaiBridgeDescription {
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
    };
    // SAFETY: the caller's place for a description.
    unsafe { out.write(described) };
}

/// Calls `make` with the array and the proof that the stream is alive.
///
/// # Safety
///
/// The array is one of `import_object`, not released yet; the stream exists as long as the call.
unsafe fn with_stream(
    array: *const CaiBridgeArray,
    stream: u64,
    make: impl FnOnce(&CaiBridgeArray, Alive<'_>) -> Result<()>,
) -> c_int {
    // SAFETY: the caller's.
    let array = unsafe { &*array };
    if array.array.ptr() == 0 {
        return 0;
    }
    let stream = Stream::from_native(stream, Thread::current());
    // SAFETY: the caller's.
    let alive = unsafe { Alive::kept(stream, array.taken.place()) };
    answer(|_| Ok(make(array, alive)?))
}

unsafe extern "C" fn order(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: the caller's, by the table's text.
    unsafe {
        with_stream(array, stream, |it, alive| {
            it.taken.check_stream(&it.array, alive)?;
            it.taken.hand_over("C", &it.array, alive)
        })
    }
}

unsafe extern "C" fn give_back(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: the caller's, by the table's text.
    unsafe { with_stream(array, stream, |it, alive| it.taken.give_back(alive)) }
}

unsafe extern "C" fn release(array: *mut CaiBridgeArray) {
    if !array.is_null() {
        // SAFETY: an array of `import_object`, released once.
        drop(unsafe { Box::from_raw(array) });
    }
}
