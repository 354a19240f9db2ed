//! Libraries that the program has imported. The bridge imports none of them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::py::habits::{HABITS, Habit};
use crate::py::interpreter::answered;

/// Whether a library is imported that works on a default stream and ignores the streams of dicts.
pub(crate) fn ignores_dicts(py: Python<'_>) -> PyResult<bool> {
    static NAMES: PyOnceLock<Vec<Py<PyString>>> = PyOnceLock::new();
    let names = NAMES.get_or_init(py, || {
        let known = HABITS.iter().filter(|known| known.habit == Habit::IgnoresDicts);
        known.map(|known| PyString::intern(py, known.library).unbind()).collect()
    });
    for name in names {
        if library(py, name.bind(py))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A library that is imported. One that is half imported has no such attributes.
pub(super) fn library<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || -> PyResult<_> {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok(modules.cast_into::<PyDict>()?.unbind())
    });
    let found = modules.and_then(|modules| modules.bind(py).get_item(name));
    // None in its place blocks an import.
    Ok(answered(py, found)?.flatten().filter(|module| !module.is_none()))
}
