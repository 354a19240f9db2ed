//! Two short cuts through Python's C API, for the reading of dicts: a door like the other three.
//!
//! A dict is read at every import. Through PyO3's safe calls seven look-ups and five integers are
//! about 1,600 instructions of an import's 4,000 (callgrind, CPython 3.11, 2026-11); here they are
//! 600. Nothing is decided here: what is not found, or is no plain small integer, takes the long way.
#![allow(unsafe_code)]

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyInt, PyString};

/// The values in `dict` of the keys `names`, found by the identity of the keys, which are interned
/// wherever they are literals. The flag says whether every key of the dict was one of `names`: where
/// it is false, what is missing has to be looked up.
pub(super) fn entries<'py, const N: usize>(
    dict: &Bound<'py, PyDict>,
    names: [&Bound<'py, PyString>; N],
) -> ([Option<Bound<'py, PyAny>>; N], bool) {
    let py = dict.py();
    let mut found = [ptr::null_mut::<ffi::PyObject>(); N];
    let mut all_known = true;
    // Builds without a global lock need the dict's own: `PyDict_Next` takes none.
    with_critical_section(dict, || {
        let mut position: ffi::Py_ssize_t = 0;
        let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `dict` is a dict and alive, its lock is held, and nothing in the loop runs Python
        // code, so it is not changed while it is walked; the pointers outlive the call.
        while unsafe {
            ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value)
        } != 0
        {
            match names.iter().position(|name| name.as_ptr() == key) {
                Some(at) => found[at] = value,
                None => all_known = false,
            }
        }
        let owned = found.map(|value| {
            // SAFETY: NULL or an object that the dict, still locked, holds; the reference is our own.
            unsafe { Bound::from_borrowed_ptr_or_opt(py, value) }
        });
        (owned, all_known)
    })
}

/// The value of an exact `int` that fits; `None` for anything else.
pub(super) fn small(value: &Bound<'_, PyAny>) -> Option<i64> {
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: an exact int, so no Python code runs and no exception is set; `overflow` outlives the call.
    let number = unsafe { ffi::PyLong_AsLongLongAndOverflow(value.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(number)
}
