//! Takes in an array that speaks DLPack: by the exchange API, by `__dlpack__`, or as a capsule.
//!
//! Producers differ in what they take: JAX's `__dlpack__` fails on -1 and always returns a legacy
//! capsule, torch refuses stream 2 and tensors that are not on the current device, Warp and others
//! take no `max_version` (facts measured on torch 2.11 and JAX 0.11.2). So a refused argument is left
//! out, and the capsule's name decides, never what was asked for. tvm-ffi's takes no notice of the
//! stream, so its library is asked what it works on.

use dlpark::python::ImportedDlpack;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use super::adopt::Live;
use super::back::Back;
use super::current;
use super::guards;
use super::keep::Keep;
use super::source::{By, Source, check_stream, hand_over, told};
use super::types::Facts;
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::dlpack::capsule::{self, Form};
use crate::dlpack::decode;
use crate::dlpack::exchange::Table;
use crate::driver::{self, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Place};
use crate::stream::{Ready, Request, Stream, Thread};

const DOOR: &str = "to_cai";

/// By the exchange API. The tensor is ready on the library's current work stream.
#[inline]
pub(super) fn exchange(
    x: &Bound<'_, PyAny>,
    facts: &Facts,
    table: Table,
    request: Request,
    stream: Option<Py<PyAny>>,
) -> PyResult<Source> {
    let py = x.py();
    let driver = driver::current()?;
    let imported = table.import(x).map_err(|error| guards::explain(x, facts, error))?;
    decode::check_own(imported.0.flags())?;
    let array = imported.array()?;
    guards::check(x, facts, Some(array.dtype()))?;
    let place = place(&driver, &array)?;
    let native = table.current_work_stream(py, Device::cuda(place.ordinal))?;
    let work = Stream::from_native(native, Thread::current());
    let ready = array.pending(Ready::On(work));
    let home = Live::new(py, work, None, &driver, place.ordinal)?;
    let read = Read { array, ready, place, driver, home, by: By::ExchangeApi };
    hold(x, read, request, stream, || Ok(ImportedDlpack::Versioned(imported.0)))
}

/// By `__dlpack__`.
pub(super) fn protocol(
    x: &Bound<'_, PyAny>,
    facts: &Facts,
    request: Request,
    stream: Option<Py<PyAny>>,
) -> PyResult<Source> {
    let driver = driver::current()?;
    let device = declared_device(x)?;
    guards::check(x, facts, None)?;
    let (answer, ready) = on_device(&driver, device, || ask(x, request))?;
    let capsule = answer
        .cast::<PyCapsule>()
        .map_err(|_| Error::new(Kind::CapsuleType, super::stream::an_object(&answer)))?;
    let (form, array) = capsule::read(capsule)?;
    if let Form::Versioned(flags) = form {
        decode::check_own(flags)?;
    }
    let readonly = (facts.immutable && form == Form::Legacy).then_some(true);
    let array = array.with_readonly(readonly);
    let place = place(&driver, &array)?;
    let work = if facts.ignores_streams { current::tvm_ffis(x)? } else { None };
    let home = match work {
        Some(work) => Live::new(x.py(), work, None, &driver, place.ordinal)?,
        None => None,
    };
    let ready = array.pending(work.map_or(ready, Ready::On));
    let read = Read { array, ready, place, driver, home, by: By::Dlpack };
    hold(x, read, request, stream, || capsule::take(capsule))
}

/// A capsule that was made for nobody in particular: ready on the legacy default stream. One that says
/// that it is a copy is taken: whoever has it has asked for it.
pub(super) fn capsule(
    x: &Bound<'_, PyAny>,
    request: Request,
    stream: Option<Py<PyAny>>,
) -> PyResult<Source> {
    let capsule = x.cast::<PyCapsule>()?;
    let (_, array) = capsule::read(capsule)?;
    let ready = array.pending(Ready::On(Stream::Legacy));
    let driver = driver::current()?;
    let place = place(&driver, &array)?;
    let read = Read { array, ready, place, driver, home: None, by: By::Capsule };
    hold(x, read, request, stream, || capsule::take(capsule))
}

/// An array that was read, and is not held yet.
struct Read {
    array: Descriptor,
    ready: Ready,
    place: Place,
    driver: Handle,
    /// The producer's stream.
    home: Option<Live>,
    by: By,
}

/// Makes an array of `x` usable as `request` asks, on the stream that `object` is of. Its tensor is taken
/// last: what fails before leaves a capsule as it was.
#[inline]
fn hold(
    x: &Bound<'_, PyAny>,
    read: Read,
    request: Request,
    object: Option<Py<PyAny>>,
    take: impl FnOnce() -> PyResult<ImportedDlpack>,
) -> PyResult<Source> {
    let (py, Read { array, ready, place, driver, home, by }) = (x.py(), read);
    check_stream(&array, &driver, place, request)?;
    hand_over(py, DOOR, &driver, place, ready, request)?;
    let mut back = Back::new(&driver, place, home);
    back.hand_to(py, &array, request, object.as_ref().map(|object| object.clone_ref(py)))?;
    let keep = Keep::new(x.clone().unbind(), Some(take()?), object, back);
    Ok(Source { array, ready: told(ready, request), place, driver, keep, by })
}

/// Where the streams of `array` are. DLPack gives pinned and managed memory the device 0; the driver
/// knows whose it is.
fn place(driver: &Handle, array: &Descriptor) -> Result<Place> {
    if array.device().kind == MemoryKind::Device || array.ptr() == 0 {
        return Ok(Place::of(array.device()));
    }
    driver.locate(array.ptr()).map(Place::owning)
}

/// The device that the producer names, refused before it is asked for a capsule where CUDA cannot
/// reach it. A producer without `__dlpack_device__` is asked all the same.
fn declared_device(x: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let py = x.py();
    let method = match x.getattr(intern!(py, "__dlpack_device__")) {
        Ok(method) => method,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
        Err(error) => return Err(error),
    };
    let answer = method.call0()?;
    let malformed = || Error::new(Kind::DlpackDevice, super::stream::shown(&answer));
    let pair =
        answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(malformed)?;
    let mut numbers = [0; 2];
    for (number, item) in numbers.iter_mut().zip(pair.iter()) {
        *number = super::stream::index(&item)?.ok_or_else(malformed)?;
    }
    let [kind, id] = numbers;
    let unknown = |wrong: Kind| Error::new(wrong, format!("({kind}, {id})"));
    let (kind, id) = (
        u32::try_from(kind).map_err(|_| unknown(Kind::DeviceKind))?,
        i32::try_from(id).map_err(|_| unknown(Kind::DeviceOrdinal))?,
    );
    Ok(Some(Device::from_dlpack(kind, id)?))
}

/// Calls `ask` with `device` current: some producers export from the current device only.
fn on_device<R>(
    driver: &Handle,
    device: Option<Device>,
    ask: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let (Some(device), Ok(driver)) = (device, driver.get()) else {
        return ask();
    };
    let mut answer = None;
    order::within(driver, Place::of(device), |_| {
        answer = Some(ask());
        Ok(())
    })?;
    answer.unwrap_or_else(|| Err(Error::new(Kind::CapsuleType, "nothing").into()))
}

/// Asks for a capsule, and says what its memory is ready on.
fn ask<'py>(x: &Bound<'py, PyAny>, request: Request) -> PyResult<(Bound<'py, PyAny>, Ready)> {
    let legacy = Ready::On(Stream::Legacy);
    match request {
        Request::Unsaid => Ok((call(x, 1)?.0, legacy)),
        Request::NoOrder => match call(x, -1) {
            Ok((capsule, _)) => Ok((capsule, legacy)),
            // An interrupt or an exit is no refusal.
            Err(error) if !error.is_instance_of::<PyException>(x.py()) => Err(error),
            Err(refused) => match call(x, 1) {
                Ok((capsule, _)) => Ok((capsule, legacy)),
                Err(error) => {
                    // A producer may keep one exception and raise it every time.
                    if !error.value(x.py()).is(refused.value(x.py())) {
                        error.set_context(x.py(), Some(refused));
                    }
                    Err(error)
                }
            },
        },
        Request::On(stream) => match call(x, i128::from(stream.handle())) {
            Ok((capsule, true)) => Ok((capsule, Ready::On(stream))),
            Ok((capsule, false)) => Ok((capsule, legacy)),
            Err(error)
                if matches!(stream, Stream::PerThread(_))
                    && error.is_instance_of::<PyBufferError>(x.py()) =>
            {
                Ok((call(x, 1)?.0, legacy))
            }
            Err(error) => Err(error),
        },
    }
}

/// Calls `__dlpack__`, leaving out what a producer does not take; the flag says whether the stream
/// was passed. A producer without that argument makes its memory ready on the legacy default stream,
/// as the specification has it for `None`.
fn call<'py>(x: &Bound<'py, PyAny>, stream: i128) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = x.py();
    let method = x.getattr(intern!(py, "__dlpack__"))?;
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "stream"), stream)?;
    arguments.set_item(intern!(py, "max_version"), (1, 3))?;
    let first = match method.call((), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => error,
        answer => return answer.map(|capsule| (capsule, true)),
    };
    arguments.del_item(intern!(py, "max_version"))?;
    match method.call((), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
        answer => return answer.map(|capsule| (capsule, true)),
    }
    match method.call0() {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(first),
        answer => answer.map(|capsule| (capsule, false)),
    }
}
