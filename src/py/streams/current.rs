//! The streams that imported libraries work on now. The bridge asks the libraries at each use, and imports none.
#![allow(unsafe_code)]

use std::cell::RefCell;

use pyo3::prelude::*;

use super::by_function::{has_functions, library_streams};
use super::object::handle_of;
use crate::device::Place;
use crate::driver::Handle;
use crate::py::interpreter::{FirstInterrupt, answered};
use crate::py::library;
use crate::stream::{Alive, Stream, Thread};

/// What a library does with the stream that a CAI dict names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DictPolicy {
    Waits,
    Ignores,
}

/// Keeps the stream objects that [`each`] got from Python functions: another thread may drop them.
#[derive(Debug, Default)]
pub(crate) struct Objects<'py>(RefCell<Vec<(Stream, Bound<'py, PyAny>)>>);

impl<'py> Objects<'py> {
    pub(super) fn of(&self, stream: Stream) -> Option<Bound<'py, PyAny>> {
        let objects = self.0.borrow();
        objects.iter().find(|(one, _)| *one == stream).map(|(_, object)| object.clone())
    }
}

/// Calls `each` with the current streams that imported libraries name at `place`. The streams stay valid until
/// `objects` is dropped, or this thread sets another stream. What a library
/// raises as an interrupt is raised when all were asked.
pub(crate) fn each<'a, 'py>(
    py: Python<'py>,
    driver: &Handle,
    place: Place,
    objects: &'a Objects<'py>,
    mut each: impl FnMut(Alive<'a>, DictPolicy) -> PyResult<()>,
) -> PyResult<()> {
    let policy = |ignores| if ignores { DictPolicy::Ignores } else { DictPolicy::Waits };
    let from_native = |native| Stream::from_native(native, Thread::current());
    let mut interrupt = FirstInterrupt::default();
    let mut found = |stream: Stream, takes| {
        // SAFETY: the library works on the stream now, and keeps the stream alive until this thread sets another. Every
        // caller is done with the stream before that. Another thread may drop the stream of Warp or of a registered
        // library, so `objects` keeps the stream object. A registered library returns an object, or a handle whose
        // stream stays alive (`Library.current_stream`).
        each(unsafe { Alive::kept(stream, place) }, takes)
    };
    match driver {
        Handle::Cuda => {
            for current in library::current() {
                let native = interrupt.pass(current.native(py, place.ordinal));
                if let Some(native) = native.flatten() {
                    found(from_native(native), policy(current.ignores_dicts()))?;
                }
            }
        }
        Handle::Simulated(_) | Handle::Borrowed(_) => {
            let streams = interrupt.pass(on_simulated(py, place.ordinal));
            for (object, ignores) in streams.into_iter().flatten() {
                let native = interrupt.pass(answered(py, handle_of(&object)));
                if let Some(native) = native.flatten() {
                    found(from_native(native), policy(ignores))?;
                }
            }
        }
    }
    for asked in library_streams(py, place.ordinal, &mut interrupt) {
        let stream = from_native(asked.native);
        // If `driver` is this library's simulated device, skip handles that the device never gave, such as the handles
        // of real streams.
        if !matches!(stream, Stream::Handle(handle) if !driver.may_have(handle)) {
            objects.0.borrow_mut().extend(asked.object.map(|object| (stream, object)));
            found(stream, policy(asked.ignores))?;
        }
    }
    interrupt.raise()
}

/// The libraries' stream objects on a simulated GPU, each with whether its library ignores the stream of a CAI dict.
fn on_simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let mut found = Vec::new();
    for library in library::all() {
        found.extend(library.simulated_streams(py, ordinal)?);
    }
    Ok(found)
}

/// False if a library names another current stream than the legacy default stream; `None` if only [`each`] can tell.
#[inline]
pub(crate) fn are_all_on_legacy(
    py: Python<'_>,
    driver: &Handle,
    ordinal: i32,
) -> PyResult<Option<bool>> {
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

pub(crate) fn named(_py: Python<'_>, native: u64, place: Place) -> Alive<'_> {
    let stream = Stream::from_native(native, Thread::current());
    // SAFETY: a library that names a stream for an array keeps the stream alive while the array is imported, and the
    // lifetime of `_py` ends with the call that imports the array. `current_work_stream` names the stream to launch
    // work on (`dlpack.h`, "DLPackCurrentWorkStream"). The exporter of a dict names a stream that outlives the array
    // (CUDA Array Interface, version 3, "Lifetime management", "Streams").
    unsafe { Alive::kept(stream, place) }
}

/// The stream object for `handle`, from a library that works on that stream now. Does not call the Python functions by
/// which some libraries name their streams.
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

pub(super) fn object_by_function(
    py: Python<'_>,
    handle: u64,
    ordinal: i32,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    let mut interrupt = FirstInterrupt::default();
    let mut asked = library_streams(py, ordinal, &mut interrupt).into_iter();
    interrupt.raise()?;
    Ok(asked.find(|asked| asked.native == handle).and_then(|asked| asked.object))
}
