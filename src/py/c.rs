//! The C interface: a table of functions in a capsule of the Python package, for extensions in C and C++.
//!
//! `python/cai_bridge/include/cai_bridge.h` is generated from this file. An extension imports the table once, with
//! `PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0)`, and shares the package's state: it needs nothing of Rust's to build.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "cbindgen reads what is public")]

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyValueError;
use pyo3::ffi::PyObject;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use crate::array::origin::Origin;
use crate::array::{Array, Owner, WorkStream};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind, Place};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result, caught};
use crate::layout::MAX_NDIM;
use crate::py::doors::to_cai::source;
use crate::py::interpreter::{attached, detach};
use crate::py::producers::device::{check_exists, check_memory};
use crate::py::rust::memory::PythonMemory;
use crate::py::source::check_stream;
use crate::stream::{Alive, Stream, Thread};

/// The version of the table that this header declares. Later ones only add fields at its end.
pub const CAI_BRIDGE_VERSION: u32 = 3;

/// Memory to be handed out. What the pointers point to is read during the call, and `owner` is kept.
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
}

static API: CaiBridgeApi = CaiBridgeApi {
    version: CAI_BRIDGE_VERSION,
    import_object,
    describe,
    order,
    give_back,
    release,
    export_object,
    device,
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
        match caught(|| call(py))
            .unwrap_or_else(|_| Err(PanicException::new_err("a panic in cai_bridge")))
        {
            Ok(()) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    });
    done.unwrap_or(-1)
}

/// Refuses NULL.
fn check<T>(pointer: *const T, what: &str, allowed: &str) -> PyResult<()> {
    if pointer.is_null() {
        return Err(PyValueError::new_err(format!("{what}: got NULL; allowed: {allowed}")));
    }
    Ok(())
}

/// Refuses NULL for an array.
fn check_array(array: *const CaiBridgeArray) -> PyResult<()> {
    check(array, "array", "an array that was imported")
}

/// Refuses NULL for the caller's place for an answer.
fn check_out<T>(out: *mut T) -> PyResult<()> {
    check(out.cast_const(), "out", "the address of a place for the answer")
}

unsafe extern "C" fn import_object(object: *mut PyObject, out: *mut *mut CaiBridgeArray) -> c_int {
    answer(|py| {
        if object.is_null() {
            let said = PyErr::take(py);
            return Err(said.unwrap_or_else(|| Error::new(Kind::Protocol, "NULL").into()));
        }
        check_out(out)?;
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
    if out.is_null() {
        return;
    }
    if array.is_null() {
        // SAFETY: the caller's place for a description, whose bytes may all be 0.
        return unsafe { out.write_bytes(0, 1) };
    }
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

/// Calls `make` with the array and the proof that the stream is alive, which is none of another GPU's.
///
/// # Safety
///
/// The array is one of `import_object`, not released yet, or NULL; the stream exists as long as the call.
unsafe fn with_stream(
    array: *const CaiBridgeArray,
    stream: u64,
    make: impl FnOnce(&CaiBridgeArray, Alive<'_>) -> Result<()>,
) -> c_int {
    // SAFETY: the caller's.
    let Some(array) = (unsafe { array.as_ref() }) else { return answer(|_| check_array(array)) };
    if array.array.ptr() == 0 {
        return 0;
    }
    answer(|_| {
        let stream = Stream::from_native(stream, Thread::current());
        // SAFETY: the caller's.
        let alive = |place| unsafe { Alive::kept(stream, place) };
        let place = array.taken.check_stream(&array.array, alive(array.taken.place()))?;
        Ok(make(array, alive(place))?)
    })
}

unsafe extern "C" fn order(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: the caller's, by the table's text.
    unsafe { with_stream(array, stream, |it, alive| it.taken.hand_over("C", &it.array, alive)) }
}

unsafe extern "C" fn give_back(array: *const CaiBridgeArray, stream: u64) -> c_int {
    // SAFETY: the caller's, by the table's text.
    unsafe { with_stream(array, stream, |it, alive| it.taken.give_back_or_owe(alive)) }
}

unsafe extern "C" fn device(array: *const CaiBridgeArray) -> i32 {
    // SAFETY: an array of `import_object`, not released yet, or NULL.
    match unsafe { array.as_ref() } {
        Some(array) => array.taken.place().ordinal,
        None => answer(|_| check_array(array)),
    }
}

unsafe extern "C" fn release(array: *mut CaiBridgeArray) {
    if !array.is_null() {
        // SAFETY: an array of `import_object`, released once.
        let array = unsafe { Box::from_raw(array) };
        let _ = caught(|| drop(array));
    }
}

/// A stream of an exporter's.
#[derive(Clone)]
struct Exporters(u64, i32);

// SAFETY: the stream is one of that GPU, and exists until the deleter is called, by the text of `CaiBridgeExport`; an
// array drops its owner, which calls that, after the last use of the stream.
unsafe impl WorkStream for Exporters {
    fn handle(&self) -> u64 {
        self.0
    }

    fn place(&self) -> Place {
        Place::gpu(self.1)
    }
}

/// What an exporter handed over.
struct Exported {
    stream: Exporters,
    ptr: u64,
    dtype: Dtype,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    device: Device,
    readonly: bool,
    owner: *mut c_void,
    /// Set once there is an object: a refusal leaves the memory with the exporter.
    deleter: Arc<OnceLock<unsafe extern "C" fn(*mut c_void)>>,
}

// SAFETY: the deleter takes the owner on any thread, by the text of `CaiBridgeExport`, and nothing else touches it.
unsafe impl Send for Exported {}

// SAFETY: the exporter's own description, which it vouches for by calling `export_object`.
unsafe impl Owner for Exported {
    type Stream = Exporters;

    fn stream(&self) -> &Exporters {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.ptr
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[i64] {
        &self.shape
    }

    fn strides(&self) -> Option<&[i64]> {
        self.strides.as_deref()
    }

    fn device(&self) -> Device {
        self.device
    }

    fn readonly(&self) -> bool {
        self.readonly
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter.get() {
            // SAFETY: called once, with what it came with.
            unsafe { deleter(self.owner) }
        }
    }
}

impl Exported {
    /// Checks what an exporter says.
    ///
    /// # Safety
    ///
    /// `from` is an export, whose lists have `ndim` numbers.
    unsafe fn read(from: *const CaiBridgeExport) -> Result<Self> {
        // SAFETY: the caller's.
        let from = unsafe { &*from };
        let ndim = usize::try_from(from.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM);
        let ndim = ndim.ok_or_else(|| Error::new(Kind::Ndim, from.ndim.to_string()))?;
        let list = |numbers: *const i64| match ndim {
            0 => Vec::new(),
            // SAFETY: the caller's; not NULL, by the checks of both uses.
            _ => unsafe { std::slice::from_raw_parts(numbers, ndim) }.to_vec(),
        };
        if ndim > 0 && from.shape.is_null() {
            return Err(Error::at(Kind::Ndim, "shape", "NULL"));
        }
        let device = Device::from_dlpack(from.device_type.cast_unsigned(), from.device_id)?;
        // DLPack's header asks for 0 where every GPU reaches the memory.
        let id = if device.kind == MemoryKind::Device { device.id } else { 0 };
        Ok(Self {
            stream: Exporters(from.stream, from.device_id),
            ptr: from.data as u64,
            dtype: Dtype::from_dlpack(from.dtype_code, from.dtype_bits, from.dtype_lanes)?,
            shape: list(from.shape),
            strides: (!from.strides.is_null()).then(|| list(from.strides)),
            device: Device { id, ..device },
            readonly: from.readonly != 0,
            owner: from.owner,
            deleter: Arc::default(),
        })
    }
}

impl Exported {
    /// Refuses a GPU that is not there, and a stream or memory of another than said, where a driver can tell. Managed and
    /// pinned memory goes back to where the stream is.
    fn check(&mut self, py: Python<'_>) -> Result<()> {
        let (array, driver) = (Array::describe(self)?, self.stream.driver()?);
        let Exporters(stream, ordinal) = self.stream;
        if driver.get().is_err() {
            return Ok(());
        }
        driver.open(ordinal, |call| detach(py, call));
        check_exists(&driver, ordinal, "device_id", ordinal)?;
        let stream = Stream::from_native(stream, Thread::current());
        // SAFETY: the exporter's, which exists until the deleter is called.
        let alive = unsafe { Alive::kept(stream, Place::gpu(ordinal)) };
        self.stream.1 = check_stream(&array, &driver, Some(alive), alive.place())?.ordinal;
        check_memory(&driver, &array)
    }
}

unsafe extern "C" fn export_object(from: *const CaiBridgeExport, out: *mut *mut PyObject) -> c_int {
    answer(|py| {
        check(from, "export", "the address of a CaiBridgeExport")?;
        check_out(out)?;
        // SAFETY: not NULL, by the above; the caller's, by the table's text.
        let mut exported = unsafe { Exported::read(from) }?;
        exported.check(py)?;
        let place = Arc::clone(&exported.deleter);
        let object = Array::from_owner(exported)?.into_pyobject(py)?;
        // SAFETY: as above.
        if let Some(deleter) = unsafe { (*from).deleter } {
            let _ = place.set(deleter);
        }
        // SAFETY: the caller's place for a pointer.
        unsafe { out.write(object.into_ptr()) };
        Ok(())
    })
}
