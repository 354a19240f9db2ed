//! Memory of an extension in C as an object of Python's.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::sync::{Arc, OnceLock};

use dlpark::Managed;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::python::ImportedDlpack;
use pyo3::exceptions::PyValueError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::abi::{CaiBridgeArray, CaiBridgeExport};
use super::answer::{answer_at, check, check_size};
use crate::array::{Array, Owner, RustStream, WorkStream};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind, Place};
use crate::dlpack::decode;
use crate::driver::Handle;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::MAX_NDIM;
use crate::py::interpreter::{attached, detach};
use crate::py::lease::Holding;
use crate::py::observe::By;
use crate::py::producers::device::{check_exists, check_memory};
use crate::py::rust::memory::PythonMemory;
use crate::py::source::check_stream;
use crate::py::streams::StreamRef;
use crate::stream::{Alive, Ready, Stream, Thread};

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

/// An exporter's memory.
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
            let before = attached(PyErr::take).flatten();
            // SAFETY: called once, with what it came with.
            unsafe { deleter(self.owner) }
            // A call that failed there, such as `give_back`, has nobody else to raise its exception.
            attached(|py| {
                if let Some(left) = PyErr::take(py) {
                    let named = PyString::new(py, "the deleter of an export");
                    left.write_unraisable(py, Some(&named));
                }
                if let Some(before) = before {
                    before.restore(py);
                }
            });
        }
    }
}

impl Exported {
    /// Checks what an exporter says.
    ///
    /// # Safety
    ///
    /// The lists of `from` have `ndim` numbers.
    unsafe fn read(from: &CaiBridgeExport) -> Result<Self> {
        let ndim = usize::try_from(from.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM);
        let ndim = ndim.ok_or_else(|| Error::new(Kind::Ndim, from.ndim.to_string()))?;
        let list = |numbers: *const i64| match ndim {
            0 => Vec::new(),
            // SAFETY: the caller's; not NULL, by the checks of both uses.
            _ => unsafe { std::slice::from_raw_parts(numbers, ndim) }.to_vec(),
        };
        if ndim > 0 && from.shape.is_null() {
            return Err(Error::new(Kind::NullShape, format!("NULL for {ndim} dimensions")));
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

impl Exporters {
    /// Refuses a GPU that is missing, and, where a driver can tell, a stream or memory of another GPU. Managed and pinned
    /// memory goes back to the stream's GPU.
    fn check(&mut self, py: Python<'_>, array: &Descriptor, driver: &Handle) -> Result<()> {
        let Self(stream, ordinal) = *self;
        if driver.get().is_err() {
            return Ok(());
        }
        driver.open(ordinal, |call| detach(py, call));
        check_exists(driver, ordinal, "device_id", ordinal)?;
        let stream = Stream::from_native(stream, Thread::current());
        // SAFETY: the exporter's, which exists until the deleter is called.
        let alive = unsafe { Alive::kept(stream, Place::gpu(ordinal)) };
        self.1 = check_stream(array, driver, Some(alive), alive.place())?.ordinal;
        check_memory(driver, array)
    }
}

/// The size of the first version of the structure.
const FIRST: usize = offset_of!(CaiBridgeExport, deleter) + size_of::<usize>();

/// The export of `size` bytes. Fields that it is too short for are 0; bytes behind the fields must be 0.
///
/// # Safety
///
/// `from` points to as many bytes.
unsafe fn known(from: *const CaiBridgeExport, size: usize) -> PyResult<CaiBridgeExport> {
    // SAFETY: the caller's.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let (fields, more) = bytes.split_at(size.min(size_of::<CaiBridgeExport>()));
    if more.iter().any(|byte| *byte != 0) {
        let text = "export: got a field that this version of cai_bridge does not know; allowed: 0 in its place";
        return Err(PyValueError::new_err(text));
    }
    let mut known = MaybeUninit::<CaiBridgeExport>::zeroed();
    let to = known.as_mut_ptr().cast::<u8>();
    // SAFETY: no more bytes than the structure has.
    unsafe { to.copy_from_nonoverlapping(fields.as_ptr(), fields.len()) };
    // SAFETY: numbers, pointers and an optional function, of which 0 is a value; the rest are the caller's.
    Ok(unsafe { known.assume_init() })
}

pub(super) unsafe extern "C" fn export_object(
    from: *const CaiBridgeExport,
    out: *mut *mut PyObject,
) -> c_int {
    // SAFETY: the caller's, by the table's text.
    unsafe { export_sized(from, FIRST, out) }
}

pub(super) unsafe extern "C" fn export_sized(
    from: *const CaiBridgeExport,
    size: usize,
    out: *mut *mut PyObject,
) -> c_int {
    let export = |py: Python<'_>| {
        check(from, "export", "the address of a CaiBridgeExport")?;
        check_size(size, FIRST, "CaiBridgeExport")?;
        // SAFETY: not NULL, and of `size` bytes, by the caller.
        let from = unsafe { known(from, size) }?;
        // SAFETY: the caller's lists.
        let mut exported = unsafe { Exported::read(&from) }?;
        let (array, driver) = (Array::describe(&exported)?, exported.stream.driver()?);
        exported.stream.check(py, &array, &driver)?;
        let place = Arc::clone(&exported.deleter);
        let object = Array::from_owner(exported)?.into_pyobject(py)?;
        if let Some(deleter) = from.deleter {
            let _ = place.set(deleter);
        }
        Ok(object.into_ptr())
    };
    // SAFETY: the caller's place for a pointer, or NULL.
    unsafe { answer_at(out, export) }
}

pub(super) unsafe extern "C" fn import_tensor(
    tensor: *mut DLManagedTensorVersioned,
    device_id: i32,
    stream: u64,
    out: *mut *mut CaiBridgeArray,
) -> c_int {
    let import = |py: Python<'_>| {
        check(tensor.cast_const(), "tensor", "the address of a DLManagedTensorVersioned")?;
        // SAFETY: not NULL, and a tensor, by the table's text.
        let (array, _) = unsafe { decode::versioned(tensor) }?;
        let Device { kind, id } = array.device();
        if kind == MemoryKind::Device && id != device_id {
            let got = format!("{device_id} for an array on device {id}");
            return Err(Error::at(Kind::StreamDevice, "device_id", got).into());
        }
        let mut stream = Exporters(stream, device_id);
        let driver = stream.driver()?;
        stream.check(py, &array, &driver)?;
        let home = StreamRef::held(&driver, RustStream::of(&stream))?;
        // SAFETY: as above; it is this array's from here on.
        let taken = unsafe { Managed::from_raw(tensor) };
        let taken =
            taken.map_err(|error| Error::at(Kind::NullData, "tensor", error.to_string()))?;
        let managed = Some(ImportedDlpack::Versioned(taken));
        let mut source = Holding::array(py.None(), managed, driver, By::Rust);
        source.set_place(stream.place());
        source.array = array;
        source.produced(Ready::On(home.stream()), Some(home), None);
        let (array, taken) = PythonMemory::new(source);
        Ok(Box::into_raw(Box::new(CaiBridgeArray { array, taken })))
    };
    // SAFETY: the caller's place for a pointer, or NULL.
    unsafe { answer_at(out, import) }
}
