//! JAX: its arrays never change. JAX requests arrays on the streams of a pool, but computes on another stream, which
//! waits for the pool's stream. A function of XLA's foreign function interface can ask XLA for that other stream
//! (`xla/ffi/api/c_api.h`, which jaxlib 0.10.2 has in its `include`).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use crate::dlpack::capsule;
use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::{Answer, answered, entry, is_interrupt};
use crate::py::library::{Capsules, Library, StreamPool};
use crate::py::streams::pools::round;

#[derive(Debug)]
pub(super) struct Jax;

const HABITS: &[HabitRow] = &[
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
        HABITS
    }

    fn pool(&self) -> Option<&dyn StreamPool> {
        Some(self)
    }

    fn capsules(
        &'static self,
        kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<&'static dyn Capsules>> {
        let is_own = kind.qualname()? == "ArrayImpl" && kind.module()? == "jaxlib._jax";
        Ok(is_own.then_some(self as _))
    }
}

/// JAX hands out four streams for each device in turn (0.11.2, one H200, 2026-11).
impl StreamPool for Jax {
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
        let known = || JAX.streams.lock().unwrap_or_else(PoisonError::into_inner);
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

struct Jaxs {
    /// The streams on which JAX computes, by GPU ordinal; `None` for a GPU whose stream could not be found.
    streams: Mutex<Vec<(i32, Option<u64>)>>,
    /// jaxlib's entry, set after a comparison with `__dlpack__`; `None` if the entry failed or its capsule differed.
    entry: PyOnceLock<Option<Py<PyAny>>>,
    of_one_device: PyOnceLock<Py<PyType>>,
    /// The driver handle of the stream that [`note`] found last. [`_xla_said`] resets the handle to 0.
    said: AtomicU64,
}

static JAX: Jaxs = Jaxs {
    streams: Mutex::new(Vec::new()),
    entry: PyOnceLock::new(),
    of_one_device: PyOnceLock::new(),
    said: AtomicU64::new(0),
};

/// jaxlib's entry below `__dlpack__` takes a fifteenth of the time (JAX 0.10.2: 0.4 µs and 5.9 µs). The bridge uses the
/// entry only for arrays with a `SingleDeviceSharding`: of an array on several devices, the entry exports one part.
impl Capsules for Jax {
    fn quickly<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !matches!(JAX.entry.get(x.py()), Some(Some(_))) {
            return Ok(None);
        }
        match quick(x, stream) {
            Err(interrupt) if is_interrupt(x.py(), &interrupt) => Err(interrupt),
            quick => Ok(quick.ok().flatten().map(|(_, capsule)| capsule)),
        }
    }

    fn compared<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
        public: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if JAX.entry.get(x.py()).is_some() {
            return public();
        }
        let quick = match quick(x, stream) {
            Err(interrupt) if is_interrupt(x.py(), &interrupt) => return Err(interrupt),
            quick => quick,
        };
        let capsule = public()?;
        if matches!(&quick, Err(_) | Ok(Some(_))) {
            choose(&capsule, quick.ok().flatten());
        }
        Ok(capsule)
    }
}

/// Calls jaxlib's entry, and returns the entry and its capsule. `None` if the array's sharding is not a
/// `SingleDeviceSharding`: the array can be on several devices.
fn quick<'py>(
    x: &Bound<'py, PyAny>,
    stream: u64,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = x.py();
    // Read `_sharding`: `sharding` is a property in Python, and takes twice as long.
    let sharding = x.getattr(intern!(py, "_sharding"))?;
    if JAX.entry.get(py).is_none() && !x.getattr(intern!(py, "sharding"))?.is(&sharding) {
        return Err(PyTypeError::new_err("_sharding: another than sharding"));
    }
    if !is_of_one_device(&sharding.get_type())? {
        return Ok(None);
    }
    let entry = match JAX.entry.get(py) {
        Some(Some(entry)) => entry.bind(py).clone(),
        _ => py
            .import(intern!(py, "jaxlib._jax"))?
            .getattr(intern!(py, "buffer_to_dlpack_managed_tensor"))?,
    };
    let capsule = entry.call1((x, stream))?;
    Ok(Some((entry, capsule)))
}

fn is_of_one_device(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    if let Some(known) = JAX.of_one_device.get(kind.py()) {
        return Ok(kind.is(known));
    }
    let found = kind.qualname()? == "SingleDeviceSharding" && kind.module()? == "jax.sharding";
    if found {
        JAX.of_one_device.get_or_init(kind.py(), || kind.clone().unbind());
    }
    Ok(found)
}

/// Decides whether the bridge uses jaxlib's entry from now on. Decides nothing if the array is empty, or if the bridge
/// cannot read the public capsule.
#[cold]
fn choose<'py>(public: &Bound<'py, PyAny>, quick: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>) {
    let read = |capsule: &Bound<'py, PyAny>| {
        let held = capsule::read(capsule.cast::<PyCapsule>().ok()?).ok()?;
        Some((held.form, held.array))
    };
    let Some(expected) = read(public) else { return };
    if expected.1.ptr() == 0 {
        return;
    }
    let same = quick.filter(|(_, capsule)| read(capsule).as_ref() == Some(&expected));
    let _ = JAX.entry.set(public.py(), same.map(|(entry, _)| entry.unbind()));
}

#[repr(C)]
struct ApiVersion {
    size: usize,
    extension: *mut c_void,
    major: c_int,
    minor: c_int,
}

/// The functions of XLA's interface, up to the last one that the bridge uses.
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

/// A call frame, up to the last field that the bridge reads.
#[repr(C)]
struct CallFrame {
    size: usize,
    extension: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
}

/// XLA first calls a handler with an extension of the kind `METADATA`. The handler then fills in `metadata`.
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

/// The handler that XLA calls. At the execute stage, stores the handle of XLA's stream, if XLA returns that stream.
unsafe extern "C" fn note(frame: *mut CallFrame) -> *mut c_void {
    // SAFETY: XLA passes a call frame, which begins with these fields, and all that they point to lives during the call
    // ("FFI handler"). `extension` is NULL, or begins with its kind, and an extension of the kind `METADATA` has the
    // fields of `Extension`. `api` is NULL, or begins with its size and version. No reference is made to a whole
    // structure, since XLA's may be smaller than the one here: each field is read after what says that it is there.
    unsafe {
        let (extension, api) = ((*frame).extension, (*frame).api);
        if !extension.is_null() && (*extension).kind == METADATA {
            // Report the caller's own version: every version so far has the fields that are read here.
            let metadata = (*extension).metadata;
            let (major, minor) =
                if api.is_null() { (0, 1) } else { ((*api).version.major, (*api).version.minor) };
            ((*metadata).version.major, (*metadata).version.minor) = (major, minor);
            (*metadata).traits = 0;
        } else if (*frame).stage == EXECUTE
            && !api.is_null()
            && (*api).size >= size_of::<Api>()
            && (*api).version.major == 0
            && let (Some(get_stream), Some(destroy_error)) =
                ((*api).get_stream, (*api).destroy_error)
        {
            let (extension, stream) = (ptr::null_mut(), ptr::null_mut());
            let (size, context) = (size_of::<GetStream>(), (*frame).context);
            let mut asked = GetStream { size, extension, context, stream };
            let error = get_stream(&raw mut asked);
            if error.is_null() {
                JAX.said.store(asked.stream.addr() as u64, Ordering::Release);
            } else {
                let mut failed = DestroyError { size: size_of::<DestroyError>(), extension, error };
                destroy_error(&raw mut failed);
            }
        }
    }
    ptr::null_mut()
}

/// A capsule of the function that XLA calls, [`note`], as `jax.ffi.register_ffi_target` takes it.
#[pyfunction]
pub(crate) fn _xla_handler(py: Python<'_>) -> Answer<'_> {
    entry(py, || {
        // SAFETY: a function's address is not null, and stays valid; the capsule frees nothing.
        unsafe {
            let function = ptr::NonNull::new_unchecked(note as *mut c_void);
            PyCapsule::new_with_pointer(py, function, c"xla")
        }
    })
}

/// Returns the driver handle of the stream that [`note`] found last, and forgets it; 0 if [`note`] has found none since
/// the last reading.
#[pyfunction]
pub(crate) fn _xla_said() -> u64 {
    JAX.said.swap(0, Ordering::AcqRel)
}
