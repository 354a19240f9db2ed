//! `_Tensor`: a simulated allocation with one array in it. The memory is freed when the Python objects that share it
//! and all exported managed tensors are gone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dlpark::Managed;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::library::{SimulatedLibrary, StreamOnDevice};
use super::session::Session;
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::dlpack::exchange::{Exchange, exchange_producer};
use crate::dlpack::{capsule, encode};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::{Layout, Reach};
use crate::py::interpreter::{Answer, entry, without_lock};
use crate::py::numpy;
use crate::py::views::BaseView;
use crate::stream::Stream;

#[derive(Debug)]
struct TensorMemory {
    library: Arc<SimulatedLibrary>,
    /// The allocation's address; 0 if there is none.
    start: u64,
    array: Descriptor,
    byte_offset: u64,
    /// The memory's GPU. `array` names device 0 for pinned and managed memory.
    ordinal: i32,
    pending: Mutex<Option<StreamOnDevice>>,
    exports: AtomicUsize,
}

impl Drop for TensorMemory {
    fn drop(&mut self) {
        // Release the interpreter's lock for the free, as PyTorch does. The machine reports an invalid free.
        without_lock(|| {
            if let Ok(machine) = self.library.machine() {
                let _ = machine.free(self.start, None);
            }
        });
    }
}

struct TensorExport(Arc<TensorMemory>);

impl Drop for TensorExport {
    fn drop(&mut self) {
        self.0.exports.fetch_sub(1, Ordering::AcqRel);
    }
}

impl TensorMemory {
    fn pending(&self) -> Option<StreamOnDevice> {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order_before(&self, consumer: StreamOnDevice) -> Result<()> {
        self.library.machine()?;
        match self.pending() {
            Some(pending) if self.array.ptr() != 0 => self.library.order(pending, consumer),
            _ => Ok(()),
        }
    }

    fn export<M: dlpark::ManagedTensorBase>(self: &Arc<Self>) -> Result<Managed<M>> {
        self.exports.fetch_add(1, Ordering::AcqRel);
        let keep = Box::new(TensorExport(Arc::clone(self)));
        encode::with_byte_offset(&self.array, self.byte_offset, keep)
    }
}

/// Describes an array as `(ptr, shape, strides in bytes, dtype, item size, read-only, device)`.
pub(super) fn region<'py>(py: Python<'py>, array: &Descriptor) -> PyResult<Bound<'py, PyTuple>> {
    let device = array.device();
    let shape = PyTuple::new(py, array.cai_shape().as_slice())?;
    let strides = PyTuple::new(py, array.cai_strides().as_slice())?;
    let (name, itemsize) = (array.dtype().name(), array.dtype().itemsize());
    let pair = (device.kind.code(), device.id);
    (array.ptr(), shape, strides, name, itemsize, array.readonly(), pair).into_pyobject(py)
}

/// The region (see [`region`]) of a view of the bridge; None for another object. Fails if the view was released.
#[pyfunction]
pub(super) fn _simulated_region<'py>(view: &Bound<'py, PyAny>) -> Answer<'py> {
    let py = view.py();
    entry(py, || {
        let Ok(view) = view.cast::<BaseView>() else { return Ok(None) };
        view.get().check_leased()?;
        region(py, &view.get().array).map(Some)
    })
}

/// The element type, shape and flat values of a NumPy array; None for another object.
#[pyfunction]
pub(super) fn _simulated_values<'py>(data: &Bound<'py, PyAny>) -> Answer<'py> {
    entry(data.py(), || numpy::values(data))
}

/// An array with its own allocation.
#[pyclass(frozen, module = "cai_bridge._core", name = "_Tensor")]
#[derive(Debug)]
pub(crate) struct SimulatedTensor(Arc<TensorMemory>);

struct TensorRequest {
    kind: MemoryKind,
    /// The stream whose pool provides the memory; `None` for memory outside pools.
    pool: Option<StreamOnDevice>,
    label: String,
    reach: Reach,
}

impl TensorRequest {
    fn allocate(&self, library: &SimulatedLibrary, ordinal: i32, offset: u64) -> Result<u64> {
        let machine = library.machine()?;
        let length = match self.reach.below.checked_add(self.reach.above) {
            Some(0) => 0,
            length => length
                .and_then(|length| length.checked_add(offset))
                .ok_or_else(|| Error::new(Kind::ExtentOverflow, format!("offset {offset}")))?,
        };
        machine.on_device(ordinal, || match self.pool {
            Some(pool) => machine.alloc_from_pool(pool.stream, length, &self.label),
            None => machine.alloc(ordinal, length, self.kind, &self.label),
        })
    }
}

#[pymethods]
impl SimulatedTensor {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "an array has as many properties")]
    #[allow(clippy::needless_pass_by_value, reason = "what PyO3 extracts is owned")]
    fn new(
        session: &Bound<'_, Session>,
        device: i32,
        memory: &str,
        pool: u64,
        label: String,
        shape: Vec<i64>,
        strides: Option<Vec<i64>>,
        dtype: &str,
        offset: u64,
        readonly: bool,
    ) -> PyResult<Self> {
        let library = Arc::clone(&session.get().0);
        let dtype = Dtype::from_name(dtype)
            .ok_or_else(|| PyValueError::new_err(format!("dtype: got {dtype:?}")))?;
        let (layout, reach) = Layout::from_bytes(&shape, strides.as_deref(), dtype.itemsize())?;
        let (kind, pool) = match memory {
            "device" => (MemoryKind::Device, None),
            "pool" => (MemoryKind::Device, Some(StreamOnDevice::new(device, pool))),
            "pinned" => (MemoryKind::Host, None),
            "managed" => (MemoryKind::Managed, None),
            other => {
                let text = format!("memory: got {other:?}; allowed: device, pinned, managed, pool");
                return Err(PyValueError::new_err(text));
            }
        };
        let id = if kind == MemoryKind::Device { device } else { 0 };
        let wanted = TensorRequest { kind, pool, label, reach };
        let start = wanted.allocate(&library, device, offset)?;
        let ptr = match start {
            0 => 0,
            start => start.saturating_add(reach.below).saturating_add(offset),
        };
        let array = Descriptor::new(ptr, dtype, (layout, reach), Device { kind, id }, readonly)?;
        Ok(Self(Arc::new(TensorMemory {
            library,
            start,
            array,
            byte_offset: offset,
            ordinal: device,
            pending: Mutex::new(None),
            exports: AtomicUsize::new(0),
        })))
    }

    fn region<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || region(py, &self.0.array))
    }

    #[getter]
    fn typestr<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.0.array.dtype().typestr()))
    }

    #[getter]
    fn contiguous<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.0.array.layout().is_contiguous()))
    }

    #[getter]
    fn ordinal<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.0.ordinal))
    }

    #[getter]
    fn exports<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.0.exports.load(Ordering::Acquire)))
    }

    /// The handle of the stream that `set_pending` named last; None before the first call. For another thread's
    /// per-thread stream, the handle of the legacy default stream.
    #[getter]
    fn pending<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || Ok(self.0.pending().map(|queue| queue.seen_from_here().stream.handle())))
    }

    fn set_pending(&self, device: i32, handle: u64) {
        let mut pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = Some(StreamOnDevice::new(device, handle));
    }

    /// Orders a stream after the pending stream, if there is one and the array has items.
    fn order_before(&self, device: i32, handle: u64) -> PyResult<()> {
        Ok(self.0.order_before(StreamOnDevice::new(device, handle))?)
    }

    fn versioned<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || capsule::new(py, self.0.export::<DLManagedTensorVersioned>()?))
    }

    fn legacy<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            if self.0.array.readonly() {
                return Err(PyBufferError::new_err(
                    "the array is read-only, and a legacy DLPack capsule has no flag for that",
                ));
            }
            capsule::new(py, self.0.export::<DLManagedTensor>()?)
        })
    }
}

/// The base class of simulated arrays with the exchange API. The API's table is on this type.
#[pyclass(frozen, subclass, module = "cai_bridge._core", name = "_ExchangeTensor")]
#[derive(Debug)]
pub(crate) struct ExchangeTensor(Arc<TensorMemory>);

#[pymethods]
impl ExchangeTensor {
    #[new]
    #[pyo3(signature = (tensor, *_rest))]
    fn new(tensor: &Bound<'_, SimulatedTensor>, _rest: &Bound<'_, PyTuple>) -> Self {
        Self(Arc::clone(&tensor.get().0))
    }
}

impl Exchange for ExchangeTensor {
    fn export(&self, py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.0.library.check_lives(py)?;
        Ok(self.0.export()?)
    }

    fn borrow(&self, py: Python<'_>) -> PyResult<&Descriptor> {
        self.0.library.check_lives(py)?;
        Ok(&self.0.array)
    }

    fn work_stream(_py: Python<'_>, device: Device) -> PyResult<u64> {
        let legacy = Stream::Legacy.handle();
        Ok(SimulatedLibrary::open()
            .map_or(Ok(legacy), |library| library.current_stream(device.id))?)
    }

    fn import(
        _py: Python<'_>,
        _managed: Managed<DLManagedTensorVersioned>,
        _array: Descriptor,
    ) -> PyResult<Py<Self>> {
        Err(PyTypeError::new_err("only SimulatedCuda.array() makes simulated arrays"))
    }
}

exchange_producer!(ExchangeTensor);
