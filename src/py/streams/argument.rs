//! The argument `stream=`: `None`, an integer, or a stream object, such as one of [CUDA's stream
//! protocol](https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html). The handle 0 of a stream
//! object is the legacy default stream; the integer 0 and `bool` are refused.
#![allow(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple, PyType};

use super::known_stream::{self, KnownStream};
use super::object::{handle, older, ordinal, quickly};
use super::objects_by_handle::with_object;
use crate::descriptor::Descriptor;
use crate::device::{MemoryKind, Place};
use crate::driver::Handle;
use crate::error::{Error, Kind, Result};
use crate::order;
use crate::py::interpreter::answered;
use crate::py::native;
use crate::py::text::{an_object, class_name, refused, shown};
use crate::stream::{Alive, Request, Stream, Thread};

#[derive(Debug)]
pub(crate) struct StreamArgument<'a, 'py> {
    request: Request,
    object: Option<&'a Bound<'py, PyAny>>,
    /// The GPU that a stream object for a default stream names.
    ordinal: Option<i32>,
    /// Whether a consumer on the legacy default stream may also work on blocking streams.
    stands_in: bool,
    /// Whether each call of the consumer's library may use another stream, as Numba's kernels do.
    is_default: bool,
}

impl<'a, 'py> StreamArgument<'a, 'py> {
    pub(crate) const UNSPECIFIED: Self = Self {
        request: Request::Unspecified,
        object: None,
        ordinal: None,
        stands_in: false,
        is_default: false,
    };

    pub(crate) const LEGACY: Self =
        Self { request: Request::On(Stream::Legacy), ..Self::UNSPECIFIED };

    #[inline(always)]
    pub(crate) fn parse(stream: Option<&'a Bound<'py, PyAny>>) -> PyResult<Self> {
        stream.map_or(Ok(Self::UNSPECIFIED), Self::of)
    }

    #[inline(never)]
    fn of(given: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if given.is_exact_instance_of::<PyInt>() {
            let request = Request::from_integer(Some(integer(given)?), Thread::current())?;
            return Ok(Self { request, ..Self::UNSPECIFIED });
        }
        let native = match quickly(given)? {
            Some(native) => native,
            None => match Self::looked_up(given)? {
                Ok(native) => native,
                Err(number) => {
                    let request = Request::from_integer(Some(number), Thread::current())?;
                    return Ok(Self { request, ..Self::UNSPECIFIED });
                }
            },
        };
        let stream = Stream::from_native(native, Thread::current());
        let ordinal = match stream {
            Stream::Handle(_) => None,
            _ => ordinal(given)?,
        };
        let request = Request::On(stream);
        Ok(Self { request, object: Some(given), ordinal, ..Self::UNSPECIFIED })
    }

    /// The handle of the stream object `given`; `Err` with the number if `given` is a number.
    #[cold]
    fn looked_up(given: &Bound<'_, PyAny>) -> PyResult<std::result::Result<u64, i128>> {
        match given.getattr(intern!(given.py(), "__cuda_stream__")) {
            Ok(_) if given.is_instance_of::<PyType>() => {
                let class = class_name(given.cast::<PyType>()?)?;
                Err(Error::new(Kind::StreamType, format!("the class {class}")).into())
            }
            Ok(method) => handle(&method).map(Ok),
            Err(error) if error.is_instance_of::<PyAttributeError>(given.py()) => {
                older(given)?.map_or_else(|| number(given).map(Err), |native| Ok(Ok(native)))
            }
            Err(error) => Err(error),
        }
    }

    /// The stream with the driver handle `handle`, which a library has just named as its current stream.
    pub(crate) fn native(handle: u64) -> Self {
        let stream = Stream::from_native(handle, Thread::current());
        Self { request: Request::On(stream), ..Self::UNSPECIFIED }
    }

    /// Marks the stream as a library's current one. A library on the legacy default stream may also use blocking
    /// streams.
    pub(crate) const fn by_library(self, is_default: bool) -> Self {
        Self { stands_in: true, is_default, ..self }
    }

    /// False if `stream` is the legacy default stream in place of others, and each call of the consumer's library may
    /// use another stream.
    pub(crate) const fn is_on(&self, stream: Alive<'_>) -> bool {
        !(self.is_default && stream.stands_in())
    }

    /// The named stream. `None` if no stream was named, if the stream is a library's default, or if the stream object
    /// names another GPU than `place`.
    #[inline]
    pub(crate) fn stream_at(&self, place: Place) -> Option<Stream> {
        let is_there = self.ordinal.is_none_or(|ordinal| ordinal == place.ordinal);
        self.request.stream().filter(|_| is_there && !self.is_default)
    }

    /// Runs `call`, which passes the stream's handle to a producer. If the stream was given as an object with a handle,
    /// this thread can find the object by the handle while `call` runs.
    pub(crate) fn naming<R>(&self, call: impl FnOnce() -> R) -> R {
        match (self.request, self.object) {
            (Request::On(Stream::Handle(handle)), Some(object)) => {
                with_object(handle, object, call)
            }
            _ => call(),
        }
    }

    pub(crate) const fn or_legacy(self) -> Self {
        Self { request: self.request.or_legacy(), ..self }
    }

    pub(crate) const fn request(&self) -> Request {
        self.request
    }

    pub(crate) const fn ordinal(&self) -> Option<i32> {
        self.ordinal
    }

    /// Fails if a stream object for a default stream names another GPU than `place`. Checks only device memory with
    /// items.
    #[inline]
    pub(crate) fn check_ordinal(&self, array: &Descriptor, place: Place) -> Result<()> {
        match (self.ordinal, self.request) {
            (Some(ordinal), Request::On(stream))
                if ordinal != place.ordinal
                    && array.ptr() != 0
                    && array.device().kind == MemoryKind::Device =>
            {
                Err(order::other_device(stream, ordinal, place))
            }
            _ => Ok(()),
        }
    }

    /// The named stream, at `place` unless the stream object names another GPU. `None` for `stream=None` and -1.
    #[inline]
    pub(crate) const fn alive(&self, place: Place) -> Option<Alive<'a>> {
        let place = match self.ordinal {
            Some(ordinal) if ordinal != place.ordinal => Place::gpu(ordinal),
            _ => place,
        };
        match self.request {
            Request::On(Stream::Legacy) if self.stands_in => Some(Alive::standing_in(place)),
            // SAFETY: the caller must keep the stream alive for the whole call, as the docs of every `stream=` say, and
            // `'a` is no longer than the call's reference to its argument. A stream from [`Self::native`] is a
            // library's current stream, which the library keeps while it works there.
            Request::On(stream) => Some(unsafe { Alive::kept(stream, place) }),
            Request::Unspecified | Request::NoOrder => None,
        }
    }

    pub(crate) fn keep(
        &self,
        py: Python<'py>,
        driver: &Handle,
        place: Place,
    ) -> PyResult<Option<KnownStream>> {
        self.alive(place)
            .map(|alive| known_stream::keep(py, driver, alive, self.object))
            .transpose()
    }
}

/// Fails for a `bool`, although Python's `bool` is an `int`.
pub(crate) fn number(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if value.is_instance_of::<PyBool>() {
        return Err(Error::new(Kind::StreamType, format!("the bool {value}")).into());
    }
    let index = as_integer(value)?.ok_or_else(|| refused(Kind::StreamType, an_object(value)))?;
    integer(&index)
}

/// `None` if `value` is neither an integer nor has a usable `__index__`, or if the number fits neither `i64` nor `u64`.
/// A `bool` counts as an integer.
pub(crate) fn index(value: &Bound<'_, PyAny>) -> PyResult<Option<i128>> {
    let Some(index) = as_integer(value)? else { return Ok(None) };
    answered(value.py(), integer(&index))
}

fn as_integer<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyInt>() {
        return Ok(Some(value.clone()));
    }
    let py = value.py();
    match value.call_method0(intern!(py, "__index__")) {
        Ok(index) if index.is_instance_of::<PyInt>() && !index.is_instance_of::<PyBool>() => {
            Ok(Some(index))
        }
        Err(error)
            if !error.is_instance_of::<PyTypeError>(py)
                && !error.is_instance_of::<PyAttributeError>(py) =>
        {
            Err(error)
        }
        _ => Ok(None),
    }
}

/// `None` unless `value` is a tuple of two items that extract as `A` and `B`. A `bool` is not accepted.
pub(crate) fn pair<'py, A, B>(value: &Bound<'py, PyAny>) -> PyResult<Option<(A, B)>>
where
    (A, B): for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    match value.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => {
            if pair.iter_borrowed().any(|item| item.is_instance_of::<PyBool>()) {
                return Ok(None);
            }
            answered(value.py(), pair.extract())
        }
        _ => Ok(None),
    }
}

/// Fails for an integer that fits neither `i64` nor `u64`: no stream has such a number.
pub(crate) fn integer(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if let Some(small) = native::small(value) {
        return Ok(i128::from(small));
    }
    if let Ok(small) = value.extract::<i64>() {
        return Ok(i128::from(small));
    }
    value.extract::<u64>().map(i128::from).map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            refused(Kind::StreamNegative, shown(value))
        } else {
            error
        }
    })
}
