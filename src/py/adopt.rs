//! Streams that may still be used later: those that something which is held keeps alive.
//!
//! A handle is a bare address. Touching it once the stream is gone ends the process (SIGSEGV, measured
//! on an H200, driver 580, 2026-11), so outside the call that a handle was given to it is used only as
//! a [`Live`] stream: a default stream, one whose object is held, or one that a library vouches for.
//!
//! - PyTorch never destroys the streams of its own pools; such a stream has an odd `stream_id`, where
//!   that of an external one is its address (measured on torch 2.11).
//! - CuPy's current stream is an object, which keeps its stream. Its arrays do not: the dict names the
//!   current stream of the moment when it is read, against "Lifetime management", "Streams".
//! - Numba has no current stream; its stream objects are to be given as they are.
//!
//! Objects around somebody else's handle (`ExternalStream` of PyTorch and CuPy, Numba's
//! `external_stream`) keep nothing alive and vouch for nothing. An object that can be closed while it is
//! held, as cuda.core's, is asked once more before its stream is used.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use super::stream::handle_of;
use crate::device::Device;
use crate::dlpack::exchange::Table;
use crate::stream::Stream;

/// A stream that is alive as long as this is.
#[derive(Debug)]
pub(super) struct Live {
    /// The stream.
    pub(super) stream: Stream,
    /// What keeps it alive, where something has to.
    pub(super) object: Option<Py<PyAny>>,
}

impl Live {
    /// `stream`, kept alive by `object` where one was given, else by whoever vouches for it; `None`
    /// where nobody does.
    pub(super) fn new(
        py: Python<'_>,
        stream: Stream,
        object: Option<Py<PyAny>>,
        ordinal: i32,
    ) -> Option<Self> {
        match (stream, object) {
            (Stream::Handle(handle), Some(object)) if !owns(object.bind(py)).unwrap_or(false) => {
                Self::adopted(py, handle, ordinal)
            }
            (Stream::Handle(handle), None) => Self::adopted(py, handle, ordinal),
            (_, object) => Some(Self { stream, object }),
        }
    }

    /// Whether the object still names the stream: some can be closed.
    pub(super) fn is_open(&self, py: Python<'_>) -> bool {
        match (self.stream, &self.object) {
            (Stream::Handle(handle), Some(object)) => {
                handle_of(object.bind(py)).is_ok_and(|named| named == handle)
            }
            _ => true,
        }
    }

    /// The live stream of a bare handle on the device `ordinal`.
    fn adopted(py: Python<'_>, handle: u64, ordinal: i32) -> Option<Self> {
        let stream = Stream::Handle(handle);
        if is_torchs(py, handle, ordinal) {
            return Some(Self { stream, object: None });
        }
        let mut current = CURRENT.iter().filter_map(|current| current(py, ordinal)).flatten();
        let (_, object) = current.find(|(current, object)| {
            *current == handle && owns(object.bind(py)).unwrap_or(false)
        })?;
        Some(Self { stream, object: Some(object) })
    }

    /// Another holder of the same.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let object = self.object.as_ref().map(|object| object.clone_ref(py));
        Self { stream: self.stream, object }
    }
}

/// Whether a stream object keeps its stream alive.
fn owns(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if let Some(id) = object.getattr_opt(intern!(py, "stream_id"))? {
        return Ok(is_of_a_pool(id.extract()?));
    }
    if object.get_type().name()? == "ExternalStream" {
        return Ok(false);
    }
    match object.getattr_opt(intern!(py, "external"))? {
        Some(external) => Ok(!external.is_truthy()?),
        None => Ok(true),
    }
}

/// Whether the id that PyTorch gives a stream is that of one of its own.
const fn is_of_a_pool(stream_id: i64) -> bool {
    stream_id & 1 == 1
}

/// The streams that the imported libraries work on now, on the device `ordinal`, where those are no
/// default streams.
pub(super) fn current_streams(py: Python<'_>, ordinal: i32) -> Vec<Stream> {
    let torchs = torch_table(py)
        .and_then(|table| table.current_work_stream(py, Device::cuda(ordinal)).ok())
        .filter(|handle| *handle > 2);
    let others = CURRENT.iter().filter_map(|current| current(py, ordinal)).flatten();
    let others = others.map(|(handle, _)| handle);
    torchs.into_iter().chain(others).map(Stream::Handle).collect()
}

/// The handle and object of each of a library's current streams.
type Current = Vec<(u64, Py<PyAny>)>;

/// How the libraries with stream objects are asked for the current ones on a device.
const CURRENT: [fn(Python<'_>, i32) -> Option<Current>; 2] = [
    |py, _| {
        let cuda = library(py, intern!(py, "cupy"))?.getattr(intern!(py, "cuda")).ok()?;
        let stream = cuda.call_method0(intern!(py, "get_current_stream")).ok()?;
        Some(named(&stream, intern!(py, "ptr")).into_iter().collect())
    },
    |py, ordinal| {
        let testing = library(py, intern!(py, "cai_bridge.testing"))?;
        let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,)).ok()?;
        let streams = streams.try_iter().ok()?.filter_map(Result::ok);
        Some(streams.filter_map(|stream| named(&stream, intern!(py, "handle"))).collect())
    },
];

fn named(stream: &Bound<'_, PyAny>, attribute: &Bound<'_, PyString>) -> Option<(u64, Py<PyAny>)> {
    let handle = stream.getattr(attribute).ok()?.extract::<u64>().ok()?;
    (handle > 2).then(|| (handle, stream.clone().unbind()))
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
fn is_torchs(py: Python<'_>, handle: u64, ordinal: i32) -> bool {
    if TORCHS.with_borrow(|known| known.contains(&handle)) {
        return true;
    }
    let Some(table) = torch_table(py) else { return false };
    // Asked first, in 15 ns: the question after it takes 3 us (H200 machine, 2026-11).
    let device = Device::cuda(ordinal);
    if table.current_work_stream(py, device).ok() != Some(handle) {
        return false;
    }
    let own = is_pooled(py, handle, ordinal).unwrap_or(false);
    if own {
        TORCHS.with_borrow_mut(|known| known.push(handle));
    }
    own
}

#[cold]
fn is_pooled(py: Python<'_>, handle: u64, ordinal: i32) -> PyResult<bool> {
    let cuda = py.import("torch")?.getattr("cuda")?;
    let stream = cuda.call_method1("current_stream", (ordinal,))?;
    let (own, id) = (stream.getattr("cuda_stream")?, stream.getattr("stream_id")?);
    Ok(own.extract::<u64>()? == handle && is_of_a_pool(id.extract()?))
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
