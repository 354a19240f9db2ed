//! Exports memory of a C extension as a Python object, and imports a C extension's managed tensor.
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
use crate::py::lease::{HeldMemory, Readiness};
use crate::py::observe::By;
use crate::py::producers::device::{check_exists, check_memory};
use crate::py::rust::memory::PythonMemory;
use crate::py::source::check_stream;
use crate::py::streams::StreamRef;
use crate::stream::{Alive, Ready, Stream, Thread};

/// The stream that the C caller named, and the stream's GPU.
#[derive(Clone)]
struct Exporters(u64, i32);

// SAFETY: the stream belongs to that GPU, and exists until the deleter is called, by the contracts of `CaiBridgeExport`
// and `import_tensor`. The last use of the stream comes before the call of the deleter.
unsafe impl WorkStream for Exporters {
    fn handle(&self) -> u64 {
        self.0
    }

    fn place(&self) -> Place {
        Place::gpu(self.1)
    }
}

struct ExportedMemory {
    stream: Exporters,
    ptr: u64,
    dtype: Dtype,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    device: Device,
    readonly: bool,
    owner: *mut c_void,
    /// Not set before the Python object is made: if the export fails, the exporter still owns the memory.
    deleter: Arc<OnceLock<unsafe extern "C" fn(*mut c_void)>>,
}

// SAFETY: only the deleter uses `owner`, and the deleter may be called on any thread, by the contract of
// `CaiBridgeExport`. The other fields are `Send`.
unsafe impl Send for ExportedMemory {}

// SAFETY: the fields do not change. They describe memory that is ready on `stream`, and that the exporter keeps until
// the deleter is called, by the contract of `CaiBridgeExport`. The drop of this value calls the deleter.
unsafe impl Owner for ExportedMemory {
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

impl Drop for ExportedMemory {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter.get() {
            let before = attached(PyErr::take).flatten();
            // SAFETY: `deleter` and `owner` come from the exporter and belong together, and this drop runs once.
            unsafe { deleter(self.owner) }
            // The deleter may have left an exception pending.
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

impl ExportedMemory {
    /// Reads all fields of an export but `deleter`. Does not check the values of the address, the extents and the
    /// strides.
    ///
    /// # Safety
    ///
    /// `from.shape` and `from.strides` each point to `ndim` integers, or are NULL.
    unsafe fn read(from: &CaiBridgeExport) -> Result<Self> {
        let ndim = usize::try_from(from.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM);
        let ndim = ndim.ok_or_else(|| Error::new(Kind::Ndim, from.ndim.to_string()))?;
        let list = |numbers: *const i64| match ndim {
            0 => Vec::new(),
            // SAFETY: `numbers` points to `ndim` integers, as the caller promises. Both uses refuse NULL.
            _ => unsafe { std::slice::from_raw_parts(numbers, ndim) }.to_vec(),
        };
        if ndim > 0 && from.shape.is_null() {
            return Err(Error::new(Kind::NullShape, format!("NULL for {ndim} dimensions")));
        }
        let device = Device::from_dlpack(from.device_type.cast_unsigned(), from.device_id)?;
        // By `dlpack.h`, pinned and managed memory has the device number 0.
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
    /// Checks this stream, its GPU and the memory of `array` as far as the driver knows them. Without a driver, checks
    /// nothing.
    fn check(&mut self, py: Python<'_>, array: &Descriptor, driver: &Handle) -> Result<()> {
        let Self(stream, ordinal) = *self;
        if driver.get().is_err() {
            return Ok(());
        }
        driver.open(ordinal, |call| detach(py, call));
        check_exists(driver, ordinal, "device_id", ordinal)?;
        let stream = Stream::from_native(stream, Thread::current());
        // SAFETY: the stream exists until the deleter is called, by the contracts of `CaiBridgeExport` and
        // `import_tensor`. Nothing calls the deleter during this call.
        let alive = unsafe { Alive::kept(stream, Place::gpu(ordinal)) };
        self.1 = check_stream(array, driver, Some(alive), alive.place())?.ordinal;
        check_memory(driver, array)
    }
}

/// The size of the first version of `CaiBridgeExport`.
const FIRST: usize = offset_of!(CaiBridgeExport, deleter) + size_of::<usize>();

/// Reads an export of `size` bytes. Fields beyond `size` are 0. Fails if a byte beyond the known fields is not 0.
///
/// # Safety
///
/// `from` points to `size` readable bytes.
unsafe fn known(from: *const CaiBridgeExport, size: usize) -> PyResult<CaiBridgeExport> {
    // SAFETY: `from` points to `size` readable bytes, as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let (fields, more) = bytes.split_at(size.min(size_of::<CaiBridgeExport>()));
    if more.iter().any(|byte| *byte != 0) {
        let text = "export: got a field that this version of cai_bridge does not know; allowed: 0 in its place";
        return Err(PyValueError::new_err(text));
    }
    let mut known = MaybeUninit::<CaiBridgeExport>::zeroed();
    let to = known.as_mut_ptr().cast::<u8>();
    // SAFETY: `fields` is at most as long as `known`, which is a new value.
    unsafe { to.copy_from_nonoverlapping(fields.as_ptr(), fields.len()) };
    // SAFETY: 0 is valid for every field: numbers, pointers and an optional function. All other bytes come from the
    // caller's structure.
    Ok(unsafe { known.assume_init() })
}

pub(super) unsafe extern "C" fn export_object(
    from: *const CaiBridgeExport,
    out: *mut *mut PyObject,
) -> c_int {
    // SAFETY: `from` is NULL or has the `FIRST` bytes, and `out` is NULL or writable, by the contract of
    // `CaiBridgeApi`.
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
        // SAFETY: `from` is not NULL, so it points to `size` bytes, by the contract of `CaiBridgeApi`.
        let from = unsafe { known(from, size) }?;
        // SAFETY: shape and strides point to `ndim` integers or are NULL, by the contract of `CaiBridgeExport`.
        let mut exported = unsafe { ExportedMemory::read(&from) }?;
        let (array, driver) = (Array::describe(&exported)?, exported.stream.driver()?);
        exported.stream.check(py, &array, &driver)?;
        let place = Arc::clone(&exported.deleter);
        let object = Array::from_owner(exported)?.into_pyobject(py)?;
        if let Some(deleter) = from.deleter {
            let _ = place.set(deleter);
        }
        Ok(object.into_ptr())
    };
    // SAFETY: `out` is NULL or writable, by the contract of `CaiBridgeApi`.
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
        // SAFETY: `tensor` is not NULL, so it points to a managed tensor, by the contract of `CaiBridgeApi`.
        let (array, _) = unsafe { decode::versioned(tensor) }?;
        let Device { kind, id } = array.device();
        if kind == MemoryKind::Device && id != device_id {
            let got = format!("{device_id} for an array on device {id}");
            return Err(Error::at(Kind::StreamDevice, "device_id", got).into());
        }
        let mut stream = Exporters(stream, device_id);
        let driver = stream.driver()?;
        stream.check(py, &array, &driver)?;
        let producer = StreamRef::held(&driver, RustStream::of(&stream))?;
        // SAFETY: `tensor` points to a managed tensor, which the caller hands over. `from_raw` fails only for another
        // major version, which `decode::versioned` has refused.
        let taken = unsafe { Managed::from_raw(tensor) };
        let taken =
            taken.map_err(|error| Error::at(Kind::NullData, "tensor", error.to_string()))?;
        let managed = Some(ImportedDlpack::Versioned(taken));
        let mut source = HeldMemory::array(py.None(), managed, driver, By::Rust);
        source.set_place(stream.place());
        source.array = array;
        source.produced(Readiness::of(Ready::On(producer.stream()), Some(producer)));
        let (array, taken) = PythonMemory::new(source);
        Ok(Box::into_raw(Box::new(CaiBridgeArray { array, taken })))
    };
    // SAFETY: `out` is NULL or writable, by the contract of `CaiBridgeApi`.
    unsafe { answer_at(out, import) }
}
