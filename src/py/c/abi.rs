//! The declarations of the C interface. `make header` generates `python/cai_bridge/include/cai_bridge.h` from this
//! file.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "cbindgen reads what is public")]

use std::ffi::{c_int, c_void};

use dlpark::ffi::DLManagedTensorVersioned;
use pyo3::ffi::PyObject;

use crate::descriptor::Descriptor;
use crate::py::rust::memory::PythonMemory;

/// The version of the table that this header declares. Later versions only add functions at the end of the table, and
/// fields at the ends of the structures. Before you use the table, check that its `version` is at least the one that
/// added the newest function that you call.
pub const CAI_BRIDGE_VERSION: u32 = 4;

/// Memory to export. The call copies the shape and the strides, and keeps the pointer `owner`.
///
/// Later versions may add fields at the end, for `export_sized`. A new field that is 0 changes nothing. `export_object`
/// reads the fields up to `deleter` in every version.
///
/// The exporter keeps the memory and `stream` until `deleter` is called.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeExport {
    /// The address of the first element; ignored for an empty array.
    pub data: *mut c_void,
    /// The `ndim` extents. May be NULL if `ndim` is 0.
    pub shape: *const i64,
    /// The `ndim` strides, in elements; NULL for C-contiguous.
    pub strides: *const i64,
    /// The number of dimensions.
    pub ndim: i32,
    /// DLPack's type code, as in a description. An export refuses types that the CUDA Array Interface lacks.
    pub dtype_code: u8,
    /// The bits of a lane.
    pub dtype_bits: u8,
    /// The lanes: 1, or more for vectors.
    pub dtype_lanes: u16,
    /// DLPack's device type: 2 CUDA, 3 pinned host memory, 13 managed memory.
    pub device_type: i32,
    /// The ordinal of the GPU of `stream`. CUDA memory must be on this GPU. Managed and pinned memory may be used on
    /// streams of every GPU. To export an imported array again, pass what `device` returns, not the description's
    /// `device_id`.
    pub device_id: i32,
    /// 1 if the memory is read-only, else 0.
    pub readonly: i32,
    /// The stream on which the memory is ready: a `cudaStream_t` or `CUstream`. Before `deleter` is called, this
    /// stream waits for the last work on the memory. The stream must exist until then: keep it alive by `owner`. If
    /// you have only its number, from your own caller, your caller must keep it until then.
    pub stream: u64,
    /// The argument of `deleter`.
    pub owner: *mut c_void,
    /// Called at most once, when the memory has no user left and `stream` waits for the last work on it. The wait is
    /// left out if the stream's context is destroyed or broken. The last work may still run, so free the memory in
    /// the order of `stream`, as `cudaFreeAsync` does. The call may come on any thread, without the interpreter's
    /// lock. The deleter may take the lock while the interpreter runs (`PyGILState_Ensure`), and must not throw. If
    /// the memory is in use when the interpreter ends, `deleter` is not called, nor is it called in a forked child. If
    /// `deleter` is NULL, nothing is called: the memory and `stream` must exist until the process ends.
    pub deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// An imported array. It keeps the memory until it is released.
#[derive(Debug)]
pub struct CaiBridgeArray {
    pub(super) array: Descriptor,
    pub(super) taken: PythonMemory,
}

/// A description of an array. `shape` and `strides` point into the array, and are valid until it is released.
///
/// Later versions may add fields at the end. `describe_sized` fills all fields within its `size`. `describe` fills the
/// fields up to `contiguous` in every version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeDescription {
    /// The address of the first element; NULL for an empty array.
    pub data: *mut c_void,
    /// The `ndim` extents.
    pub shape: *const i64,
    /// The `ndim` strides, in elements. They are listed for a C-contiguous array, too.
    pub strides: *const i64,
    /// The number of dimensions.
    pub ndim: i32,
    /// DLPack's type code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 to 14 8-bit floats. A producer that
    /// speaks DLPack may have another code.
    pub dtype_code: u8,
    /// The bits of a lane.
    pub dtype_bits: u8,
    /// The lanes.
    pub dtype_lanes: u16,
    /// DLPack's device type: 2 CUDA, 3 pinned host memory, 13 managed memory.
    pub device_type: i32,
    /// The ordinal that DLPack shows. DLPack's header asks for 0 for pinned and managed memory; if a tensor says
    /// another number, that is shown. `device` returns the GPU that the producer works on.
    pub device_id: i32,
    /// 1 if the memory must not be written, else 0.
    pub readonly: i32,
    /// 1 if the elements are C-contiguous, else 0.
    pub contiguous: i32,
}

/// The table of functions. A later version adds functions at the end: before you call one, compare `version` with the
/// version that added it.
///
/// A function that returns a pointer through an argument sets it to NULL first, so it is NULL after a failure.
///
/// Functions that return an int return 0 on success, and -1 with a Python exception set on failure; `device` returns a
/// GPU's number, or -1. In a thread without a Python thread state a failure returns -1 without an exception. After the
/// interpreter has ended, so does every call that needs it. If a call that may be made without the interpreter's lock
/// succeeds, it keeps an exception that was pending before it. NULL for an array, an export, a tensor or an output is a
/// `ValueError`, but `describe` and `release` accept NULL. Using an array after its release, or a stream that does not
/// exist, is undefined behaviour.
///
/// A stream is a `cudaStream_t` or `CUstream`, as an integer. As an argument, 0 and 1 are the legacy default stream,
/// and 2 is the calling thread's default stream. A default stream belongs to the GPU that `device` returns; in an
/// export or an `import_tensor`, to the GPU `device_id`.
#[repr(C)]
#[derive(Debug)]
pub struct CaiBridgeApi {
    /// The version of this table, which is the installed package's. It may be below or above the header's
    /// `CAI_BRIDGE_VERSION`.
    pub version: u32,
    /// Imports an object that speaks DLPack or the CUDA Array Interface, or a DLPack capsule. The caller must hold the
    /// interpreter's lock, and must later release the array. If `object` is NULL, the call fails with the exception
    /// that is pending, or with a `TypeError` if none is.
    pub import_object:
        unsafe extern "C" fn(object: *mut PyObject, out: *mut *mut CaiBridgeArray) -> c_int,
    /// Describes an array. If `array` is NULL, sets every field up to `contiguous` to 0. If `out` is NULL, does
    /// nothing.
    pub describe:
        unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut CaiBridgeDescription),
    /// Makes a stream wait for the work that the array's producer has queued. Call it with or without the interpreter's
    /// lock.
    pub order: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Makes the producer's stream wait for the work that is queued on `stream` so far. The array stays usable. Once
    /// you have queued work on the array, call this before `release`, also if an error ends your function. Call it with
    /// or without the interpreter's lock. If it fails, call it again, or call `release`: then the memory is kept until
    /// the wait is made, for which the host may wait. A producer that names no stream (a capsule, or `__dlpack__`
    /// alone) cannot be made to wait. Its memory is kept until the work is done, and the legacy default stream waits.
    /// You must order the producer's later writes to the memory yourself.
    pub give_back: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Releases an array, once; NULL is ignored. No stream waits for work on a stream that was not passed to
    /// `give_back`. Call it with or without the interpreter's lock, on any thread. After the interpreter has ended the
    /// memory does not go back: it lives until the process ends.
    pub release: unsafe extern "C" fn(array: *mut CaiBridgeArray),
    /// Since version 2. Makes a Python object of memory. The object speaks DLPack and the CUDA Array Interface. The
    /// caller holds the interpreter's lock, and owns the new reference. After -1 the deleter is never called. As far as
    /// the driver can tell, refuses a missing GPU, an address that CUDA does not know, CUDA memory of another GPU, and
    /// for CUDA memory a stream of another GPU.
    pub export_object:
        unsafe extern "C" fn(memory: *const CaiBridgeExport, out: *mut *mut PyObject) -> c_int,
    /// Since version 3. Returns the ordinal of the GPU that the array's producer works on, or -1 if `array` is NULL. In
    /// calls with this array, the streams 0, 1 and 2 are default streams of that GPU. The caller need not hold the
    /// interpreter's lock.
    pub device: unsafe extern "C" fn(array: *const CaiBridgeArray) -> i32,
    /// Since version 4. Describes an array in a structure of `size` bytes: pass `sizeof(CaiBridgeDescription)`. Fields
    /// that this package does not know are set to 0. Refuses a size below that of the structure's first version and,
    /// unlike `describe`, NULL.
    pub describe_sized: unsafe extern "C" fn(
        array: *const CaiBridgeArray,
        out: *mut CaiBridgeDescription,
        size: usize,
    ) -> c_int,
    /// Since version 4. Like `export_object`, from a structure of `size` bytes: pass `sizeof(CaiBridgeExport)`. Refuses
    /// a size below that of the structure's first version. Refuses a field that this package does not know, unless it
    /// is 0.
    pub export_sized: unsafe extern "C" fn(
        memory: *const CaiBridgeExport,
        size: usize,
        out: *mut *mut PyObject,
    ) -> c_int,
    /// Since version 4. Imports a managed tensor that is ready on `stream`, which is the producer's stream for
    /// `give_back`. The stream belongs to the GPU `device_id`, and CUDA memory must be on that GPU. The stream must
    /// exist until the tensor's deleter is called. The caller holds the interpreter's lock. If the call returns 0, the
    /// array owns the tensor. The deleter may be called on any thread, with or without the interpreter's lock, and must
    /// not throw. If the call returns -1, the caller still owns the tensor.
    pub import_tensor: unsafe extern "C" fn(
        tensor: *mut DLManagedTensorVersioned,
        device_id: i32,
        stream: u64,
        out: *mut *mut CaiBridgeArray,
    ) -> c_int,
    /// Since version 4. Writes the streams that the memory is ready on to `streams`, which has room for two. The second
    /// is 0 if there is only one. Both are 0 if nothing is pending. Work on another stream must wait for both, as
    /// `order` makes it. There are two if the producer's `__cuda_array_interface__` names another stream than the
    /// first. Do not use a stream after the array is released, or after the producer has destroyed the stream. Call it
    /// with or without the interpreter's lock.
    pub ready_on: unsafe extern "C" fn(array: *const CaiBridgeArray, streams: *mut u64) -> c_int,
    /// Since version 4. Describes an array in `out`, which points to a `DLTensor` of dlpack.h. The `DLTensor` owns
    /// nothing, and is valid until the array is released. Unlike the description, it does not say whether the memory is
    /// read-only.
    pub tensor: unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut c_void) -> c_int,
}
