//! Converts an [`Error`] to a Python exception. Defines the bridge's own exception classes.

use std::error::Error as _;
use std::sync::Arc;

use pyo3::create_exception;
use pyo3::exceptions::{
    PyBufferError, PyRuntimeError, PyRuntimeWarning, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::error::{Class, Error, Kind};

create_exception!(
    cai_bridge,
    DriverError,
    PyRuntimeError,
    "A call of the CUDA driver failed, or there is no driver.\n\n\
     Attributes\n----------\ncall : str or None\n    The driver's entry point, such as ``cuEventRecord``.\n\
     code : int or None\n    The ``CUresult``."
);

create_exception!(
    cai_bridge,
    HostSyncWarning,
    PyRuntimeWarning,
    "An array named no stream, so the host waited for the device.\n\n\
     Warned once for each type. With ``stream=``, the stream of the array's pending work, the host does not wait."
);

/// The conversion of the returned error to a `PyErr` gives `raised` again.
#[cold]
pub(crate) fn interrupted(py: Python<'_>, raised: PyErr) -> Error {
    let got = raised.get_type(py).name().map_or_else(|_| "an exception".into(), |n| n.to_string());
    Error::new(Kind::Interrupted, got).with_source(Arc::new(raised))
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        Python::attach(|py| {
            let source = error.source().and_then(|source| source.downcast_ref::<Self>());
            source.map_or_else(
                || raised(py, &error).unwrap_or_else(|failed| failed),
                |carried| carried.clone_ref(py),
            )
        })
    }
}

/// `DriverError` of the Python package `cai_bridge` if `sys.modules` has that package, else this module's own class.
fn driver_error(py: Python<'_>) -> Bound<'_, PyType> {
    let own = || py.get_type::<DriverError>();
    if cfg!(feature = "wheel") {
        return own();
    }
    let package = py.import("sys").and_then(|sys| sys.getattr("modules")?.get_item("cai_bridge"));
    let class = package.and_then(|package| package.getattr("DriverError"));
    class.ok().and_then(|class| class.cast_into().ok()).unwrap_or_else(own)
}

pub(crate) fn is_driver_error(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance(py, &driver_error(py))
}

/// Makes the exception object at once. PyO3 would make it later, where an out-of-memory error may go unreported.
#[cold]
fn raised(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = match error.kind().class() {
        Class::Buffer => py.get_type::<PyBufferError>(),
        Class::Value => py.get_type::<PyValueError>(),
        Class::Type => py.get_type::<PyTypeError>(),
        Class::Driver => driver_error(py),
    };
    let value = class.call1((PyString::from_bytes(py, error.to_string().as_bytes())?,))?;
    if error.kind().class() == Class::Driver {
        let code = error.driver_code();
        value.setattr("call", code.map(|code| code.call))?;
        value.setattr("code", code.map(|code| code.code))?;
    }
    Ok(PyErr::from_value(value))
}
