//! Libraries that say by a function of Python's which stream they work on: Warp, and those that were registered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::imported::library;
use crate::py::interpreter::{Answer, act, answered};

/// A library, and what is asked of it.
struct Asked {
    /// The module without which it is not asked.
    module: Option<Py<PyString>>,
    /// Takes a GPU's ordinal, and returns a stream as `stream=` takes it, or None.
    function: Py<PyAny>,
    /// Whether it ignores the streams of dicts.
    ignores: bool,
}

static ASKED: Mutex<Vec<Asked>> = Mutex::new(Vec::new());

fn asked() -> MutexGuard<'static, Vec<Asked>> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the libraries: a tuple each of the module without which it is not asked, or None, the function, and
/// whether the library ignores the streams of dicts.
#[pyfunction]
pub(crate) fn _ask_for_streams(
    py: Python<'_>,
    libraries: Vec<(Option<Py<PyString>>, Py<PyAny>, bool)>,
) -> Answer<'_> {
    act(py, || {
        let of = |(module, function, ignores)| Asked { module, function, ignores };
        let libraries = libraries.into_iter().map(of).collect();
        let before = std::mem::replace(&mut *asked(), libraries);
        // After the mutex: to drop a function may run anything.
        drop(before);
        Ok(())
    })
}

/// What those answer that have a current stream on a GPU, and whether they ignore the streams of dicts.
pub(super) fn answers(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let libraries: Vec<_> = asked().iter().map(|one| one.clone_ref(py)).collect();
    let mut answers = Vec::new();
    for Asked { module, function, ignores } in libraries {
        if let Some(module) = module
            && library(py, module.bind(py))?.is_none()
        {
            continue;
        }
        let answer = answered(py, function.bind(py).call1((ordinal,)))?;
        answers.extend(answer.filter(|answer| !answer.is_none()).map(|answer| (answer, ignores)));
    }
    Ok(answers)
}

impl Asked {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        let module = self.module.as_ref().map(|module| module.clone_ref(py));
        Self { module, function: self.function.clone_ref(py), ignores: self.ignores }
    }
}
