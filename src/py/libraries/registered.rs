//! The Python functions that return the current streams of libraries that programs register.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::py::interpreter::{Answer, act};
use crate::py::library::{Functions, Library, set_registered};

#[derive(Debug)]
pub(super) struct Registered;

static FUNCTIONS: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

fn functions() -> MutexGuard<'static, Vec<Py<PyAny>>> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the functions that give the registered libraries' current streams.
#[pyfunction]
pub(super) fn _ask_for_streams(py: Python<'_>, registered: Vec<Py<PyAny>>) -> Answer<'_> {
    act(py, || {
        let before = {
            let mut functions = functions();
            set_registered(!registered.is_empty());
            mem::replace(&mut *functions, registered)
        };
        // The mutex is released by now: dropping a function can run arbitrary code.
        drop(before);
        Ok(())
    })
}

impl Library for Registered {
    // No module has this name.
    fn name(&self) -> &'static str {
        "<registered>"
    }

    fn functions(&self) -> Option<&dyn Functions> {
        Some(self)
    }
}

impl Functions for Registered {
    fn module(&self) -> Option<&'static str> {
        None
    }

    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        Ok(functions().iter().map(|function| function.clone_ref(py)).collect())
    }
}
