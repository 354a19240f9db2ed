//! What `stream=` may be: `None`, an integer, or an object with `__cuda_stream__`.
//!
//! The protocol of the last is [CUDA's stream protocol](https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html):
//! a method that returns `(0, handle)`. There a handle of 0 is the legacy default stream; the
//! integer 0 and `bool` are refused.

use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use super::native;
use crate::error::{Error, Kind};
use crate::stream::{Request, Stream, Thread};

/// What was asked for, and the stream object, which is to be held as long as its stream is used.
pub(super) fn parse(stream: Option<&Bound<'_, PyAny>>) -> PyResult<(Request, Option<Py<PyAny>>)> {
    let Some(given) = stream else {
        return Ok((Request::Unsaid, None));
    };
    if given.is_exact_instance_of::<PyInt>() {
        return Ok((Request::from_integer(Some(integer(given)?), Thread::current())?, None));
    }
    match given.getattr(intern!(given.py(), "__cuda_stream__")) {
        Ok(method) => {
            let handle = handle(&method)?;
            let stream = Stream::from_native(handle, Thread::current());
            Ok((Request::On(stream), Some(given.clone().unbind())))
        }
        Err(error) if error.is_instance_of::<PyAttributeError>(given.py()) => {
            Ok((Request::from_integer(Some(number(given)?), Thread::current())?, None))
        }
        Err(error) => Err(error),
    }
}

/// The number of a stream: an integer, but no `bool`.
pub(super) fn number(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if value.is_instance_of::<PyBool>() {
        return Err(Error::new(Kind::StreamType, format!("the bool {value}")).into());
    }
    index(value)?.ok_or_else(|| Error::new(Kind::StreamType, an_object(value)).into())
}

/// The integer that `value` is for Python (`__index__`), or `None` where it is none.
pub(super) fn index(value: &Bound<'_, PyAny>) -> PyResult<Option<i128>> {
    let none = |error: PyErr| {
        let py = value.py();
        let refused =
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyAttributeError>(py);
        if refused { Ok(None) } else { Err(error) }
    };
    match value.call_method0(intern!(value.py(), "__index__")) {
        Ok(index) if index.is_instance_of::<PyInt>() && !index.is_instance_of::<PyBool>() => {
            integer(&index).map(Some).or_else(none)
        }
        Ok(_) => Ok(None),
        Err(error) => none(error),
    }
}

/// A Python integer of whatever size; what does not fit 128 bits is no handle either.
pub(super) fn integer(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if let Some(small) = native::small(value) {
        return Ok(i128::from(small));
    }
    value.extract::<u64>().map(i128::from).map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            Error::new(Kind::StreamNegative, shown(value)).into()
        } else {
            error
        }
    })
}

/// The handle that a stream object names.
pub(super) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    handle(&object.getattr(intern!(object.py(), "__cuda_stream__"))?)
}

fn handle(method: &Bound<'_, PyAny>) -> PyResult<u64> {
    let malformed = |got: String| Error::new(Kind::StreamProtocol, got);
    if !method.is_callable() {
        return Err(malformed(shown(method)).into());
    }
    let answer = method.call0()?;
    let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else {
        return Err(malformed(shown(&answer)).into());
    };
    let version = pair.get_item(0)?.extract::<i64>().map_err(|_| malformed(shown(&answer)))?;
    if version != 0 {
        return Err(malformed(format!("version {version}")).into());
    }
    let handle = pair.get_item(1)?.extract::<u64>().map_err(|_| malformed(shown(&answer)))?;
    Ok(handle)
}

/// What `object` is, for messages: its `repr`, or its type where that fails.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    match object.repr() {
        Ok(text) => text.to_string(),
        Err(_) => an_object(object),
    }
}

/// What `object` is, for messages, where its value would say nothing.
pub(super) fn an_object(object: &Bound<'_, PyAny>) -> String {
    format!("an object of type {}", type_name(object))
}

/// The name of the type of `object`, module included, for messages.
pub(super) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}
