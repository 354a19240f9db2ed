//! Direct calls to Python's C API, to read CAI dicts fast, and for what PyO3 has no safe call. [`plain`] reads a dict
//! in 700 instructions; PyO3's safe calls take 1,600 (callgrind, CPython 3.11, 2026-11).
#![allow(unsafe_code)]

mod question;

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyString};

pub(super) use question::ObjectQuestion;

use crate::cai::Fields;
use crate::layout::{Dims, MAX_NDIM};

/// The ID of the interpreter that runs this code; 0 for the main one.
pub(super) fn interpreter(_py: Python<'_>) -> i64 {
    // SAFETY: `_py` shows that this thread is attached to an interpreter, as both calls require.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) }
}

/// Whether the object's finalizer (`__del__`) has run, or the garbage collector is running it. Always false for a type
/// without garbage collection, and inside a `__del__` that the last reference's drop runs.
pub(super) fn is_finalized(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is alive, and `Bound` shows that this thread is attached.
    unsafe { ffi::PyObject_GC_IsFinalized(object.as_ptr()) != 0 }
}

/// The object's reference count, which says nothing about an immortal object.
pub(super) fn references(object: &Bound<'_, PyAny>) -> usize {
    // SAFETY: `object` is alive, and `Bound` shows that this thread is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }.cast_unsigned()
}

pub(super) fn is_held_by_nobody_else(object: &Bound<'_, PyAny>) -> bool {
    references(object) == 1
}

/// Unlike `getattr` and `call`, makes no bound-method object for an ordinary method.
pub(super) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both objects are alive, and the argument list is empty and ends with NULL.
    unsafe {
        let end = ptr::null_mut::<ffi::PyObject>();
        let answer = ffi::PyObject_CallMethodObjArgs(object.as_ptr(), name.as_ptr(), end);
        Bound::from_owned_ptr_or_err(object.py(), answer)
    }
}

pub(super) fn beginning<'py>(
    text: &Bound<'py, PyString>,
    most: usize,
) -> PyResult<Bound<'py, PyString>> {
    let end = ffi::Py_ssize_t::try_from(most).unwrap_or(ffi::Py_ssize_t::MAX);
    // SAFETY: `text` is a str. The call clamps `end` to its length, runs no Python code, and returns a str.
    unsafe {
        let beginning = ffi::PyUnicode_Substring(text.as_ptr(), 0, end);
        Ok(Bound::from_owned_ptr_or_err(text.py(), beginning)?.cast_into_unchecked())
    }
}

/// The keys of a CAI dict, in the order that [`plain`] expects.
pub(super) type CaiKeys<'a, 'py> = [&'a Bound<'py, PyString>; 8];

/// Calls `read` with the entries of `dict`; `None` if the slower `cai_dict` must read the dict. `read` must not run
/// Python code: the entries are borrowed from the dict.
pub(super) fn plain<R>(
    dict: &Bound<'_, PyDict>,
    names: CaiKeys<'_, '_>,
    read: impl FnOnce(&Fields<'_>) -> R,
) -> Option<R> {
    // Without a GIL, the dict's own lock is needed: `PyDict_Next` takes none.
    with_critical_section(dict, || {
        let mut found = [ptr::null_mut::<ffi::PyObject>(); 8];
        let mut position: ffi::Py_ssize_t = 0;
        let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `dict` is a live dict, and its lock is held. No Python code runs in the loop, so the dict does not
        // change. The pointers outlive the call.
        while unsafe {
            ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value)
        } != 0
        {
            let at = names.iter().position(|name| name.as_ptr() == key)?;
            found[at] = value;
        }
        // SAFETY: each pointer is NULL or held by the dict, which cannot change meanwhile.
        let fields = unsafe { fields(found) }?;
        Some(read(&fields))
    })
}

/// `None` if the slower `cai_dict` must read the dict. `found` has the entries in the order of [`CaiKeys`].
/// # Safety
/// Each pointer in `found` must be NULL or point to an object that lives as long as the result.
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
    // SAFETY: both were checked for NULL above, and the caller promises that they are alive.
    let (typestr, shape) = unsafe { (text(typestr)?, dims(shape)?) };
    // SAFETY: `descr` is present, so the caller promises that it is alive.
    if !absent(descr) && unsafe { unnamed(descr) }? != typestr {
        return None;
    }
    // SAFETY: both were checked for NULL above, and the caller promises that they are alive.
    let (data, version) = unsafe { (pair(data)?, int(version)?) };
    // SAFETY: `strides` is read only if it is present; the caller promises that it is alive.
    let strides = if absent(strides) { None } else { Some(unsafe { dims(strides) }?) };
    // SAFETY: `stream` is read only if it is present; the caller promises that it is alive.
    let stream = if absent(stream) { None } else { Some(i128::from(unsafe { int(stream) }?)) };
    Some(Fields { shape, typestr, data, strides, version, stream, structured: false })
}

/// The most characters of a text that [`text`] reads. `cai_dict` reads dicts with longer texts.
const LONGEST: ffi::Py_ssize_t = 64;

/// The characters of an exact `str` of at most [`LONGEST`] characters; `None` for any other object, and if the `str`
/// has no UTF-8 form or memory is short.
/// # Safety
/// `value` must point to an object that lives as long as the result.
unsafe fn text<'a>(value: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: `value` is an object. Its length is read only if it is an exact str.
    if unsafe { ffi::PyUnicode_CheckExact(value) == 0 || ffi::PyUnicode_GetLength(value) > LONGEST }
    {
        return None;
    }
    let mut length: ffi::Py_ssize_t = 0;
    // SAFETY: `value` is an exact str. CPython caches the UTF-8 form in the str. `length` outlives the call.
    let bytes = unsafe { ffi::PyUnicode_AsUTF8AndSize(value, &raw mut length) };
    if bytes.is_null() {
        // The str has lone surrogates, or memory is short. `cai_dict` reads the dict again.
        // SAFETY: this thread is attached. The call clears the exception that the line above set.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    let length = usize::try_from(length).ok()?;
    // SAFETY: `bytes` points to `length` bytes that live as long as the str.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    // SAFETY: CPython's encoder made the bytes, so they are UTF-8 (contract of `PyUnicode_AsUTF8AndSize`).
    Some(unsafe { std::str::from_utf8_unchecked(bytes) })
}

/// The typestr in a `descr` of the form `[("", typestr)]`, if it is an exact list of an exact tuple of exact strs.
/// # Safety
/// `value` is an object. It and its items live as long as the result.
unsafe fn unnamed<'a>(value: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: `value` is an object. Its size is read only if it is an exact list.
    if unsafe { ffi::PyList_CheckExact(value) == 0 || ffi::PyList_Size(value) != 1 } {
        return None;
    }
    // SAFETY: `value` is a list of one item, and holds the item.
    let field = unsafe { ffi::PyList_GetItem(value, 0) };
    // SAFETY: `field` is an object. Its size is read only if it is an exact tuple.
    if unsafe { ffi::PyTuple_CheckExact(field) == 0 || ffi::PyTuple_Size(field) != 2 } {
        return None;
    }
    // SAFETY: `field` is a tuple of two items.
    let name = unsafe { text(ffi::PyTuple_GetItem(field, 0)) }?;
    // SAFETY: `field` is a tuple of two items.
    if name.is_empty() { unsafe { text(ffi::PyTuple_GetItem(field, 1)) } } else { None }
}

/// The items of an exact `tuple` of at most [`MAX_NDIM`] exact ints that all fit an `i64`; `None` for any other object.
/// # Safety
/// `value` is an object that lives during the call.
unsafe fn dims(value: *mut ffi::PyObject) -> Option<Dims> {
    // SAFETY: `value` is an object.
    if unsafe { ffi::PyTuple_CheckExact(value) } == 0 {
        return None;
    }
    // SAFETY: `value` is an exact tuple.
    let length = unsafe { ffi::PyTuple_Size(value) };
    if usize::try_from(length).is_ok_and(|length| length > MAX_NDIM) {
        return None;
    }
    let mut dims = Dims::new();
    for at in 0..length {
        // SAFETY: `at` is within the tuple, which holds the item.
        dims.push(unsafe { int(ffi::PyTuple_GetItem(value, at)) }?);
    }
    Some(dims)
}

/// The pointer and read-only flag in an exact `tuple` of an exact int, from 0 to `i64::MAX`, and a bool.
/// # Safety
/// `value` is an object that lives during the call.
unsafe fn pair(value: *mut ffi::PyObject) -> Option<(u64, bool)> {
    // SAFETY: `value` is an object. Its size is read only if it is an exact tuple.
    if unsafe { ffi::PyTuple_CheckExact(value) == 0 || ffi::PyTuple_Size(value) != 2 } {
        return None;
    }
    // SAFETY: `value` is a tuple of two items.
    let pointer = u64::try_from(unsafe { int(ffi::PyTuple_GetItem(value, 0)) }?).ok()?;
    // SAFETY: `value` is a tuple of two items.
    let flag = unsafe { ffi::PyTuple_GetItem(value, 1) };
    // SAFETY: `False` lives as long as the interpreter.
    if flag == unsafe { ffi::Py_False() } {
        return Some((pointer, false));
    }
    // SAFETY: `True` lives as long as the interpreter.
    (flag == unsafe { ffi::Py_True() }).then_some((pointer, true))
}

/// The value of an exact `int` that fits an `i64`; `None` for any other object.
/// # Safety
/// `value` is an object that lives during the call.
unsafe fn int(value: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: `value` is an object.
    if unsafe { ffi::PyLong_CheckExact(value) } == 0 {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: `value` is an exact int, so no Python code runs and no exception is set. `overflow` outlives the call.
    let number = unsafe { ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow) };
    (overflow == 0).then_some(number)
}

/// The value of an exact `int` that fits an `i64`; `None` for any other object.
pub(super) fn small(value: &Bound<'_, PyAny>) -> Option<i64> {
    // SAFETY: a bound object is alive.
    unsafe { int(value.as_ptr()) }
}

/// The items of an exact `tuple` of at most [`MAX_NDIM`] exact ints that all fit an `i64`; `None` for any other object.
pub(super) fn tuple(value: &Bound<'_, PyAny>) -> Option<Dims> {
    // SAFETY: a bound object is alive.
    unsafe { dims(value.as_ptr()) }
}
