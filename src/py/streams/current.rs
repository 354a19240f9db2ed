//! The streams that imported libraries work on now: PyTorch's, CuPy's, those of the simulated device's, and those of
//! Warp and of libraries that were registered, which are asked by functions of Python's. Numba and JAX have none.
//!
//! They are asked at each use, and never imported. What a library raises is no answer; an interrupt passes through.
#![allow(unsafe_code)]

use std::cell::RefCell;

use pyo3::prelude::*;

use super::by_function::{answers, has_functions};
use super::object::handle_of;
use crate::device::Place;
use crate::driver::Handle;
use crate::py::interpreter::answered;
use crate::py::library;
use crate::stream::{Alive, Stream, Thread};

/// What a library does with the streams that dicts name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamPolicy {
    /// It waits for them, or works there.
    Heeded,
    /// It ignores them.
    Ignored,
}

/// The objects of the streams that [`each`] names, where a library has one: another thread may give it up.
#[derive(Debug, Default)]
pub(crate) struct Objects<'py>(RefCell<Vec<(Stream, Bound<'py, PyAny>)>>);

impl<'py> Objects<'py> {
    /// That of `stream`, if its library was asked by a function and answered with one.
    pub(super) fn of(&self, stream: Stream) -> Option<Bound<'py, PyAny>> {
        let objects = self.0.borrow();
        objects.iter().find(|(one, _)| *one == stream).map(|(_, object)| object.clone())
    }
}

/// Calls `each` with the stream that each imported library works on now at `place`, and what it does with
/// those that dicts name.
///
/// The streams are good as long as this thread runs no code that sets another, and `objects` is there.
pub(crate) fn each<'a, 'py>(
    py: Python<'py>,
    driver: &Handle,
    place: Place,
    objects: &'a Objects<'py>,
    mut each: impl FnMut(Alive<'a>, StreamPolicy) -> PyResult<()>,
) -> PyResult<()> {
    let policy = |ignores| if ignores { StreamPolicy::Ignored } else { StreamPolicy::Heeded };
    let from_native = |native| Stream::from_native(native, Thread::current());
    let mut found = |stream: Stream, takes| {
        // SAFETY: the library works on the stream now, in this thread, and so keeps it: PyTorch's and CuPy's
        // current streams are held by them until this thread sets another, and every caller is done with it before
        // that; the simulated device outlives its own streams. Another thread may give up Warp's or a registered
        // library's stream: `objects` has its object. `Library.current_stream` requires an object, or a handle that
        // lives on.
        each(unsafe { Alive::kept(stream, place) }, takes)
    };
    match driver {
        Handle::Cuda => {
            for current in library::current() {
                if let Some(native) = current.native(py, place.ordinal)? {
                    found(from_native(native), policy(current.ignores_dicts()))?;
                }
            }
        }
        Handle::Simulated(_) | Handle::Borrowed(_) => {
            for (object, ignores) in on_simulated(py, place.ordinal)? {
                if let Some(native) = answered(py, handle_of(&object))? {
                    found(from_native(native), policy(ignores))?;
                }
            }
        }
    }
    for asked in answers(py, place.ordinal)? {
        let stream = from_native(asked.native);
        // A real library's is no answer while the device is simulated.
        if !matches!(stream, Stream::Handle(handle) if !driver.may_have(handle)) {
            objects.0.borrow_mut().extend(asked.object.map(|object| (stream, object)));
            found(stream, policy(asked.ignores))?;
        }
    }
    Ok(())
}

/// The streams that libraries work on now on a simulated GPU, and whether each ignores those of dicts.
fn on_simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let mut found = Vec::new();
    for library in library::all() {
        found.extend(library.simulated_streams(py, ordinal)?);
    }
    Ok(found)
}

/// Whether the imported libraries that have a current stream all work on the legacy default one, as in most programs;
/// `None` where [`each`] has to be asked.
#[inline]
pub(crate) fn are_all_on_legacy(
    py: Python<'_>,
    driver: &Handle,
    ordinal: i32,
) -> PyResult<Option<bool>> {
    /// The driver's names of the legacy default stream.
    const LEGACY: [u64; 2] = [0, 1];
    let is_legacy = |native: Option<u64>| native.is_none_or(|native| LEGACY.contains(&native));
    if !matches!(driver, Handle::Cuda) || has_functions(py)? {
        return Ok(None);
    }
    for current in library::current() {
        if !is_legacy(current.native(py, ordinal)?) {
            return Ok(Some(false));
        }
    }
    Ok(Some(true))
}

/// The stream that a library has just named by its driver's handle: by its exchange API, as the one that it
/// works on now, or by a dict.
pub(crate) fn named(_py: Python<'_>, native: u64, place: Place) -> Alive<'_> {
    let stream = Stream::from_native(native, Thread::current());
    // SAFETY: who hands an array out with a stream keeps that stream while its memory is taken over, which is
    // the call that `'py` stands for: `current_work_stream` names the one to launch work on (`dlpack.h`,
    // "DLPackCurrentWorkStream"), an exporter one that outlives the array (CUDA Array Interface, version 3,
    // "Lifetime management", "Streams").
    unsafe { Alive::kept(stream, place) }
}

/// The object of the stream `handle`, where a library works on that one now.
pub(super) fn object<'py>(
    py: Python<'py>,
    driver: &Handle,
    handle: u64,
    ordinal: i32,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found: Vec<Bound<'_, PyAny>> = match driver {
        Handle::Cuda => {
            let mut found = Vec::new();
            for current in library::current() {
                if current.native(py, ordinal)? == Some(handle) {
                    found.extend(current.object(py, ordinal)?);
                }
            }
            found
        }
        Handle::Simulated(_) | Handle::Borrowed(_) => {
            on_simulated(py, ordinal)?.into_iter().map(|(object, _)| object).collect()
        }
    };
    for object in found {
        if answered(py, handle_of(&object))? == Some(handle) {
            return Ok(Some(object));
        }
    }
    Ok(None)
}

/// The same for the libraries that are asked by functions, which costs more.
pub(super) fn object_by_function(
    py: Python<'_>,
    handle: u64,
    ordinal: i32,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    let asked = answers(py, ordinal)?.into_iter().find(|asked| asked.native == handle);
    Ok(asked.and_then(|asked| asked.object))
}
