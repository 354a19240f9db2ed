//! Stream objects: what their `__cuda_stream__` answers, by
//! [CUDA's stream protocol](https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html): `(0, handle)`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::text::{refused, shown};

/// The handle that a stream object names.
pub(super) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    handle(&object.getattr(intern!(object.py(), "__cuda_stream__"))?)
}

pub(super) fn handle(method: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !method.is_callable() {
        return Err(refused(Kind::StreamProtocol, shown(method)));
    }
    let (py, answer) = (method.py(), method.call0()?);
    let malformed = || refused(Kind::StreamProtocol, shown(&answer));
    let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(malformed)?;
    let (version, handle) = (pair.get_item(0)?, pair.get_item(1)?);
    if version.is_instance_of::<PyBool>() || handle.is_instance_of::<PyBool>() {
        return Err(malformed());
    }
    let version = answered(py, version.extract::<i64>())?.ok_or_else(malformed)?;
    if version != 0 {
        return Err(Error::new(Kind::StreamProtocol, format!("version {version}")).into());
    }
    answered(py, handle.extract::<u64>())?.ok_or_else(malformed)
}
