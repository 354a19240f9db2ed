//! CuPy's arrays, made of its own parts: what `cupy.asarray` does of a dict, without the dict and without its wait.
//!
//! `cai_bridge._libraries._cupy` gives the parts, and compares the first array with the public way's.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::Optional;
use crate::py::interpreter::{Answer, entry};
use crate::py::views::View;

/// Makes an `ndarray` of a view, which its memory keeps.
#[pyclass(frozen, module = "cai_bridge", name = "_Ndarrays")]
#[derive(Debug)]
pub(crate) struct Ndarrays {
    /// `cupy.ndarray`.
    ndarray: Py<PyAny>,
    /// What its `__new__` calls, if it is made so: its base's `__new__` and `_init`. To call the type calls an `__init__` as
    /// well, which does nothing, and takes twice as long.
    halves: Option<(Py<PyAny>, Py<PyAny>)>,
    /// `cupy.cuda.MemoryPointer`.
    pointer: Py<PyAny>,
    /// `cupy.cuda.UnownedMemory`.
    memory: Py<PyAny>,
}

#[pymethods]
impl Ndarrays {
    #[new]
    #[pyo3(signature = (ndarray, halves, pointer, memory))]
    const fn new(
        ndarray: Py<PyAny>,
        halves: Option<(Py<PyAny>, Py<PyAny>)>,
        pointer: Py<PyAny>,
        memory: Py<PyAny>,
    ) -> Self {
        Self { ndarray, halves, pointer, memory }
    }

    /// The array of `view`, which is ready on CuPy's stream by now.
    fn __call__<'py>(&self, view: &Bound<'py, View>, stream: Optional<'_, 'py>) -> Answer<'py> {
        let _ = stream;
        entry(view.py(), || self.make(view))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ndarray)?;
        if let Some((new, init)) = &self.halves {
            visit.call(new)?;
            visit.call(init)?;
        }
        visit.call(&self.pointer)?;
        visit.call(&self.memory)
    }
}

impl Ndarrays {
    pub(super) fn make<'py>(&self, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyAny>> {
        let py = view.py();
        let parts = view.get().parts(py)?;
        let memory = self.memory.bind(py).call1((parts.ptr, parts.nbytes, view, parts.device))?;
        let pointer = self.pointer.bind(py).call1((memory, 0))?;
        let ndarray = self.ndarray.bind(py);
        match &self.halves {
            Some((new, init)) => {
                let made = new.bind(py).call1((ndarray,))?;
                init.bind(py).call1((&made, parts.shape, parts.dtype, pointer, parts.strides))?;
                Ok(made)
            }
            None => ndarray.call1((parts.shape, parts.dtype, pointer, parts.strides)),
        }
    }
}
