//! The streams that libraries which are imported work on now: PyTorch's, CuPy's, and those of the
//! simulated device's. Numba has no current stream.
//!
//! Asked are their own functions, which may be written in Python: what is raised there is no answer, and
//! an interrupt passes through.

use std::cell::RefCell;

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use crate::device::Device;
use crate::dlpack::exchange::Table;
use crate::driver::Handle;
use crate::stream::{Stream, Thread};

/// What somebody was asked for and has answered; `None` where that failed. An interrupt, an exit or a
/// lack of memory is no answer, and passes through.
pub(super) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error)
            if error.is_instance_of::<PyException>(py)
                && !error.is_instance_of::<PyMemoryError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The streams that the libraries work on now, on the device `ordinal`, where those are no default
/// streams.
pub(super) fn streams(py: Python<'_>, driver: &Handle, ordinal: i32) -> PyResult<Vec<Stream>> {
    let handles: Vec<u64> = match driver {
        Handle::Cuda => {
            let torchs = torch_table(py).map(|table| torchs(py, table, ordinal)).transpose()?;
            let torchs = torchs.flatten().filter(|handle| *handle > 2);
            torchs.into_iter().chain(cupys(py)?.map(|(handle, _)| handle)).collect()
        }
        Handle::Simulated(_) => simulated(py, ordinal)?.into_iter().map(|found| found.0).collect(),
    };
    Ok(handles.into_iter().map(Stream::Handle).collect())
}

/// The object of the stream `handle`, where a library works on that one now.
pub(super) fn object<'py>(
    py: Python<'py>,
    driver: &Handle,
    handle: u64,
    ordinal: i32,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_it = |(current, _): &Named<'_>| *current == handle;
    let found = match driver {
        Handle::Cuda => cupys(py)?.filter(is_it),
        Handle::Simulated(_) => simulated(py, ordinal)?.into_iter().find(is_it),
    };
    Ok(found.map(|(_, object)| object))
}

/// A stream object, and the handle that it names.
type Named<'py> = (u64, Bound<'py, PyAny>);

/// CuPy's current stream, where it is imported and works on another than a default one.
fn cupys(py: Python<'_>) -> PyResult<Option<Named<'_>>> {
    let Some((current, null)) = cupys_streams(py) else { return Ok(None) };
    match answered(py, current.bind(py).call0())? {
        Some(stream) if !stream.is(null) => named(stream, intern!(py, "ptr")),
        _ => Ok(None),
    }
}

/// The stream that tvm-ffi's environment has for the device of its tensor `x`: functions that are called
/// through it work on that one.
pub(super) fn tvm_ffis(x: &Bound<'_, PyAny>) -> PyResult<Option<Stream>> {
    let py = x.py();
    let Some(module) = library(py, intern!(py, "tvm_ffi")) else { return Ok(None) };
    let native = x
        .getattr(intern!(py, "device"))
        .and_then(|device| module.call_method1(intern!(py, "get_raw_stream"), (device,)))
        .and_then(|native| native.extract::<u64>());
    Ok(answered(py, native)?.map(|native| Stream::from_native(native, Thread::current())))
}

/// `cupy.cuda.get_current_stream`, and the null stream that it mostly returns.
fn cupys_streams(py: Python<'_>) -> Option<&(Py<PyAny>, Py<PyAny>)> {
    static CUPY: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    if let Some(found) = CUPY.get(py) {
        return Some(found);
    }
    let cuda = library(py, intern!(py, "cupy"))?.getattr(intern!(py, "cuda")).ok()?;
    let null = cuda.getattr(intern!(py, "Stream")).ok()?.getattr(intern!(py, "null")).ok()?;
    let current = cuda.getattr(intern!(py, "get_current_stream")).ok()?;
    Some(CUPY.get_or_init(py, || (current.unbind(), null.unbind())))
}

/// The current streams of the simulated device's libraries.
fn simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<Named<'_>>> {
    let Some(testing) = library(py, intern!(py, "cai_bridge.testing")) else { return Ok(vec![]) };
    let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
    let mut found = Vec::new();
    for stream in
        answered(py, streams.and_then(|streams| streams.try_iter()))?.into_iter().flatten()
    {
        found.extend(named(stream?, intern!(py, "handle"))?);
    }
    Ok(found)
}

fn named<'py>(
    stream: Bound<'py, PyAny>,
    attribute: &Bound<'py, PyString>,
) -> PyResult<Option<Named<'py>>> {
    let handle = stream.getattr(attribute).and_then(|handle| handle.extract::<u64>());
    let handle = answered(stream.py(), handle)?.filter(|handle| *handle > 2);
    Ok(handle.map(|handle| (handle, stream)))
}

/// A library that is imported. One that is half imported has no such attributes.
fn library<'py>(py: Python<'py>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    modules(py)?.get_item(name).ok()?
}

thread_local! {
    /// The handles that were seen to be of PyTorch's pools, of which there are a few hundred at most.
    static TORCHS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Whether the handle is of one of PyTorch's own streams. It is found out while the stream is current,
/// and holds for good.
pub(super) fn is_torchs(py: Python<'_>, handle: u64, ordinal: i32) -> PyResult<bool> {
    if TORCHS.with_borrow(|known| known.contains(&handle)) {
        return Ok(true);
    }
    let Some(table) = torch_table(py) else { return Ok(false) };
    // Asked first, in 15 ns: the question after it takes 3 us (H200 machine, 2026-11).
    if torchs(py, table, ordinal)? != Some(handle) {
        return Ok(false);
    }
    let own = answered(py, is_pooled(py, handle, ordinal))?.unwrap_or(false);
    if own {
        TORCHS.with_borrow_mut(|known| known.push(handle));
    }
    Ok(own)
}

/// The stream that PyTorch works on now.
fn torchs(py: Python<'_>, table: Table, ordinal: i32) -> PyResult<Option<u64>> {
    answered(py, table.current_work_stream(py, Device::cuda(ordinal)))
}

#[cold]
fn is_pooled(py: Python<'_>, handle: u64, ordinal: i32) -> PyResult<bool> {
    let cuda = py.import("torch")?.getattr("cuda")?;
    let stream = cuda.call_method1("current_stream", (ordinal,))?;
    let (own, id) = (stream.getattr("cuda_stream")?, stream.getattr("stream_id")?);
    Ok(own.extract::<u64>()? == handle && is_of_a_pool(id.extract()?))
}

/// Whether the id that PyTorch gives a stream is that of one of its own.
pub(super) const fn is_of_a_pool(stream_id: i64) -> bool {
    stream_id & 1 == 1
}

/// The exchange API of `torch.Tensor`, once PyTorch is imported.
fn torch_table(py: Python<'_>) -> Option<Table> {
    static TABLE: PyOnceLock<Option<Table>> = PyOnceLock::new();
    if let Some(found) = TABLE.get(py) {
        return *found;
    }
    let torch = library(py, intern!(py, "torch"))?;
    let tensor = torch.getattr(intern!(py, "Tensor")).ok()?.cast_into::<PyType>().ok()?;
    *TABLE.get_or_init(py, || Table::of(&tensor).ok().flatten())
}

/// `sys.modules`.
fn modules(py: Python<'_>) -> Option<&Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    MODULES
        .get_or_try_init(py, || -> PyResult<_> {
            let modules = py.import("sys")?.getattr("modules")?;
            Ok(modules.cast_into::<PyDict>()?.unbind())
        })
        .ok()
        .map(|modules| modules.bind(py))
}
