//! Finds modules that the program has imported, without importing any. A module whose import has not finished does not
//! count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use super::interpreter::{Answer, answered, entry};

struct Modules {
    all: PyOnceLock<Py<PyDict>>,
    /// The addresses of at most 16 modules whose imports have finished; 0 in unused slots.
    whole: [AtomicUsize; 16],
    /// Keeps the modules in `whole` alive, so that no other object gets their addresses.
    held: Mutex<Vec<Py<PyAny>>>,
}

static MODULES: Modules = Modules {
    all: PyOnceLock::new(),
    whole: [const { AtomicUsize::new(0) }; 16],
    held: Mutex::new(Vec::new()),
};

#[inline]
pub(super) fn imported<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let modules = MODULES.all.get_or_try_init(py, || -> PyResult<_> {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok(modules.cast_into::<PyDict>()?.unbind())
    });
    let found = modules.and_then(|modules| modules.bind(py).get_item(name));
    let Some(module) = answered(py, found)?.flatten() else { return Ok(None) };
    let address = module.as_ptr().addr();
    let mut known = MODULES.whole.iter().map(|known| known.load(Ordering::Acquire));
    let is_known = known.by_ref().take_while(|known| *known != 0).any(|known| known == address);
    Ok((is_known || is_whole(&module)?).then_some(module))
}

/// Whether the module's import has finished, as far as the `_initializing` of the module's `__spec__` tells. False for
/// Python's `None`.
#[cold]
fn is_whole(module: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = module.py();
    if module.is_none() {
        return Ok(false);
    }
    let says = || -> PyResult<bool> {
        let Some(spec) = module.getattr_opt(intern!(py, "__spec__"))? else { return Ok(false) };
        let says = spec.getattr_opt(intern!(py, "_initializing"))?;
        says.map_or(Ok(false), |says| says.is_truthy())
    };
    if answered(py, says())? == Some(true) {
        return Ok(false);
    }
    let mut held = MODULES.held.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = MODULES.whole.get(held.len()) {
        held.push(module.clone().unbind());
        place.store(module.as_ptr().addr(), Ordering::Release);
    }
    Ok(true)
}

/// The module `name`, if its import has finished; else None.
#[pyfunction]
pub(crate) fn _imported<'py>(name: &Bound<'py, PyString>) -> Answer<'py> {
    entry(name.py(), || imported(name.py(), name))
}
