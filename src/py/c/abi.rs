//! What the C interface's header declares.
//!
//! `python/cai_bridge/include/cai_bridge.h` is generated from this file.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "cbindgen reads what is public")]

use std::ffi::{c_int, c_void};

use dlpark::ffi::DLManagedTensorVersioned;
use pyo3::ffi::PyObject;

use crate::descriptor::Descriptor;
use crate::py::rust::memory::PythonMemory;

/// The version of the table that this header declares. Later ones only add functions at its end, and fields at the ends
/// of the structures. Ask for the version of the newest function that you call.
pub const CAI_BRIDGE_VERSION: u32 = 4;

/// Memory to be handed out. What the pointers point to is read during the call, and `owner` is kept.
///
/// Later versions add fields at its end, which `export_sized` takes: 0 in one means what was there before it.
/// `export_object` reads the fields up to `deleter`, for ever.
///
/// The memory belongs to the exporter until `deleter` is called, and so does `stream`: both stay until then.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeExport {
    /// The address of the first element; not looked at where there is none.
    pub data: *mut c_void,
    /// The extents.
    pub shape: *const i64,
    /// The strides, in elements; NULL for C-contiguous.
    pub strides: *const i64,
    /// The number of dimensions.
    pub ndim: i32,
    /// DLPack's type code, as in a description.
    pub dtype_code: u8,
    /// The bits of a lane.
    pub dtype_bits: u8,
    /// The lanes; 1 but for vectors.
    pub dtype_lanes: u16,
    /// DLPack's device type: 2 CUDA, 3 pinned host memory, 13 managed memory.
    pub device_type: i32,
    /// The ordinal of the GPU that `stream` is of. CUDA memory is that GPU's; managed and pinned memory has none of its
    /// own. Of an imported array that is handed on it is `device`'s answer, not the description's `device_id`.
    pub device_id: i32,
    /// 1 if the memory is read-only, else 0.
    pub readonly: i32,
    /// The stream that the memory is ready on, and goes back to: a `cudaStream_t` or `CUstream`. It exists until
    /// `deleter` is called.
    pub stream: u64,
    /// What `deleter` is given.
    pub owner: *mut c_void,
    /// Called once, when the memory has no user any more and `stream` waits for the last work on it: on any thread,
    /// without the interpreter's lock, which it may take while the interpreter runs (`PyGILState_Ensure`). It must not
    /// unwind (throw). NULL if there is nothing to do. It is not called for what is alive when the interpreter ends: that
    /// is left to the end of the process.
    pub deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// An array that was imported. It keeps the memory until it is released.
#[derive(Debug)]
pub struct CaiBridgeArray {
    pub(super) array: Descriptor,
    pub(super) taken: PythonMemory,
}

/// What an array is. The lists are the array's, and good until it is released.
///
/// Later versions add fields at its end, which `describe_sized` fills. `describe` fills those up to `contiguous`, for ever.
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
    /// The ordinal that DLPack shows: 0 for pinned and managed memory, whatever GPU its producer works on. `device` tells
    /// that.
    pub device_id: i32,
    /// 1 where the memory must not be written, else 0.
    pub readonly: i32,
    /// 1 where the elements are C-contiguous, else 0.
    pub contiguous: i32,
}

/// The functions. A table of a later version has more of them behind: an extension compares `version` with the one that
/// it was built for, and uses no more than both have.
///
/// A place for a pointer is set to NULL before anything else, so that it is one if the function fails.
///
/// Those that return an int return 0, and `device` a number, or -1 with a Python exception set. In a thread that has no
/// Python thread state, and once the interpreter has ended, -1 is all they tell. NULL for an array, an export or a place
/// for an answer is a `ValueError`. What cannot be seen is undefined: an array that was released, used again or released
/// again, and a stream that does not exist.
///
/// Streams are `cudaStream_t` or `CUstream`, as integers: 0 and 1 are the legacy default stream, 2 is the calling
/// thread's; of the GPU that `device` names, in an export of `device_id`.
#[repr(C)]
#[derive(Debug)]
pub struct CaiBridgeApi {
    /// `CAI_BRIDGE_VERSION`, or more.
    pub version: u32,
    /// Imports an object that speaks DLPack or the CUDA Array Interface, or a capsule. The lock of the interpreter is
    /// held. The caller releases the array. NULL for an object keeps the exception that is set.
    pub import_object: unsafe extern "C" fn(*mut PyObject, *mut *mut CaiBridgeArray) -> c_int,
    /// Describes an array. For NULL all is 0.
    pub describe: unsafe extern "C" fn(*const CaiBridgeArray, *mut CaiBridgeDescription),
    /// Makes a stream wait for the work that the array's producer has queued. The stream exists. With or without the
    /// lock of the interpreter.
    pub order: unsafe extern "C" fn(*const CaiBridgeArray, u64) -> c_int,
    /// Makes the producer's stream wait for the work that was queued on a stream, which exists; the array stays. With
    /// or without the lock of the interpreter. Where it fails, call it again, or `release`: the memory is then kept until
    /// the wait is made. A producer that names no stream (a capsule, or `__dlpack__` alone) cannot be made to wait: its
    /// memory is kept until the work is done, and the legacy default stream waits.
    pub give_back: unsafe extern "C" fn(*const CaiBridgeArray, u64) -> c_int,
    /// Lets go of an array, once; NULL is nothing to let go of. Work that `give_back` was not called for is not waited for.
    /// With or without the lock of the interpreter, from any thread. Once the interpreter has ended nothing happens: the
    /// memory is left to the end of the process.
    pub release: unsafe extern "C" fn(*mut CaiBridgeArray),
    /// Since version 2. Makes a Python object of memory, which speaks DLPack and the CUDA Array Interface. The lock of the
    /// interpreter is held. The caller owns the reference that it gets. After -1 the deleter was not called, and is not.
    /// Refused are a GPU that is not there, and, where the driver can tell, a stream or CUDA memory of another.
    pub export_object: unsafe extern "C" fn(*const CaiBridgeExport, *mut *mut PyObject) -> c_int,
    /// Since version 3. The GPU whose default streams 1 and 2 name, or -1: the one that the array's producer works on. With
    /// or without the lock of the interpreter.
    pub device: unsafe extern "C" fn(*const CaiBridgeArray) -> i32,
    /// Since version 4. `describe` for a structure of `size` bytes, `sizeof(CaiBridgeDescription)` where it is called: bytes
    /// that this package knows no field for are 0. Refused is a size below that of the first version of the structure.
    pub describe_sized:
        unsafe extern "C" fn(*const CaiBridgeArray, *mut CaiBridgeDescription, usize) -> c_int,
    /// Since version 4. `export_object` of a structure of `size` bytes, `sizeof(CaiBridgeExport)` where it is called. Refused
    /// are a size below that of the first version, and bytes that are not 0 where this package knows no field.
    pub export_sized:
        unsafe extern "C" fn(*const CaiBridgeExport, usize, *mut *mut PyObject) -> c_int,
    /// Since version 4. Imports a managed tensor that is ready on a stream of the GPU `device_id` (CUDA memory is that GPU's),
    /// and goes back to it. The stream exists until the tensor's deleter is called. The lock of the interpreter is held. From 0
    /// on the tensor is the array's, which deletes it, on any thread; after -1 it is the caller's as before.
    pub import_tensor: unsafe extern "C" fn(
        *mut DLManagedTensorVersioned,
        i32,
        u64,
        *mut *mut CaiBridgeArray,
    ) -> c_int,
    /// Since version 4. The streams that the memory is ready on, into two places: work elsewhere has to wait for both, as
    /// `order` makes it. 0 is none; there are two where the producer's protocols name one each. They exist as long as the
    /// array is not released and its producer keeps them. With or without the lock of the interpreter.
    pub ready_on: unsafe extern "C" fn(*const CaiBridgeArray, *mut u64) -> c_int,
    /// Since version 4. Describes an array as a `DLTensor` of dlpack.h, which owns nothing: its lists are the array's, and it is
    /// good until the array is released. It does not say that memory is read-only, as the description does.
    pub tensor: unsafe extern "C" fn(*const CaiBridgeArray, *mut c_void) -> c_int,
}
