//! The declarations of the C interface's header.
//!
//! `python/cai_bridge/include/cai_bridge.h` is generated from this file.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "cbindgen reads what is public")]

use std::ffi::{c_int, c_void};

use dlpark::ffi::DLManagedTensorVersioned;
use pyo3::ffi::PyObject;

use crate::descriptor::Descriptor;
use crate::py::rust::memory::PythonMemory;

/// The version of the table that this header declares. Later versions only add functions at the end of the table, and
/// fields at the ends of the structures. Ask for the version of the newest function that you call.
pub const CAI_BRIDGE_VERSION: u32 = 4;

/// Memory to be handed out. The lists are read during the call; `owner` is kept.
///
/// Later versions may add fields at the end, which `export_sized` takes: 0 in a new field means that nothing has changed.
/// `export_object` reads the fields up to `deleter` in every version.
///
/// The exporter keeps the memory and `stream` until `deleter` is called.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeExport {
    /// The address of the first element; ignored if there is none.
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
    /// The ordinal of the GPU that `stream` is of. CUDA memory is that GPU's; managed and pinned memory has no GPU of its
    /// own. If you hand an imported array on, use the answer of `device`, not the description's `device_id`.
    pub device_id: i32,
    /// 1 if the memory is read-only, else 0.
    pub readonly: i32,
    /// The stream that the memory is ready on, and goes back to: a `cudaStream_t` or `CUstream`. It exists until
    /// `deleter` is called: `owner` keeps it, or, if a caller gave it as a number, the caller keeps it as long as the array.
    pub stream: u64,
    /// The argument of `deleter`.
    pub owner: *mut c_void,
    /// A function that is called once, when the memory has no user any more and `stream` waits for the last work on it. That
    /// work may still run: free memory in the order of `stream`, as `cudaFreeAsync` does. The function is called on any
    /// thread, without the interpreter's lock, which it may take while the interpreter runs (`PyGILState_Ensure`). It must
    /// not throw. NULL if there is nothing to do. If the memory is in use when the interpreter ends, the function is not
    /// called: the memory is left to the end of the process.
    pub deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// An array that was imported. It keeps the memory until it is released.
#[derive(Debug)]
pub struct CaiBridgeArray {
    pub(super) array: Descriptor,
    pub(super) taken: PythonMemory,
}

/// A description of an array. The lists belong to the array, and are valid until it is released.
///
/// Later versions may add fields at the end, which `describe_sized` fills. `describe` fills the fields up to `contiguous` in
/// every version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CaiBridgeDescription {
    /// The address of the first element; NULL if there is none.
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
    /// The ordinal that DLPack shows: 0 for pinned and managed memory, whichever GPU its producer works on, which `device`
    /// tells.
    pub device_id: i32,
    /// 1 if the memory must not be written, else 0.
    pub readonly: i32,
    /// 1 if the elements are C-contiguous, else 0.
    pub contiguous: i32,
}

/// The functions. A later version has more functions at the end: before you call a function, compare `version` with the
/// version that has it.
///
/// A function that answers with a pointer sets it to NULL first, so it is NULL after a failure.
///
/// Functions that return an int return 0 on success, and -1 with a Python exception set on failure; `device` returns a
/// number, or -1. In a thread without a Python thread state a failure is -1 without an exception, and so is every call after
/// the interpreter has ended. An exception that is pending before a call is kept if the call succeeds. NULL for an array, an
/// export or a place for an answer is a `ValueError`. Behaviour is undefined if an array is used after its release, or if a
/// stream does not exist.
///
/// A stream is a `cudaStream_t` or `CUstream`, as an integer: 0 and 1 are the legacy default stream, and 2 is the calling
/// thread's default stream, of the GPU that `device` names; in an export, of `device_id`.
#[repr(C)]
#[derive(Debug)]
pub struct CaiBridgeApi {
    /// `CAI_BRIDGE_VERSION`, or more.
    pub version: u32,
    /// Imports an object that speaks DLPack or the CUDA Array Interface, or a capsule. The caller holds the interpreter's
    /// lock, and releases the array. NULL for an object keeps the exception that is set.
    pub import_object:
        unsafe extern "C" fn(object: *mut PyObject, out: *mut *mut CaiBridgeArray) -> c_int,
    /// Describes an array. For NULL every field is 0.
    pub describe:
        unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut CaiBridgeDescription),
    /// Makes a stream wait for the work that the array's producer has queued. With or without the interpreter's lock.
    pub order: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Makes the producer's stream wait for the work that was queued on a stream; the array stays usable. Once work is queued,
    /// every way out needs this call, that of an error too. With or without the interpreter's lock. If the call fails, call it
    /// again, or call `release`, which then keeps the memory until the wait is made: by the host, if the stream is only known
    /// by its handle. A producer that names no stream (a capsule, or `__dlpack__` alone) cannot be made to wait: its memory is
    /// kept until the work is done, the legacy default stream waits, and its later writes in place are yours to order.
    pub give_back: unsafe extern "C" fn(array: *const CaiBridgeArray, stream: u64) -> c_int,
    /// Releases an array, once; NULL is ignored. It does not wait for work on streams that were not given to `give_back`. With
    /// or without the interpreter's lock, on any thread. After the interpreter has ended nothing happens: the memory is left to
    /// the end of the process.
    pub release: unsafe extern "C" fn(array: *mut CaiBridgeArray),
    /// Since version 2. Makes a Python object of memory, which speaks DLPack and the CUDA Array Interface. The caller holds the
    /// interpreter's lock, and owns the reference that it gets. After -1 the deleter is never called. A GPU that is missing is
    /// refused, and, if the driver can tell, a stream or CUDA memory of another GPU.
    pub export_object:
        unsafe extern "C" fn(memory: *const CaiBridgeExport, out: *mut *mut PyObject) -> c_int,
    /// Since version 3. The GPU that the array's producer works on, whose default streams 1 and 2 name; or -1. With or without
    /// the interpreter's lock.
    pub device: unsafe extern "C" fn(array: *const CaiBridgeArray) -> i32,
    /// Since version 4. Describes an array in a structure of `size` bytes: the caller's `sizeof(CaiBridgeDescription)`. Bytes of
    /// fields that this package does not know are 0. A size below that of the structure's first version is refused.
    pub describe_sized: unsafe extern "C" fn(
        array: *const CaiBridgeArray,
        out: *mut CaiBridgeDescription,
        size: usize,
    ) -> c_int,
    /// Since version 4. Exports as `export_object` does, from a structure of `size` bytes: the caller's `sizeof(CaiBridgeExport)`.
    /// A size below that of the structure's first version is refused, and so is a field that this package does not know and that
    /// is not 0.
    pub export_sized: unsafe extern "C" fn(
        memory: *const CaiBridgeExport,
        size: usize,
        out: *mut *mut PyObject,
    ) -> c_int,
    /// Since version 4. Imports a managed tensor that is ready on a stream of the GPU `device_id` (CUDA memory is that GPU's),
    /// and goes back to that stream, which exists until the tensor's deleter is called. The caller holds the interpreter's lock.
    /// After 0 the array owns the tensor, and calls its deleter on any thread, without the interpreter's lock; it must not
    /// throw. After -1 the caller still owns the tensor.
    pub import_tensor: unsafe extern "C" fn(
        tensor: *mut DLManagedTensorVersioned,
        device_id: i32,
        stream: u64,
        out: *mut *mut CaiBridgeArray,
    ) -> c_int,
    /// Since version 4. Writes the streams that the memory is ready on to two places, 0 for none: work on other streams has to
    /// wait for both, as `order` makes it. There are two if the producer's protocols name one each. The streams exist while the
    /// producer keeps them and the array is not released. With or without the interpreter's lock.
    pub ready_on: unsafe extern "C" fn(array: *const CaiBridgeArray, streams: *mut u64) -> c_int,
    /// Since version 4. Describes an array as a `DLTensor` of dlpack.h, which owns nothing and is valid until the array is
    /// released. Unlike the description, a `DLTensor` does not say whether memory is read-only.
    pub tensor: unsafe extern "C" fn(array: *const CaiBridgeArray, out: *mut c_void) -> c_int,
}
