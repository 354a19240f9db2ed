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

/// Memory to export. The call copies the lists, and keeps `owner`.
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
    /// The lanes: 1, or more for vectors.
    pub dtype_lanes: u16,
    /// DLPack's device type: 2 CUDA, 3 pinned host memory, 13 managed memory.
    pub device_type: i32,
    /// The ordinal of the GPU of `stream`. CUDA memory must be on this GPU; managed and pinned memory belongs to no
    /// GPU. To export an imported array again, pass what `device` returns, not the description's `device_id`.
    pub device_id: i32,
    /// 1 if the memory is read-only, else 0.
    pub readonly: i32,
    /// The stream on which the memory is ready, and to which it goes back: a `cudaStream_t` or `CUstream`. It must
    /// exist until `deleter` is called. `owner` keeps it alive. If a caller passed it as a number, the caller must keep
    /// it as long as the array.
    pub stream: u64,
    /// The argument of `deleter`.
    pub owner: *mut c_void,
    /// Called once, when the memory has no user left and `stream` waits for the last work on it. The last work may
    /// still run, so free the memory in the order of `stream`, as `cudaFreeAsync` does. The call may come on any
    /// thread, without the interpreter's lock. The deleter may take the lock while the interpreter runs
    /// (`PyGILState_Ensure`), and must not throw. NULL means that there is nothing to do. If the memory is in use when
    /// the interpreter ends, `deleter` is not called, and the memory lives until the process ends.
    pub deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// An imported array. It keeps the memory until it is released.
#[derive(Debug)]
pub struct CaiBridgeArray {
    pub(super) array: Descriptor,
    pub(super) taken: PythonMemory,
}

/// A description of an array. The lists belong to the array, and are valid until it is released.
///
/// Later versions may add fields at the end, which `describe_sized` fills. `describe` fills the fields up to
/// `contiguous` in every version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeDescription {
    /// The address of the first element; NULL for an empty array.
    pub data: *mut c_void,
    /// The extents.
    pub shape: *const i64,
    /// The strides, in elements.
    pub strides: *const i64,
    /// The number of dimensions.
    pub ndim: i32,
    /// DLPack's type code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 to 14 8-bit floats.
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
/// number, or -1. In a thread without a Python thread state a failure returns -1 without an exception. So does every
/// call after the interpreter has ended. A call that succeeds keeps an exception that was pending before it. NULL for
/// an array, an export or an output is a `ValueError`. Using an array after its release, or a stream that does not
/// exist, is undefined behaviour.
///
/// A stream is a `cudaStream_t` or `CUstream`, as an integer. 0 and 1 are the legacy default stream, and 2 is the
/// calling thread's default stream. Both are streams of the GPU that `device` returns; in an export, of `device_id`.
#[repr(C)]
#[derive(Debug)]
pub struct CaiBridgeApi {
    /// The version of this table, which is the installed package's. It may be below or above the header's
    /// `CAI_BRIDGE_VERSION`.
    pub version: u32,
    /// Imports an object that speaks DLPack or the CUDA Array Interface, or a capsule. The caller holds the
    /// interpreter's lock, and must release the array. If the object is NULL, a pending exception is kept.
    pub import_object:
        unsafe extern "C" fn(object: *mut PyObject, out: *mut *mut CaiBridgeArray) -> c_int,
    /// Describes an array. If `array` is NULL, every field is 0.
    pub describe:
        unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut CaiBridgeDescription),
    /// Makes a stream wait for the work that the array's producer has queued. Call it with or without the interpreter's
    /// lock.
    pub order: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Makes the producer's stream wait for the work queued on a stream. The array stays usable. Once work is queued,
    /// every way out needs this call, after an error too. Call it with or without the interpreter's lock. If it fails,
    /// call it again, or call `release`, which then keeps the memory until the wait is made. If the stream is only
    /// known by its handle, the host makes that wait. A producer that names no stream (a capsule, or `__dlpack__`
    /// alone) cannot be made to wait. Its memory is kept until the work is done, and the legacy default stream waits.
    /// You must order the producer's later writes in place yourself.
    pub give_back: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Releases an array, once; NULL is ignored. Does not wait for work on streams that were not passed to `give_back`.
    /// Call it with or without the interpreter's lock, on any thread. After the interpreter has ended it does nothing,
    /// and the memory lives until the process ends.
    pub release: unsafe extern "C" fn(array: *mut CaiBridgeArray),
    /// Since version 2. Makes a Python object of memory. The object speaks DLPack and the CUDA Array Interface. The
    /// caller holds the interpreter's lock, and owns the new reference. After -1 the deleter is never called. Refuses a
    /// GPU that is missing and, if the driver can tell, a stream or CUDA memory of another GPU.
    pub export_object:
        unsafe extern "C" fn(memory: *const CaiBridgeExport, out: *mut *mut PyObject) -> c_int,
    /// Since version 3. Returns the GPU that the array's producer works on, or -1. Streams 1 and 2 are default streams
    /// of this GPU. Call it with or without the interpreter's lock.
    pub device: unsafe extern "C" fn(array: *const CaiBridgeArray) -> i32,
    /// Since version 4. Describes an array in a structure of `size` bytes: pass `sizeof(CaiBridgeDescription)`. Fields
    /// that this package does not know are set to 0. Refuses a size below that of the structure's first version.
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
    /// Since version 4. Imports a managed tensor that is ready on `stream` and goes back to it. The stream belongs to
    /// the GPU `device_id`, as must CUDA memory. The stream must exist until the tensor's deleter is called. The caller
    /// holds the interpreter's lock. After 0 the array owns the tensor. It calls the deleter on any thread, without the
    /// interpreter's lock; the deleter must not throw. After -1 the caller still owns the tensor.
    pub import_tensor: unsafe extern "C" fn(
        tensor: *mut DLManagedTensorVersioned,
        device_id: i32,
        stream: u64,
        out: *mut *mut CaiBridgeArray,
    ) -> c_int,
    /// Since version 4. Writes the streams that the memory is ready on to `streams`, which has room for two; 0 for
    /// none. Work on other streams must wait for both, as `order` makes it. There are two if the producer's protocols
    /// name different streams. The streams exist while the producer keeps them and the array is not released. Call it
    /// with or without the interpreter's lock.
    pub ready_on: unsafe extern "C" fn(array: *const CaiBridgeArray, streams: *mut u64) -> c_int,
    /// Since version 4. Describes an array as a `DLTensor` of dlpack.h. The `DLTensor` owns nothing, and is valid until
    /// the array is released. Unlike the description, it does not say whether the memory is read-only.
    pub tensor: unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut c_void) -> c_int,
}
