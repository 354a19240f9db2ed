//! The one place where an [`Error`] becomes a Python exception.

use pyo3::create_exception;
use pyo3::exceptions::{
    PyBufferError, PyRuntimeError, PyRuntimeWarning, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

use crate::error::{Class, Error};

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
    "An array said nothing of its streams, so the host waited for the device.\n\n\
     Given once a type. ``stream=`` says which stream the array's pending work is on, and no wait is needed."
);

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.kind().class() {
            Class::Buffer => PyBufferError::new_err(text),
            Class::Value => PyValueError::new_err(text),
            Class::Type => PyTypeError::new_err(text),
            Class::Driver => Python::attach(|py| driver_error(py, &error, text)),
        }
    }
}

fn driver_error(py: Python<'_>, error: &Error, text: String) -> PyErr {
    let raised = DriverError::new_err(text);
    let code = error.driver_code();
    let value = raised.value(py);
    let set = value
        .setattr("call", code.map(|code| code.call))
        .and_then(|()| value.setattr("code", code.map(|code| code.code)));
    match set {
        Ok(()) => raised,
        Err(failed) => failed,
    }
}
