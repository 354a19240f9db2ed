//! The classes of a type's method resolution order (MRO): which library each belongs to, and which defines a protocol.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::py::habits::{About, is_of};
use crate::py::interpreter::answered;
use crate::py::text::attribute;

pub(super) struct Bases {
    /// The module of each class, in the order of the MRO, which begins with the type itself.
    modules: Vec<String>,
    dlpack: Option<usize>,
    cai: Option<usize>,
    /// Whether `numpy.ndarray` defines the type's `__dlpack__`, as for Numba's classes for pinned and managed memory.
    pub(super) is_numpys: bool,
}

impl Bases {
    pub(super) fn of(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        let all = answered(py, kind.getattr(intern!(py, "__mro__")))?;
        let all = all.and_then(|all| all.cast_into::<PyTuple>().ok());
        let mut found = Self { modules: Vec::new(), dlpack: None, cai: None, is_numpys: false };
        for base in all.iter().flatten() {
            let module = attribute(&base, intern!(py, "__module__"))?.unwrap_or_default();
            if found.dlpack.is_none() && defines(&base, intern!(py, "__dlpack__"))? {
                let name = attribute(&base, intern!(py, "__name__"))?;
                found.is_numpys = module == "numpy" && name.as_deref() == Some("ndarray");
                found.dlpack = Some(found.modules.len());
            }
            if found.cai.is_none() && defines(&base, intern!(py, "__cuda_array_interface__"))? {
                found.cai = Some(found.modules.len());
            }
            found.modules.push(module);
        }
        Ok(found)
    }

    /// Whether the MRO has a class of `library`, and no class before that one defines a protocol in `about`.
    pub(super) fn are_of(&self, about: About, library: &str) -> bool {
        let Some(its) = self.modules.iter().position(|module| is_of(module, library)) else {
            return false;
        };
        let has = |by: Option<usize>| by.is_none_or(|by| by >= its);
        match about {
            About::Dlpack => has(self.dlpack),
            About::Cai => has(self.cai),
            About::Both => has(self.dlpack) && has(self.cai),
            About::Library => true,
        }
    }
}

fn defines(class: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let py = class.py();
    let own = class.getattr(intern!(py, "__dict__")).and_then(|own| own.contains(name));
    Ok(answered(py, own)?.unwrap_or(false))
}
