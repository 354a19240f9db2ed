//! A producer's managed tensor, which has one holder or is shared. It may be in its capsule still, which is what a
//! refusal leaves it in. An array that came by a dict has none; what DLPack has no word for has those of its dict.

use std::sync::{Arc, OnceLock};

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::dlpack::capsule;

pub(super) enum Tensor {
    None,
    /// No tensor, but what a dict says of items that DLPack has no word for.
    Words(Py<PyDict>),
    Sole(ImportedDlpack),
    Shared(Arc<Later>),
}

/// Empty as long as the tensor is in its capsule; `None` where it is left there.
type Later = OnceLock<Option<ImportedDlpack>>;

/// A capsule whose tensor is to be taken out. Where it is not, whatever holds it has lost its memory.
#[allow(missing_debug_implementations, reason = "a tensor of dlpark's has none")]
pub(crate) struct Unconsumed {
    capsule: Py<PyCapsule>,
    tensor: Arc<Later>,
}

impl Drop for Unconsumed {
    fn drop(&mut self) {
        let _ = self.tensor.set(None);
    }
}

impl Unconsumed {
    /// Refuses a capsule that was consumed elsewhere meanwhile.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        capsule::read(self.capsule.bind(py)).map(drop).map_err(PyErr::from)
    }

    /// Takes the tensor out, for all that hold it. Where none does any more, its deleter is called here.
    pub(crate) fn consume(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.tensor.set(Some(capsule::take(self.capsule.bind(py))?)));
        Ok(())
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Words(_) => "Words",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

impl Tensor {
    /// The tensor that is in `capsule` still.
    pub(super) fn in_capsule(capsule: Py<PyCapsule>) -> (Self, Unconsumed) {
        let tensor = Arc::new(OnceLock::new());
        (Self::Shared(Arc::clone(&tensor)), Unconsumed { capsule, tensor })
    }

    /// Whether it is left in its capsule, for others.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Shared(tensor) if matches!(tensor.get(), Some(None)))
    }

    /// Another holder of the same.
    pub(super) fn share(&mut self, py: Python<'_>) -> Self {
        if let Self::Words(words) = self {
            return Self::Words(words.clone_ref(py));
        }
        let shared = match std::mem::replace(self, Self::None) {
            Self::None | Self::Words(_) => return Self::None,
            Self::Sole(managed) => Arc::new(Later::from(Some(managed))),
            Self::Shared(managed) => managed,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }
}
