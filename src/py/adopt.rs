//! Streams that may still be used later: those that something which is held keeps alive.
//!
//! A handle is a bare address. Touching it once the stream is gone ends the process (SIGSEGV, measured
//! on an H200, driver 580, 2026-11), so outside the call that a handle was given to it is used only as
//! a [`Live`] stream: a default stream, one whose object is held, or one that a library vouches for.
//!
//! - PyTorch never destroys the streams of its own pools; such a stream has an odd `stream_id`, where
//!   that of an external one is its address (measured on torch 2.11).
//! - CuPy's current stream is an object, which keeps its stream. Its arrays do not: the dict names the
//!   current stream of the moment when it is read, against "Lifetime management", "Streams".
//! - Numba has no current stream; its stream objects are to be given as they are.
//!
//! Objects around somebody else's handle (`ExternalStream` of PyTorch and CuPy, Numba's
//! `external_stream`) keep nothing alive and vouch for nothing. An object that can be closed while it is
//! held, as cuda.core's, is asked once more before its stream is used.

use pyo3::intern;
use pyo3::prelude::*;

use super::current::{self, answered, is_of_a_pool};
use super::native;
use super::stream::handle_of;
use crate::driver::Handle;
use crate::stream::{Stream, Thread};

/// A stream that is alive as long as this is.
#[derive(Debug)]
pub(super) struct Live {
    /// The stream.
    pub(super) stream: Stream,
    /// What keeps it alive, where something has to.
    pub(super) object: Option<Py<PyAny>>,
    /// Whether that is the exporter of a CAI dict, which names the stream.
    pub(super) lent: bool,
}

impl Live {
    /// `stream`, kept alive by `object` where one was given, else by whoever vouches for it; `None`
    /// where nobody does.
    pub(super) fn new(
        py: Python<'_>,
        stream: Stream,
        object: Option<Py<PyAny>>,
        driver: &Handle,
        ordinal: i32,
    ) -> PyResult<Option<Self>> {
        if let Stream::Handle(handle) = stream {
            let keeps = match &object {
                Some(object) => owns(object.bind(py))?,
                None => false,
            };
            if !keeps {
                return Self::adopted(py, handle, driver, ordinal);
            }
        }
        Ok(Some(Self { stream, object, lent: false }))
    }

    /// A stream that the two sides share, so that nothing will have to wait: nobody need vouch for it.
    pub(super) const fn same(stream: Stream, object: Option<Py<PyAny>>) -> Self {
        Self { stream, object, lent: false }
    }

    /// The stream that a dict names, which the specification has the exporter keep alive; `None` for a
    /// dict of whatever exporter.
    pub(super) const fn lent(stream: Stream, exporter: Option<Py<PyAny>>) -> Self {
        Self { stream, object: exporter, lent: true }
    }

    /// Whether the object still keeps the stream: some can be closed, and the garbage collector ends an
    /// object before it lets go of it.
    pub(super) fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.now(py)? == Some(self.stream))
    }

    /// The stream as it is now, which for the exporter of a dict is the one that it names now. An object
    /// that fails to say keeps nothing.
    pub(super) fn now(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        let Some(object) = self.object.as_ref().map(|object| object.bind(py)) else {
            return Ok(Some(self.stream));
        };
        if native::is_finalized(object) {
            return Ok(None);
        }
        let answer = match self.stream {
            _ if self.lent => exported(object),
            Stream::Handle(handle) => {
                handle_of(object).map(|named| (named == handle).then_some(self.stream))
            }
            stream => Ok(Some(stream)),
        };
        Ok(answered(py, answer)?.flatten())
    }

    /// The live stream of a bare handle on the device `ordinal`.
    fn adopted(
        py: Python<'_>,
        handle: u64,
        driver: &Handle,
        ordinal: i32,
    ) -> PyResult<Option<Self>> {
        let stream = Stream::Handle(handle);
        if matches!(driver, Handle::Cuda) && current::is_torchs(py, handle, ordinal)? {
            return Ok(Some(Self { stream, object: None, lent: false }));
        }
        match current::object(py, driver, handle, ordinal)? {
            Some(object) if owns(&object)? => {
                Ok(Some(Self { stream, object: Some(object.unbind()), lent: false }))
            }
            _ => Ok(None),
        }
    }

    /// Another holder of the same.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let object = self.object.as_ref().map(|object| object.clone_ref(py));
        Self { stream: self.stream, object, lent: self.lent }
    }
}

/// The stream that the dict of an exporter names now.
fn exported(exporter: &Bound<'_, PyAny>) -> PyResult<Option<Stream>> {
    let py = exporter.py();
    let interface = exporter.getattr(intern!(py, "__cuda_array_interface__"))?;
    let named = interface.get_item(intern!(py, "stream"))?;
    if named.is_none() {
        return Ok(None);
    }
    Ok(Some(Stream::from_integer(named.extract()?, Thread::current())?))
}

/// Whether a stream object keeps its stream alive. One that fails to say does not.
fn owns(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(answered(object.py(), says_it_owns(object))?.unwrap_or(false))
}

fn says_it_owns(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if let Some(id) = object.getattr_opt(intern!(py, "stream_id"))? {
        return Ok(is_of_a_pool(id.extract()?));
    }
    if object.get_type().name()? == "ExternalStream" {
        return Ok(false);
    }
    match object.getattr_opt(intern!(py, "external"))? {
        Some(external) => Ok(!external.is_truthy()?),
        None => Ok(true),
    }
}
