//! Whether the program has imported a library that is known to ignore the streams that dicts name.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::py::habits::Habit;
use crate::py::imported::imported;
use crate::py::library;

pub(crate) fn ignores_dicts(py: Python<'_>) -> PyResult<bool> {
    static NAMES: PyOnceLock<Vec<Py<PyString>>> = PyOnceLock::new();
    let names = NAMES.get_or_init(py, || {
        let known = library::rows().filter(|known| known.habit == Habit::IgnoresDicts);
        known.map(|known| PyString::intern(py, known.library).unbind()).collect()
    });
    for name in names {
        if imported(py, name.bind(py))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
