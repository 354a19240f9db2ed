//! A type and those that it is derived from: which libraries they are of, by what they define.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::py::habits::{About, is_of};
use crate::py::interpreter::answered;
use crate::py::text::attribute;

/// What a type and those that it is derived from say.
pub(super) struct Bases {
    /// The modules that they are of, the type's own first.
    modules: Vec<String>,
    /// Which of them is the first that defines `__dlpack__`, if one does.
    dlpack: Option<usize>,
    /// The same of `__cuda_array_interface__`.
    cai: Option<usize>,
    /// Whether `__dlpack__` is that of NumPy's array, as in Numba's classes for pinned and managed memory.
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

    /// Whether what a habit is `about` is as `library` has it: no class that is derived from its own defines it anew.
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
