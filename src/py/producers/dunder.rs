//! Calls a producer's `__dlpack__` and `__dlpack_device__`. Producers accept different arguments, so the bridge calls
//! again without the arguments that were refused.

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::Refused;
use super::types::TypeFacts;
use crate::device::Device;
use crate::error::{Error, Kind, Result};
use crate::py::habits::Habit;
use crate::py::interpreter::is_interrupt;
use crate::py::numpy;
use crate::py::streams::argument::index;
use crate::py::text::{refused, shown};
use crate::py::this_thread::asking;
use crate::stream::{Request, Stream};

/// `None` if the bridge must call `__dlpack__`.
pub(super) fn ask_quickly<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
    request: Request,
) -> PyResult<Option<(Bound<'py, PyAny>, Stream)>> {
    let Some(capsules) = facts.capsules else { return Ok(None) };
    let stream = if let Request::On(stream) = request { stream } else { Stream::Legacy };
    Ok(capsules.quickly(x, stream.handle())?.map(|capsule| (capsule, stream)))
}

/// Requests a capsule, and returns it with the stream on which its memory is ready. After a request for no order (-1),
/// the memory need not be ready on the returned stream.
pub(super) fn ask<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
    request: Request,
) -> PyResult<(Bound<'py, PyAny>, Stream)> {
    let legacy = Stream::Legacy;
    let call = |x: &Bound<'py, PyAny>, stream: Option<Stream>| match (stream, facts.capsules) {
        (Some(on), Some(capsules)) => {
            let public = || Ok(call(x, stream)?.0);
            capsules.compared(x, on.handle(), &public).map(|capsule| (capsule, true))
        }
        _ => call(x, stream),
    };
    match request {
        // JAX, the only library with a quick way, does not accept -1.
        Request::NoOrder if facts.capsules.is_some() => Ok((call(x, Some(legacy))?.0, legacy)),
        _ if facts.has(Habit::TakesNoStream) => Ok((call_with(x, x.py().None())?.0, legacy)),
        Request::Unspecified => Ok((call(x, Some(legacy))?.0, legacy)),
        Request::NoOrder => match call(x, None) {
            Ok((capsule, _)) => Ok((capsule, legacy)),
            Err(interrupt) if is_interrupt(x.py(), &interrupt) => Err(interrupt),
            Err(refused) => match call(x, Some(legacy)) {
                Ok((capsule, _)) => Ok((capsule, legacy)),
                Err(error) => {
                    // A producer can raise the same exception object every time.
                    if !error.value(x.py()).is(refused.value(x.py())) {
                        error.set_context(x.py(), Some(refused));
                    }
                    Err(error)
                }
            },
        },
        Request::On(stream) => match call(x, Some(stream)) {
            Ok((capsule, true)) => Ok((capsule, stream)),
            Ok((capsule, false)) => Ok((capsule, legacy)),
            Err(error)
                if matches!(stream, Stream::PerThread(_))
                    && error.is_instance_of::<PyBufferError>(x.py()) =>
            {
                Ok((call(x, Some(legacy))?.0, legacy))
            }
            Err(error) => Err(error),
        },
    }
}

pub(super) fn ask_on_host<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let newest = PyDict::new(py);
    newest.set_item(intern!(py, "max_version"), (1, 3))?;
    asking(x, || {
        let method = x.getattr(intern!(py, "__dlpack__"))?;
        match method.call((), Some(&newest)) {
            Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
            answer => answer,
        }
    })
}

/// Without a stream, passes -1, which asks for no order. The flag tells whether the producer accepted the argument
/// `stream`.
pub(super) fn call<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<Stream>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    match stream {
        Some(stream) => call_with(x, stream.handle()),
        None => call_with(x, -1),
    }
}

fn call_with<'py>(
    x: &Bound<'py, PyAny>,
    stream: impl IntoPyObject<'py>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = x.py();
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "stream"), stream)?;
    arguments.set_item(intern!(py, "max_version"), (1, 3))?;
    asking(x, || call_without(x, &arguments))
}

fn call_without<'py>(
    x: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = x.py();
    let method = x.getattr(intern!(py, "__dlpack__"))?;
    let first = match method.call((), Some(arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => error,
        Err(error) if error.is_instance_of::<PyRuntimeError>(py) && numpy::is_array(x)? => {
            arguments.del_item(intern!(py, "stream"))?;
            return method.call((), Some(arguments)).map(|capsule| (capsule, false));
        }
        answer => return answer.map(|capsule| (capsule, true)),
    };
    arguments.del_item(intern!(py, "max_version"))?;
    match method.call((), Some(arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
        answer => return answer.map(|capsule| (capsule, true)),
    }
    match method.call0() {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(first),
        answer => answer.map(|capsule| (capsule, false)),
    }
}

/// `None` without `__dlpack_device__`. The inner error says why the bridge cannot use the device.
pub(crate) fn dlpack_device(x: &Bound<'_, PyAny>) -> Result<Option<Result<Device>>, Refused> {
    let py = x.py();
    let method = match x.getattr(intern!(py, "__dlpack_device__")) {
        Ok(method) => method,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
        Err(error) => return Err(Refused::ByProducer(error)),
    };
    let answer = asking(x, || method.call0()).map_err(Refused::ByProducer)?;
    let malformed = || refused(Kind::DlpackDevice, shown(&answer));
    let pair =
        answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(malformed)?;
    let mut numbers = [0; 2];
    for (number, item) in numbers.iter_mut().zip(pair.iter()) {
        *number = index(&item)?.ok_or_else(malformed)?;
    }
    let [kind, id] = numbers;
    let unknown = |wrong: Kind| Error::new(wrong, format!("({kind}, {id})"));
    let (kind, id) = (
        u32::try_from(kind).map_err(|_| unknown(Kind::DeviceKind))?,
        i32::try_from(id).map_err(|_| unknown(Kind::DeviceOrdinal))?,
    );
    Ok(Some(Device::from_dlpack(kind, id)))
}
