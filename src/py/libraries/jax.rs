//! JAX: its arrays never change. It asks others to be ready on streams of a pool, and computes on a stream of its own, which
//! waits for those. It names that to no one; but XLA tells it to whatever is called by its foreign function interface.
//!
//! Read for this: `xla/ffi/api/c_api.h`, which jaxlib 0.10.2 has in its `include`.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::library::{Library, Pool};
use crate::py::streams::pools::round;

#[derive(Debug)]
pub(super) struct Jax;

static HABITS: [HabitRow; 7] = [
    known("jax", Habit::KeepsToDlpack, "0.11.2", "gpu/test_races.py"),
    known("jaxlib", Habit::KeepsToDlpack, "0.11.2", "gpu/test_races.py"),
    known("jax", Habit::Immutable, "0.11.2", "gpu/test_jax.py"),
    known("jaxlib", Habit::Immutable, "0.11.2", "gpu/test_jax.py"),
    known("jax", Habit::Immutable, "0.12", "python/test_strangers.py"),
    known(
        "jax.experimental.buffer_callback",
        Habit::OrdersNothing,
        "0.10.2",
        "python/test_producers_known.py",
    ),
    known("jaxlib._jax.ffi", Habit::OrdersNothing, "0.8", "python/test_producers_known.py"),
];

impl Library for Jax {
    fn name(&self) -> &'static str {
        "jax"
    }

    fn habits(&self) -> &'static [HabitRow] {
        &HABITS
    }

    fn pool(&self) -> Option<&dyn Pool> {
        Some(self)
    }
}

/// Four for each device (0.11.2, one H200, 2026-11).
impl Pool for Jax {
    fn list(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>> {
        let Some(jax) = imported(py, intern!(py, "jax"))? else { return Ok(None) };
        let begun = jax.getattr("_src").and_then(|source| {
            source.getattr("xla_bridge")?.call_method0("backends_are_initialized")
        })?;
        if !begun.is_truthy()? {
            return Ok(None);
        }
        for device in jax.call_method1("local_devices", (py.None(), "gpu"))?.try_iter()? {
            let device = device?;
            if device.getattr("local_hardware_id")?.extract::<i32>()? == ordinal {
                let next =
                    || device.call_method0("get_stream_for_external_ready_events")?.extract();
                return round(next).map(Some);
            }
        }
        Ok(None)
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn computes_on(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
        static STREAMS: Mutex<Vec<(i32, Option<u64>)>> = Mutex::new(Vec::new());
        let known = || STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, stream)) = known().iter().find(|(of, _)| *of == ordinal) {
            return Ok(*stream);
        }
        let asked = py
            .import(intern!(py, "cai_bridge._libraries._jax"))
            .and_then(|jax| jax.call_method1(intern!(py, "work_stream"), (ordinal,)))
            .and_then(|stream| stream.extract::<Option<u64>>());
        let stream = answered(py, asked)?.flatten();
        known().push((ordinal, stream));
        Ok(stream)
    }
}

#[repr(C)]
struct ApiVersion {
    size: usize,
    extension: *mut c_void,
    major: c_int,
    minor: c_int,
}

/// The functions of the interface, as far as they are used.
#[repr(C)]
struct Api {
    size: usize,
    extension: *mut c_void,
    version: ApiVersion,
    internal: *const c_void,
    create_error: *const c_void,
    error_message: *const c_void,
    destroy_error: Option<unsafe extern "C" fn(*mut DestroyError)>,
    register: *const c_void,
    get_stream: Option<unsafe extern "C" fn(*mut GetStream) -> *mut c_void>,
}

#[repr(C)]
struct DestroyError {
    size: usize,
    extension: *mut c_void,
    error: *mut c_void,
}

#[repr(C)]
struct GetStream {
    size: usize,
    extension: *mut c_void,
    context: *mut c_void,
    stream: *mut c_void,
}

/// A call, as far as it is read.
#[repr(C)]
struct CallFrame {
    size: usize,
    extension: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
}

/// What XLA asks a function about itself, at its registration.
#[repr(C)]
struct Extension {
    size: usize,
    kind: c_int,
    next: *mut c_void,
    metadata: *mut Metadata,
}

#[repr(C)]
struct Metadata {
    size: usize,
    version: ApiVersion,
    traits: u32,
}

const METADATA: c_int = 1;
const EXECUTE: c_int = 3;

/// The stream of the last call; 0 where there was none.
static SAID: AtomicU64 = AtomicU64::new(0);

/// What XLA calls, with the stream that it runs on.
unsafe extern "C" fn note(frame: *mut CallFrame) -> *mut c_void {
    // SAFETY: XLA calls with a call frame, whose first fields are these; all that they point to is there for the call
    // ("FFI handler"). `extension` is NULL, or begins with its kind.
    unsafe {
        let frame = &*frame;
        let api = frame.api.as_ref();
        if let Some(extension) = frame.extension.as_ref()
            && extension.kind == METADATA
        {
            // Of the version of the caller: the fields above are those of every one so far.
            let metadata = &mut *extension.metadata;
            let (major, minor) = api.map_or((0, 1), |api| (api.version.major, api.version.minor));
            (metadata.version.major, metadata.version.minor) = (major, minor);
            metadata.traits = 0;
        } else if frame.stage == EXECUTE
            && let Some(api) = api
            && api.size >= size_of::<Api>()
            && api.version.major == 0
            && let (Some(get_stream), Some(destroy_error)) = (api.get_stream, api.destroy_error)
        {
            let (extension, stream) = (ptr::null_mut(), ptr::null_mut());
            let (size, context) = (size_of::<GetStream>(), frame.context);
            let mut asked = GetStream { size, extension, context, stream };
            let error = get_stream(&raw mut asked);
            if error.is_null() {
                SAID.store(asked.stream.addr() as u64, Ordering::Release);
            } else {
                let mut failed = DestroyError { size: size_of::<DestroyError>(), extension, error };
                destroy_error(&raw mut failed);
            }
        }
    }
    ptr::null_mut()
}

/// The function, as `jax.ffi.register_ffi_target` takes it.
#[pyfunction]
pub(crate) fn _xla_handler(py: Python<'_>) -> Answer<'_> {
    entry(py, || {
        // SAFETY: a function is somewhere, and stays there; there is nothing to let go of.
        unsafe {
            let function = ptr::NonNull::new_unchecked(note as *mut c_void);
            PyCapsule::new_with_pointer(py, function, c"xla")
        }
    })
}

/// The stream that the last call of the function was told, as the driver names it; 0 where it was told none. It is
/// forgotten.
#[pyfunction]
pub(crate) fn _xla_said() -> u64 {
    SAID.swap(0, Ordering::AcqRel)
}
