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

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use super::native;
use super::stream::handle_of;
use crate::device::Device;
use crate::dlpack::exchange::Table;
use crate::driver::Handle;
use crate::stream::{Stream, Thread};

/// A stream that is alive as long as this is.
#[derive(Debug)]
pub(super) struct Live {
    /// The stream.
    pub(super) stream: Stream,
    /// What keeps it alive, where something has to.
    pub(super) object: Option<Py<PyAny>>,
    /// Whether that is the exporter of a CAI dict, which names the stream.
    pub(super) lent: bool,
}

impl Live {
    /// `stream`, kept alive by `object` where one was given, else by whoever vouches for it; `None`
    /// where nobody does.
    pub(super) fn new(
        py: Python<'_>,
        stream: Stream,
        object: Option<Py<PyAny>>,
        driver: &Handle,
        ordinal: i32,
    ) -> Option<Self> {
        match (stream, object) {
            (Stream::Handle(handle), Some(object)) if !owns(object.bind(py)).unwrap_or(false) => {
                Self::adopted(py, handle, driver, ordinal)
            }
            (Stream::Handle(handle), None) => Self::adopted(py, handle, driver, ordinal),
            (_, object) => Some(Self { stream, object, lent: false }),
        }
    }

    /// A stream that the two sides share, so that nothing will have to wait: nobody need vouch for it.
    pub(super) const fn same(stream: Stream, object: Option<Py<PyAny>>) -> Self {
        Self { stream, object, lent: false }
    }

    /// The stream that a dict names, which the specification has the exporter keep alive; `None` for a
    /// dict of whatever exporter.
    pub(super) const fn lent(stream: Stream, exporter: Option<Py<PyAny>>) -> Self {
        Self { stream, object: exporter, lent: true }
    }

    /// Whether the object still keeps the stream: some can be closed, and the garbage collector ends an
    /// object before it lets go of it.
    pub(super) fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.now(py)? == Some(self.stream))
    }

    /// The stream as it is now, which for the exporter of a dict is the one that it names now.
    ///
    /// An object that fails to say keeps nothing; an interrupt, an exit or a lack of memory is no answer.
    pub(super) fn now(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        let Some(object) = self.object.as_ref().map(|object| object.bind(py)) else {
            return Ok(Some(self.stream));
        };
        if native::is_finalized(object) {
            return Ok(None);
        }
        let answer = match self.stream {
            _ if self.lent => exported(object),
            Stream::Handle(handle) => {
                handle_of(object).map(|named| (named == handle).then_some(self.stream))
            }
            stream => Ok(Some(stream)),
        };
        match answer {
            Err(error)
                if error.is_instance_of::<PyException>(py)
                    && !error.is_instance_of::<PyMemoryError>(py) =>
            {
                Ok(None)
            }
            answer => answer,
        }
    }

    /// The live stream of a bare handle on the device `ordinal`.
    fn adopted(py: Python<'_>, handle: u64, driver: &Handle, ordinal: i32) -> Option<Self> {
        let stream = Stream::Handle(handle);
        let object = match driver {
            Handle::Cuda if is_torchs(py, handle, ordinal) => {
                return Some(Self { stream, object: None, lent: false });
            }
            Handle::Cuda => cupys(py).filter(|(current, _)| *current == handle)?.1,
            Handle::Simulated(_) => {
                simulated(py, ordinal).into_iter().find(|(current, _)| *current == handle)?.1
            }
        };
        owns(&object).unwrap_or(false).then(|| {
            let object = Some(object.unbind());
            Self { stream, object, lent: false }
        })
    }

    /// Another holder of the same.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let object = self.object.as_ref().map(|object| object.clone_ref(py));
        Self { stream: self.stream, object, lent: self.lent }
    }
}

/// The stream that the dict of an exporter names now.
fn exported(exporter: &Bound<'_, PyAny>) -> PyResult<Option<Stream>> {
    let py = exporter.py();
    let interface = exporter.getattr(intern!(py, "__cuda_array_interface__"))?;
    let named = interface.get_item(intern!(py, "stream"))?;
    if named.is_none() {
        return Ok(None);
    }
    Ok(Some(Stream::from_integer(named.extract()?, Thread::current())?))
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

/// The streams that the libraries work on now, on the device `ordinal`, where those are no default
/// streams.
pub(super) fn current_streams(py: Python<'_>, driver: &Handle, ordinal: i32) -> Vec<Stream> {
    let handles: Vec<u64> = match driver {
        Handle::Cuda => {
            let torchs = torch_table(py)
                .and_then(|table| table.current_work_stream(py, Device::cuda(ordinal)).ok())
                .filter(|handle| *handle > 2);
            torchs.into_iter().chain(cupys(py).map(|(handle, _)| handle)).collect()
        }
        Handle::Simulated(_) => simulated(py, ordinal).into_iter().map(|found| found.0).collect(),
    };
    handles.into_iter().map(Stream::Handle).collect()
}

/// A stream object, and the handle that it names.
type Named<'py> = (u64, Bound<'py, PyAny>);

/// CuPy's current stream, where it is imported and works on another than a default one.
fn cupys(py: Python<'_>) -> Option<Named<'_>> {
    /// `cupy.cuda.get_current_stream`, and the null stream that it mostly returns.
    static CUPY: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    let (current, null) = if let Some(found) = CUPY.get(py) {
        found
    } else {
        let cuda = library(py, intern!(py, "cupy"))?.getattr(intern!(py, "cuda")).ok()?;
        let null = cuda.getattr(intern!(py, "Stream")).ok()?.getattr(intern!(py, "null")).ok()?;
        let current = cuda.getattr(intern!(py, "get_current_stream")).ok()?;
        CUPY.get_or_init(py, || (current.unbind(), null.unbind()))
    };
    let stream = current.bind(py).call0().ok()?;
    if stream.is(null) {
        return None;
    }
    named(stream, intern!(py, "ptr"))
}

/// The current streams of the simulated device's libraries.
fn simulated(py: Python<'_>, ordinal: i32) -> Vec<Named<'_>> {
    let streams = library(py, intern!(py, "cai_bridge.testing"))
        .and_then(|testing| testing.call_method1(intern!(py, "_current_streams"), (ordinal,)).ok())
        .and_then(|streams| streams.try_iter().ok());
    let streams = streams.into_iter().flatten().filter_map(Result::ok);
    streams.filter_map(|stream| named(stream, intern!(py, "handle"))).collect()
}

fn named<'py>(stream: Bound<'py, PyAny>, attribute: &Bound<'py, PyString>) -> Option<Named<'py>> {
    let handle = stream.getattr(attribute).ok()?.extract::<u64>().ok()?;
    (handle > 2).then_some((handle, stream))
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
