//! Libraries that name their current stream through a Python function.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use super::object::handle_of;
use super::voucher::is_unasked;
use crate::py::imported::imported;
use crate::py::interpreter::{FirstInterrupt, answered};
use crate::py::library;
use crate::py::this_thread::Once;

pub(super) struct LibraryStream<'py> {
    pub(super) native: u64,
    pub(super) object: Option<Bound<'py, PyAny>>,
    /// Whether the library ignores the stream that a CAI dict names.
    pub(super) ignores: bool,
}

/// The current streams that libraries' Python functions name. Empty inside such a function, which may use the bridge.
#[inline]
pub(super) fn library_streams<'py>(
    py: Python<'py>,
    ordinal: i32,
    interrupt: &mut FirstInterrupt,
) -> Vec<LibraryStream<'py>> {
    let has = interrupt.pass(has_functions(py)).unwrap_or(false);
    if has { ask_functions(py, ordinal, interrupt) } else { Vec::new() }
}

/// Whether any imported or registered library may name its current stream through a Python function.
#[inline]
pub(super) fn has_functions(py: Python<'_>) -> PyResult<bool> {
    if library::are_registered() {
        return Ok(true);
    }
    for module in library::functions().iter().filter_map(|(module, _)| module.as_ref()) {
        if imported(py, module.bind(py))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cold]
fn ask_functions<'py>(
    py: Python<'py>,
    ordinal: i32,
    interrupt: &mut FirstInterrupt,
) -> Vec<LibraryStream<'py>> {
    if is_unasked() {
        return Vec::new();
    }
    let Some(_once) = Once::AskingFunctions.begin() else { return Vec::new() };
    let mut all = Vec::new();
    for (module, functions) in library::functions() {
        let is_there = match module {
            Some(module) => imported(py, module.bind(py)).map(|module| module.is_some()),
            None => Ok(library::are_registered()),
        };
        if !interrupt.pass(is_there).unwrap_or(false) {
            continue;
        }
        let ignores = functions.ignore_dicts();
        let found = interrupt.pass(answered(py, functions.all(py))).flatten().unwrap_or_default();
        all.extend(found.into_iter().map(|function| (function, ignores)));
    }
    let mut answers = Vec::new();
    for (function, ignores) in all {
        let answer = answered(py, function.bind(py).call1((ordinal,)));
        if let Some(answer) = interrupt.pass(answer).flatten().filter(|answer| !answer.is_none())
            && let Some((native, is_object)) = interrupt.pass(named_by(&answer)).flatten()
        {
            answers.push(LibraryStream { native, object: is_object.then_some(answer), ignores });
        }
    }
    answers
}

/// The handle that a function's answer names, and whether the answer is a stream object.
fn named_by(answer: &Bound<'_, PyAny>) -> PyResult<Option<(u64, bool)>> {
    let py = answer.py();
    if !answer.is_instance_of::<PyInt>()
        && let Some(native) = answered(py, handle_of(answer))?
    {
        return Ok(Some((native, true)));
    }
    let number = answered(py, answer.extract::<u64>())?;
    let is_stream = |number: &u64| *number != 0 && !answer.is_instance_of::<PyBool>();
    Ok(number.filter(is_stream).map(|number| (number, false)))
}
