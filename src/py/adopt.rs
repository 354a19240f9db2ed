//! Finds the living stream object behind a bare handle, so that a view can hold it.
//!
//! A CAI dict names its stream by a handle, and the specification has the exporter keep that stream
//! alive ("Lifetime management", "Streams"). CuPy's dict names the current stream of the moment when
//! it is read, which its arrays do not keep: once the last reference to the stream object is gone the
//! handle is dead, and touching it ends the process (SIGSEGV, measured on an H200, driver 580,
//! 2026-11). At that moment, though, it is CuPy's current stream, which CuPy tells.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::stream::{Ready, Stream};

/// The stream object of the handle that `ready` names, where CuPy is imported and works on it.
pub(super) fn adopt(py: Python<'_>, ready: Ready) -> Option<Py<PyAny>> {
    match ready {
        Ready::On(Stream::Handle(handle)) => current(py, handle),
        _ => None,
    }
}

fn current(py: Python<'_>, handle: u64) -> Option<Py<PyAny>> {
    // A library that is not imported has no stream; one that is half imported has no such attribute.
    let cupy = modules(py)?.get_item(intern!(py, "cupy")).ok()??;
    let stream = cupy
        .getattr(intern!(py, "cuda"))
        .and_then(|cuda| cuda.call_method0(intern!(py, "get_current_stream")))
        .ok()?;
    let own = stream.getattr(intern!(py, "ptr")).ok()?.extract::<u64>().ok()?;
    (own == handle).then(|| stream.unbind())
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
