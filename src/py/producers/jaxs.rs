//! jaxlib's own entry below the `__dlpack__` of JAX's arrays, which is written in Python and takes fifteen times as
//! long (JAX 0.10.2: 5.9 µs and 0.4).
//!
//! It asks less: of an array on several devices it gives the part on one of them. So it is for arrays that JAX has on
//! one device; the others, and those that it refuses, go the public way, which says what is wrong. At first use
//! both are asked, and the entry is never asked again if the capsules differ. Its capsules refer to the array itself,
//! and those of `__dlpack__` to another object over its buffer: JAX drops either, given back, at its next call.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use crate::dlpack::capsule;
use crate::py::interpreter::is_interrupt;

/// The entry, where its capsules were those of `__dlpack__`.
static ENTRY: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();

/// Whether `kind` is the type of JAX's arrays.
pub(super) fn is_type(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.qualname()? == "ArrayImpl" && kind.module()? == "jaxlib._jax")
}

/// The capsule of `x`, an array of JAX's, for a stream, by the entry; none where that is not chosen, or does not have it.
pub(super) fn by_entry<'py>(
    x: &Bound<'py, PyAny>,
    stream: u64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !matches!(ENTRY.get(x.py()), Some(Some(_))) {
        return Ok(None);
    }
    match quick(x, stream) {
        Err(interrupt) if is_interrupt(x.py(), &interrupt) => Err(interrupt),
        quick => Ok(quick.ok().flatten().map(|(_, capsule)| capsule)),
    }
}

/// The capsule by `public`, which asks the array's `__dlpack__`; the first time beside the entry, to choose.
pub(super) fn choosing<'py>(
    x: &Bound<'py, PyAny>,
    stream: u64,
    public: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if ENTRY.get(x.py()).is_some() {
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

/// The entry and what it answers, where the array is on one device.
fn quick<'py>(
    x: &Bound<'py, PyAny>,
    stream: u64,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = x.py();
    // What `sharding`, a property in Python, answers with: twice as quick.
    let sharding = x.getattr(intern!(py, "_sharding"))?;
    if ENTRY.get(py).is_none() && !x.getattr(intern!(py, "sharding"))?.is(&sharding) {
        return Err(PyTypeError::new_err("_sharding: another than sharding"));
    }
    if !is_of_one_device(&sharding.get_type())? {
        return Ok(None);
    }
    let entry = match ENTRY.get(py) {
        Some(Some(entry)) => entry.bind(py).clone(),
        _ => py
            .import(intern!(py, "jaxlib._jax"))?
            .getattr(intern!(py, "buffer_to_dlpack_managed_tensor"))?,
    };
    let capsule = entry.call1((x, stream))?;
    Ok(Some((entry, capsule)))
}

/// Whether it is the type of a sharding over one device.
fn is_of_one_device(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if let Some(known) = TYPE.get(kind.py()) {
        return Ok(kind.is(known));
    }
    let found = kind.qualname()? == "SingleDeviceSharding" && kind.module()? == "jax.sharding";
    if found {
        TYPE.get_or_init(kind.py(), || kind.clone().unbind());
    }
    Ok(found)
}

/// Has the entry be asked from now on, or never, by what it answered beside `public`. Two arrays of nothing have
/// little to be compared by.
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
    let _ = ENTRY.set(public.py(), same.map(|(entry, _)| entry.unbind()));
}
