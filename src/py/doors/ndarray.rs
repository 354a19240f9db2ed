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
    /// What makes one, if its `__new__` does it all: to call the type calls `__init__` as well, which does nothing.
    new: Option<Py<PyAny>>,
    /// `cupy.cuda.MemoryPointer`.
    pointer: Py<PyAny>,
    /// `cupy.cuda.UnownedMemory`.
    memory: Py<PyAny>,
}

#[pymethods]
impl Ndarrays {
    #[new]
    #[pyo3(signature = (ndarray, new, pointer, memory))]
    const fn new(
        ndarray: Py<PyAny>,
        new: Option<Py<PyAny>>,
        pointer: Py<PyAny>,
        memory: Py<PyAny>,
    ) -> Self {
        Self { ndarray, new, pointer, memory }
    }

    /// The array of `view`, which is ready on CuPy's stream by now.
    fn __call__<'py>(&self, view: &Bound<'py, View>, stream: Optional<'_, 'py>) -> Answer<'py> {
        let _ = stream;
        entry(view.py(), || self.make(view))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ndarray)?;
        visit.call(&self.new)?;
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
        match &self.new {
            Some(new) => {
                new.bind(py).call1((ndarray, parts.shape, parts.dtype, pointer, parts.strides))
            }
            None => ndarray.call1((parts.shape, parts.dtype, pointer, parts.strides)),
        }
    }
}
