//! The streams that imported libraries work on now: PyTorch's, CuPy's, those of the simulated device's, and those of
//! Warp and of libraries that were registered, which are asked by functions of Python's. Numba and JAX have none.
//!
//! They are asked at each use, by the cheapest way that they have, and never imported. What a library raises
//! is no answer; an interrupt passes through.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use super::by_function::answers;
use super::imported::library;
use super::object::handle_of;
use crate::device::{Device, Place};
use crate::dlpack::exchange::Table;
use crate::driver::Handle;
use crate::py::interpreter::{Answer, answered, entry};
use crate::stream::{Alive, Stream, Thread};

/// What a library does with the streams that dicts name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamPolicy {
    /// It waits for them, or works there.
    Heeded,
    /// It ignores them: torch, seen on 2.11 (`tests/gpu/test_races.py`).
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
        // current streams are held by them until this thread sets another, before which whoever calls this is
        // done with it; the simulated device outlives its own. Warp's and a registered library's may be another
        // thread's to give up: `objects` has its object. `Library.current_stream` asks who registers a library
        // for one, or for a handle that stays.
        each(unsafe { Alive::kept(stream, place) }, takes)
    };
    match driver {
        Handle::Cuda => {
            if let Some(native) = torchs(py, place.ordinal)? {
                found(from_native(native), StreamPolicy::Ignored)?;
            }
            if let Some(native) = cupys(py, place.ordinal)? {
                found(from_native(native), StreamPolicy::Heeded)?;
            }
        }
        Handle::Simulated(_) | Handle::Borrowed(_) => {
            for (object, ignores) in simulated(py, place.ordinal)? {
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
        Handle::Cuda if cupys(py, ordinal)? == Some(handle) => {
            let cuda =
                library(py, intern!(py, "cupy"))?.map(|cupy| cupy.getattr(intern!(py, "cuda")));
            let current = |cuda: Bound<'py, PyAny>| {
                cuda.call_method1(intern!(py, "get_current_stream"), (ordinal,))
            };
            answered(py, cuda.transpose().and_then(|cuda| cuda.map(current).transpose()))?
                .flatten()
                .into_iter()
                .collect()
        }
        Handle::Cuda => Vec::new(),
        Handle::Simulated(_) | Handle::Borrowed(_) => {
            simulated(py, ordinal)?.into_iter().map(|(object, _)| object).collect()
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

/// Numba's default stream: the legacy one or, by its setting, the per-thread one.
pub(crate) fn numbas_default(py: Python<'_>) -> PyResult<Stream> {
    let Some(cuda) = library(py, intern!(py, "numba.cuda"))? else { return Ok(Stream::Legacy) };
    let per_thread = cuda
        .getattr(intern!(py, "config"))
        .and_then(|config| config.getattr(intern!(py, "CUDA_PER_THREAD_DEFAULT_STREAM")))
        .and_then(|flag| flag.is_truthy());
    Ok(match answered(py, per_thread)? {
        Some(true) => Stream::PerThread(Thread::current()),
        _ => Stream::Legacy,
    })
}

/// The stream that tvm-ffi's environment has for the device of its tensor `x`, as the driver names it:
/// functions that are called through it work on that one.
pub(crate) fn tvm_ffis(x: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = x.py();
    let Some(module) = library(py, intern!(py, "tvm_ffi"))? else { return Ok(None) };
    let native = x
        .getattr(intern!(py, "device"))
        .and_then(|device| module.call_method1(intern!(py, "get_raw_stream"), (device,)))
        .and_then(|native| native.extract::<u64>());
    answered(py, native)
}

/// The stream that PyTorch works on now, as the driver names it.
fn torchs(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    static TABLE: PyOnceLock<Option<Table>> = PyOnceLock::new();
    let table = if let Some(table) = TABLE.get(py) {
        *table
    } else {
        let Some(torch) = library(py, intern!(py, "torch"))? else { return Ok(None) };
        let tensor = answered(py, torch.getattr(intern!(py, "Tensor")))?;
        let Some(tensor) = tensor.and_then(|tensor| tensor.cast_into::<PyType>().ok()) else {
            return Ok(None);
        };
        let table = answered(py, Table::of(&tensor))?.flatten();
        *TABLE.get_or_init(py, || table)
    };
    let Some(table) = table else { return Ok(None) };
    answered(py, table.current_work_stream(py, Device::cuda(ordinal)))
}

/// How CuPy is asked for its current stream.
enum Cupy {
    /// `cupy_backends.cuda.stream.get_stream_ptr(device)`, which CuPy's own extensions call.
    Native(unsafe extern "C" fn(c_int) -> isize),
    /// `cupy.cuda.get_current_stream(device)`.
    Python(Py<PyAny>),
}

/// The stream that CuPy works on now, as the driver names it.
fn cupys(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    static CUPY: PyOnceLock<Cupy> = PyOnceLock::new();
    let cupy = if let Some(cupy) = CUPY.get(py) {
        cupy
    } else {
        let Some(module) = library(py, intern!(py, "cupy"))? else { return Ok(None) };
        if let Some(function) = answered(py, native(py))?.flatten() {
            CUPY.get_or_init(py, || Cupy::Native(function))
        } else {
            let function = module
                .getattr(intern!(py, "cuda"))
                .and_then(|cuda| cuda.getattr(intern!(py, "get_current_stream")));
            let Some(function) = answered(py, function)? else { return Ok(None) };
            CUPY.get_or_init(py, || Cupy::Python(function.unbind()))
        }
    };
    match cupy {
        Cupy::Native(function) => {
            // SAFETY: the capsule says that this is the function's type, and the lock is held.
            let native = unsafe { function(ordinal) };
            match PyErr::take(py) {
                None => Ok(u64::try_from(native).ok()),
                Some(error) => answered(py, Err(error)),
            }
        }
        Cupy::Python(function) => {
            let native = function
                .bind(py)
                .call1((ordinal,))
                .and_then(|stream| stream.getattr(intern!(py, "ptr"))?.extract::<u64>());
            answered(py, native)
        }
    }
}

/// The same, as `to_cai` takes it.
#[pyfunction]
pub(crate) fn _stream_of_cupy(py: Python<'_>, device: i32) -> Answer<'_> {
    entry(py, || {
        let native = cupys_or_legacy(py, device)?;
        Ok(Stream::from_native(native, Thread::current()).handle())
    })
}

/// The same; the legacy default stream where it is not known.
pub(crate) fn cupys_or_legacy(py: Python<'_>, ordinal: i32) -> PyResult<u64> {
    Ok(cupys(py, ordinal)?.unwrap_or_default())
}

/// Whether CuPy says which stream it works on.
pub(crate) fn knows_cupy(py: Python<'_>) -> PyResult<bool> {
    Ok(cupys(py, 0)?.is_some())
}

/// CuPy's own entry point, which Cython keeps in a capsule whose name is the function's type.
fn native(py: Python<'_>) -> PyResult<Option<unsafe extern "C" fn(c_int) -> isize>> {
    const SIGNATURE: &CStr = c"intptr_t (int)";
    let name = intern!(py, "cupy_backends.cuda.stream");
    let Some(module) = library(py, name)? else { return Ok(None) };
    let functions = module.getattr(intern!(py, "__pyx_capi__"))?;
    let capsule = functions.get_item(intern!(py, "get_stream_ptr"))?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SIGNATURE))?;
    // SAFETY: Cython names the capsule of a C function by its type, which was just compared; the module, and
    // so the function, stays loaded.
    Ok(Some(unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> isize>(pointer.as_ptr())
    }))
}

/// The streams that the simulated device's libraries work on, and whether each ignores those of dicts.
fn simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let name = intern!(py, "cai_bridge.testing");
    let Some(testing) = library(py, name)? else { return Ok(vec![]) };
    let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
    Ok(answered(py, streams.and_then(|streams| streams.extract()))?.unwrap_or_default())
}
