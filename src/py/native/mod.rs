//! Short cuts through Python's C API: dicts are read by it, and what PyO3 has no safe call for is asked.
//!
//! A dict is read at every import. Most dicts have the specification's keys, interned, and values of
//! its plain types; those are read here without a reference taken or a Python call made. Through
//! PyO3's safe calls the same is about 1,600 instructions of an import's 4,000 (callgrind, CPython
//! 3.11, 2026-11), here 700. Nothing is decided here: whatever is not plain takes the long way.
#![allow(unsafe_code)]

mod question;

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyString};

pub(super) use question::Question;

use crate::cai::Fields;
use crate::layout::{Dims, MAX_NDIM};

/// The number of the interpreter that runs this; the main one's is 0.
pub(super) fn interpreter(_py: Python<'_>) -> i64 {
    // SAFETY: `_py` shows that this thread is attached to an interpreter, which is what both ask for.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) }
}

/// Whether the garbage collector has called the object's `__del__`: it does so before it lets go of
/// whatever holds the object, which is garbage, too.
pub(super) fn is_finalized(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is alive, and `Bound` shows that this thread is attached.
    unsafe { ffi::PyObject_GC_IsFinalized(object.as_ptr()) != 0 }
}

/// How many references to the object there are, the caller's included. More of an object that never dies.
pub(super) fn references(object: &Bound<'_, PyAny>) -> usize {
    // SAFETY: `object` is alive, and `Bound` shows that this thread is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }.cast_unsigned()
}

/// Whether nothing but the caller holds the object.
pub(super) fn is_held_by_nobody_else(object: &Bound<'_, PyAny>) -> bool {
    references(object) == 1
}

/// Calls a method of `object` without arguments, and makes no object of the method for that.
pub(super) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both are alive, and the list of arguments, which is empty, ends with NULL.
    unsafe {
        let end = ptr::null_mut::<ffi::PyObject>();
        let answer = ffi::PyObject_CallMethodObjArgs(object.as_ptr(), name.as_ptr(), end);
        Bound::from_owned_ptr_or_err(object.py(), answer)
    }
}

/// The first characters of `text`, `most` at most.
pub(super) fn beginning<'py>(
    text: &Bound<'py, PyString>,
    most: usize,
) -> PyResult<Bound<'py, PyString>> {
    let end = ffi::Py_ssize_t::try_from(most).unwrap_or(ffi::Py_ssize_t::MAX);
    // SAFETY: `text` is a str, whose end the call does not pass; it runs no Python code, and makes a str.
    unsafe {
        let beginning = ffi::PyUnicode_Substring(text.as_ptr(), 0, end);
        Ok(Bound::from_owned_ptr_or_err(text.py(), beginning)?.cast_into_unchecked())
    }
}

/// The names of the entries, in the order that [`plain`] takes them in.
pub(super) type Names<'a, 'py> = [&'a Bound<'py, PyString>; 8];

/// Calls `read` with the entries of `dict`, where all of them are plain; otherwise it does nothing.
///
/// `names` are `shape`, `typestr`, `data`, `version`, `strides`, `stream`, `mask` and `descr`. `read`
/// must not run Python code: what it is given is the dict's own.
pub(super) fn plain<R>(
    dict: &Bound<'_, PyDict>,
    names: Names<'_, '_>,
    read: impl FnOnce(&Fields<'_>) -> R,
) -> Option<R> {
    // Builds without a global lock need the dict's own: `PyDict_Next` takes none.
    with_critical_section(dict, || {
        let mut found = [ptr::null_mut::<ffi::PyObject>(); 8];
        let mut position: ffi::Py_ssize_t = 0;
        let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `dict` is a dict and alive, its lock is held, and nothing in the loop runs Python
        // code, so it is not changed while it is walked; the pointers outlive the call.
        while unsafe {
            ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value)
        } != 0
        {
            let at = names.iter().position(|name| name.as_ptr() == key)?;
            found[at] = value;
        }
        // SAFETY: each is NULL or held by the dict, which cannot change meanwhile.
        let fields = unsafe { fields(found) }?;
        Some(read(&fields))
    })
}

/// The entries, if all are there and plain.
///
/// # Safety
///
/// Each of `found` is NULL or an object that lives as long as the result.
unsafe fn fields<'a>(found: [*mut ffi::PyObject; 8]) -> Option<Fields<'a>> {
    let [shape, typestr, data, version, strides, stream, mask, descr] = found;
    if shape.is_null() || typestr.is_null() || data.is_null() || version.is_null() {
        return None;
    }
    // SAFETY: `None` lives as long as the interpreter.
    let none = unsafe { ffi::Py_None() };
    let absent = |value: *mut ffi::PyObject| value.is_null() || value == none;
    if !absent(mask) {
        return None;
    }
    // SAFETY: not NULL, and alive by the caller's word; so for all calls below.
    let (typestr, shape) = unsafe { (text(typestr)?, dims(shape)?) };
    // SAFETY: as above.
    if !absent(descr) && unsafe { unnamed(descr) }? != typestr {
        return None;
    }
    // SAFETY: as above.
    let (data, version) = unsafe { (pair(data)?, int(version)?) };
    // SAFETY: as above.
    let strides = if absent(strides) { None } else { Some(unsafe { dims(strides) }?) };
    // SAFETY: as above.
    let stream = if absent(stream) { None } else { Some(i128::from(unsafe { int(stream) }?)) };
    Some(Fields { shape, typestr, data, strides, version, stream, structured: false })
}

/// More characters than any typestr has. A longer text is cut on the long way: it may be as long as its producer
/// has memory for.
const LONGEST: ffi::Py_ssize_t = 64;

/// The characters of an exact `str` of a typestr's length.
///
/// # Safety
///
/// `value` is an object that lives as long as the result.
unsafe fn text<'a>(value: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: `value` is an object; the length is asked of an exact str only.
    if unsafe { ffi::PyUnicode_CheckExact(value) == 0 || ffi::PyUnicode_GetLength(value) > LONGEST }
    {
        return None;
    }
    let mut length: ffi::Py_ssize_t = 0;
    // SAFETY: an exact str; its UTF-8 form is kept with it, and `length` outlives the call.
    let bytes = unsafe { ffi::PyUnicode_AsUTF8AndSize(value, &raw mut length) };
    if bytes.is_null() {
        // Lone surrogates: the long way says so.
        // SAFETY: the exception is the call's own.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    let length = usize::try_from(length).ok()?;
    // SAFETY: `length` bytes that live as long as the str.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    // SAFETY: CPython's own encoder made them: they are UTF-8 (PyUnicode_AsUTF8AndSize's contract).
    Some(unsafe { std::str::from_utf8_unchecked(bytes) })
}

/// The type of an exact `list` of one exact `tuple`: no name, and that.
///
/// # Safety
///
/// `value` is an object that lives as long as the result, and so does what it holds.
unsafe fn unnamed<'a>(value: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: `value` is an object; the size is asked of an exact list only.
    if unsafe { ffi::PyList_CheckExact(value) == 0 || ffi::PyList_Size(value) != 1 } {
        return None;
    }
    // SAFETY: a list of one, whose item it holds.
    let field = unsafe { ffi::PyList_GetItem(value, 0) };
    // SAFETY: as above, of a tuple.
    if unsafe { ffi::PyTuple_CheckExact(field) == 0 || ffi::PyTuple_Size(field) != 2 } {
        return None;
    }
    // SAFETY: a tuple of two.
    let name = unsafe { text(ffi::PyTuple_GetItem(field, 0)) }?;
    // SAFETY: as above.
    if name.is_empty() { unsafe { text(ffi::PyTuple_GetItem(field, 1)) } } else { None }
}

/// The items of an exact `tuple` of exact ints, no more than an array has dimensions.
///
/// # Safety
///
/// `value` is an object that lives during the call.
unsafe fn dims(value: *mut ffi::PyObject) -> Option<Dims> {
    // SAFETY: `value` is an object.
    if unsafe { ffi::PyTuple_CheckExact(value) } == 0 {
        return None;
    }
    // SAFETY: an exact tuple.
    let length = unsafe { ffi::PyTuple_Size(value) };
    if usize::try_from(length).is_ok_and(|length| length > MAX_NDIM) {
        return None;
    }
    let mut dims = Dims::new();
    for at in 0..length {
        // SAFETY: inside the tuple, so an object that it holds.
        dims.push(unsafe { int(ffi::PyTuple_GetItem(value, at)) }?);
    }
    Some(dims)
}

/// A pointer and a flag.
///
/// # Safety
///
/// `value` is an object that lives during the call.
unsafe fn pair(value: *mut ffi::PyObject) -> Option<(u64, bool)> {
    // SAFETY: `value` is an object; the size is asked of an exact tuple only.
    if unsafe { ffi::PyTuple_CheckExact(value) == 0 || ffi::PyTuple_Size(value) != 2 } {
        return None;
    }
    // SAFETY: a tuple of two.
    let pointer = u64::try_from(unsafe { int(ffi::PyTuple_GetItem(value, 0)) }?).ok()?;
    // SAFETY: as above.
    let flag = unsafe { ffi::PyTuple_GetItem(value, 1) };
    // SAFETY: `True` and `False` live as long as the interpreter.
    if flag == unsafe { ffi::Py_False() } {
        return Some((pointer, false));
    }
    // SAFETY: as above.
    (flag == unsafe { ffi::Py_True() }).then_some((pointer, true))
}

/// An exact `int` that fits.
///
/// # Safety
///
/// `value` is an object that lives during the call.
unsafe fn int(value: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: `value` is an object.
    if unsafe { ffi::PyLong_CheckExact(value) } == 0 {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: an exact int, so no Python code runs and no exception is set; `overflow` outlives the call.
    let number = unsafe { ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow) };
    (overflow == 0).then_some(number)
}

/// The value of an exact `int` that fits; `None` for anything else.
pub(super) fn small(value: &Bound<'_, PyAny>) -> Option<i64> {
    // SAFETY: a bound object is alive.
    unsafe { int(value.as_ptr()) }
}

/// The items of an exact `tuple` of exact ints that fit; `None` for anything else.
pub(super) fn tuple(value: &Bound<'_, PyAny>) -> Option<Dims> {
    // SAFETY: a bound object is alive.
    unsafe { dims(value.as_ptr()) }
}
