//! A lock that lends memory for one `with` block.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::storage::{At, Storage, Taken};

/// A lock on the memory for one `with` block. The block gets an object that speaks DLPack and the CUDA Array Interface;
/// on the host, a NumPy array over the memory itself.
#[pyclass(frozen)]
pub(crate) struct Lock {
    storage: Storage,
    writes: bool,
    at: At,
    lent: Mutex<Option<(Taken, Py<PyAny>)>>,
}

impl Lock {
    pub(crate) fn new(storage: &Storage, writes: bool, at: At) -> Self {
        Self { storage: storage.clone(), writes, at, lent: Mutex::new(None) }
    }

    fn lend<'py>(&self, taken: &Taken, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.at == At::Host {
            let view = taken.host(py)?.call_method0("view")?;
            view.call_method1("setflags", (self.writes,))?;
            return Ok(view);
        }
        let array = self.storage.array();
        let array = if self.writes { array } else { array.into_readonly() };
        let view = array.into_pyobject(py)?;
        // Reading `ptr` tells the bridge that the user has the address, and may work on any stream. The end of the
        // block then waits for the libraries' current streams, even if a tensor of the memory is kept.
        view.getattr("ptr")?;
        Ok(view)
    }
}

#[pymethods]
impl Lock {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let taken = self.storage.take_at(py, self.writes, self.at)?;
        let view = self.lend(&taken, py)?;
        let lent = (taken, view.clone().unbind());
        let before = self.lent.lock().unwrap_or_else(PoisonError::into_inner).replace(lent);
        drop(before);
        Ok(view)
    }

    #[pyo3(signature = (*_reason))]
    fn __exit__(&self, py: Python<'_>, _reason: &Bound<'_, PyAny>) -> PyResult<()> {
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((_taken, view)) = lent
            && self.at == At::Device
        {
            view.call_method0(py, "release")?;
        }
        Ok(())
    }
}
