//! Arrays of any library as arguments of PyO3 functions.

use std::sync::Arc;

use pyo3::prelude::*;

use super::memory::PythonMemory;
use super::setup;
use crate::array::{Array, ArrayMut, DeviceStream};
use crate::py::doors::to_cai::source;
use crate::py::interpreter::inside;

impl DeviceStream {
    /// Makes a stream like [`DeviceStream::new`], on the Python package's simulated device while that is active.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceStream::new`], or an exception from Python.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::{Array, DeviceStream};
    /// use pyo3::prelude::*;
    ///
    /// #[pyfunction]
    /// fn zeros(py: Python<'_>, n: usize) -> PyResult<Array> {
    ///     let stream = DeviceStream::in_python(py, 0)?;
    ///     Ok(Array::from_host(&stream, &vec![0.0_f32; n], &[n as i64])?.into())
    /// }
    /// # fn main() {}
    /// ```
    pub fn in_python(py: Python<'_>, ordinal: i32) -> PyResult<Self> {
        inside(|| {
            setup::ready(py)?;
            Ok(Self::new(ordinal)?)
        })
    }
}

const DOOR: &str = "Array";

/// Accepts what `to_dlpack` of the Python package accepts: objects with DLPack's exchange API, `__dlpack__` or
/// `__cuda_array_interface__`, and capsules.
impl FromPyObject<'_, '_> for Array {
    type Error = PyErr;

    fn extract(x: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        inside(|| {
            setup::ready(x.py())?;
            let (descriptor, taken) = PythonMemory::new(source(DOOR, &x)?);
            Ok(Self { descriptor, origin: Arc::new(taken) })
        })
    }
}

/// Accepts the same objects as [`Array`], but refuses read-only arrays.
impl FromPyObject<'_, '_> for ArrayMut {
    type Error = PyErr;

    fn extract(x: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(x.extract::<Array>()?.writable()?)
    }
}
