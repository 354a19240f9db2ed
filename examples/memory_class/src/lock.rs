//! Memory that is lent for the length of a `with` block.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::storage::{At, Storage, Taken};

/// A lock on the memory, held for the length of a `with` block. Its value speaks DLPack and the CUDA Array Interface; on
/// the host it is an array of NumPy's, over the memory itself.
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
        // The address was handed out, so its user may work on any stream: the end of the block waits for the
        // libraries' current streams, even if a tensor of the memory is kept.
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
