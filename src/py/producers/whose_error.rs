//! Tells exceptions of a producer's DLPack code, after which the producer's CAI dict may still work, from other errors.

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::error::Error;
use crate::py::errors::is_driver_error;
use crate::py::interpreter::is_interrupt;

#[derive(Debug)]
pub(crate) enum Refused {
    /// Any other error, such as a refusal by the bridge.
    Here(PyErr),
    /// An exception that the producer's DLPack code raised.
    ByProducer(PyErr),
}

impl Refused {
    pub(crate) fn map(self, change: impl FnOnce(PyErr) -> PyErr) -> Self {
        match self {
            Self::Here(error) => Self::Here(change(error)),
            Self::ByProducer(error) => Self::ByProducer(change(error)),
        }
    }

    /// Whether the producer may have raised only because DLPack cannot express the array.
    pub(crate) fn is_of_protocol(&self, py: Python<'_>) -> bool {
        let Self::ByProducer(error) = self else { return false };
        let any_of = error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyValueError>(py)
            // NotImplementedError is a RuntimeError.
            || error.is_instance_of::<PyRuntimeError>(py)
            || error.is_instance_of::<PyTypeError>(py);
        any_of && !is_interrupt(py, error) && !is_driver_error(py, error)
    }
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Self::Here(error)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Here(error.into())
    }
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Here(error) | Refused::ByProducer(error) => error,
        }
    }
}
