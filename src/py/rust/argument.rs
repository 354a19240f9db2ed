//! Whatever speaks DLPack or the CUDA Array Interface, as an argument.

use std::sync::Arc;

use pyo3::prelude::*;

use super::setup;
use super::taken::Taken;
use crate::array::{Array, ArrayMut};
use crate::py::doors::source;

/// What takes arguments in, as a door.
const DOOR: &str = "Array";

/// Takes what `to_dlpack` of the Python package takes: an object with DLPack's exchange API or `__dlpack__`, a
/// capsule, or an object with `__cuda_array_interface__`.
impl FromPyObject<'_, '_> for Array {
    type Error = PyErr;

    fn extract(x: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        setup::ready(x.py())?;
        let (descriptor, taken) = Taken::new(source(DOOR, &x)?);
        Ok(Self { descriptor, origin: Arc::new(taken) })
    }
}

/// The same for memory that may be written.
impl FromPyObject<'_, '_> for ArrayMut {
    type Error = PyErr;

    fn extract(x: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(x.extract::<Array>()?.writable()?)
    }
}
