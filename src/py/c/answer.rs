//! How the functions of the C interface report success and failure.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::exceptions::PyValueError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use super::abi::CaiBridgeArray;
use crate::error::caught;
use crate::py::interpreter::attached;

/// Runs `call`, and returns 0 if `call` succeeds. If `call` fails or panics, sets a Python exception and returns -1. If
/// this thread may not take the interpreter's lock, returns -1 without `call` and without an exception.
pub(super) fn answer(call: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    let done = attached(|py| {
        match caught(|| call(py))
            .unwrap_or_else(|_| Err(PanicException::new_err("a panic in cai_bridge")))
        {
            Ok(()) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    });
    done.unwrap_or(-1)
}

pub(super) fn check<T>(pointer: *const T, what: &str, allowed: &str) -> PyResult<()> {
    if pointer.is_null() {
        return Err(PyValueError::new_err(format!("{what}: got NULL; allowed: {allowed}")));
    }
    Ok(())
}

pub(super) fn check_array(array: *const CaiBridgeArray) -> PyResult<()> {
    check(array, "array", "an array that was imported")
}

pub(super) fn check_out<T>(out: *mut T) -> PyResult<()> {
    check(out.cast_const(), "out", "the address of a place for the answer")
}

/// Like [`answer`], for a call that returns a pointer through `out`. `*out` is NULL unless the call succeeds.
///
/// # Safety
///
/// `out` is NULL, or points to writable memory for a pointer.
pub(super) unsafe fn answer_at<T>(
    out: *mut *mut T,
    call: impl FnOnce(Python<'_>) -> PyResult<*mut T>,
) -> c_int {
    if !out.is_null() {
        // SAFETY: `out` is not NULL, so it points to writable memory, as the caller promises.
        unsafe { out.write(std::ptr::null_mut()) };
    }
    answer(|py| {
        check_out(out)?;
        let made = call(py)?;
        // SAFETY: `check_out` has refused NULL, so `out` points to writable memory, as the caller promises.
        unsafe { out.write(made) };
        Ok(())
    })
}

pub(super) fn check_size(size: usize, least: usize, name: &str) -> PyResult<()> {
    if size < least {
        let text = format!("size: got {size}; allowed: sizeof({name}), {least} or more");
        return Err(PyValueError::new_err(text));
    }
    Ok(())
}
