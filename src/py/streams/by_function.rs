//! Libraries that say by a function of Python's which stream they work on: Warp, and those that were registered.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use super::object::handle_of;
use super::voucher::is_unasked;
use crate::local::local;
use crate::py::imported::imported;
use crate::py::interpreter::{Answer, act, answered};

/// The functions. Each takes a GPU's ordinal, and returns a stream as `stream=` takes it, or None.
struct Functions {
    /// Asked where Warp is imported.
    warp: Option<Py<PyAny>>,
    registered: Vec<Py<PyAny>>,
}

/// Whether there are registered ones, which is asked each time.
static HAS_REGISTERED: AtomicBool = AtomicBool::new(false);
static FUNCTIONS: Mutex<Functions> = Mutex::new(Functions { warp: None, registered: Vec::new() });

fn functions() -> MutexGuard<'static, Functions> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the functions.
#[pyfunction]
pub(crate) fn _ask_for_streams(
    py: Python<'_>,
    warp: Py<PyAny>,
    registered: Vec<Py<PyAny>>,
) -> Answer<'_> {
    act(py, || {
        let before = {
            let mut functions = functions();
            HAS_REGISTERED.store(!registered.is_empty(), Ordering::Release);
            mem::replace(&mut *functions, Functions { warp: Some(warp), registered })
        };
        // After the mutex: to drop a function may run anything.
        drop(before);
        Ok(())
    })
}

/// What a library answered.
pub(super) struct Answered<'py> {
    /// The stream, as the driver names it.
    pub(super) native: u64,
    /// Its object, if the library answered with one.
    pub(super) object: Option<Bound<'py, PyAny>>,
    /// Whether the library ignores the streams of dicts.
    pub(super) ignores: bool,
}

local! {
    /// Whether a function is asked just now on this thread: it may itself read or end an array.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// What those answer that have a current stream on a GPU. Asked by one of them, none answers.
#[inline]
pub(super) fn answers(py: Python<'_>, ordinal: i32) -> PyResult<Vec<Answered<'_>>> {
    if has_functions(py)? { asked(py, ordinal) } else { Ok(Vec::new()) }
}

/// Whether there is a function to ask.
#[inline]
pub(super) fn has_functions(py: Python<'_>) -> PyResult<bool> {
    Ok(HAS_REGISTERED.load(Ordering::Acquire) || has_warp(py)?)
}

fn has_warp(py: Python<'_>) -> PyResult<bool> {
    Ok(imported(py, intern!(py, "warp"))?.is_some())
}

#[cold]
fn asked(py: Python<'_>, ordinal: i32) -> PyResult<Vec<Answered<'_>>> {
    let has_warp = has_warp(py)?;
    let asked: Vec<_> = {
        let functions = functions();
        let warp = functions.warp.iter().filter(|_| has_warp).map(|function| (function, true));
        let all = warp.chain(functions.registered.iter().map(|function| (function, false)));
        all.map(|(function, ignores)| (function.clone_ref(py), ignores)).collect()
    };
    if ASKING.get() != Some(false) || is_unasked() {
        return Ok(Vec::new());
    }
    ASKING.during(true, || {
        let mut answers = Vec::new();
        for (function, ignores) in asked {
            let answer = answered(py, function.bind(py).call1((ordinal,)))?;
            if let Some(answer) = answer.filter(|answer| !answer.is_none())
                && let Some((native, is_object)) = named_by(&answer)?
            {
                answers.push(Answered { native, object: is_object.then_some(answer), ignores });
            }
        }
        Ok(answers)
    })
}

/// The stream that an answer names, and whether as a stream object. Of the integers 0 names none, and 1 and 2 are the
/// driver's own names of its default streams.
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
