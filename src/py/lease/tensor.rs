//! A producer's managed tensor: none, one holder's, or shared. A shared tensor may still be in its capsule, where a
//! refusal leaves it. An array from a dict has no tensor; if DLPack cannot express its items, it has the dict's
//! entries.

use std::sync::{Arc, OnceLock};

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::dlpack::capsule;

pub(super) enum Tensor {
    None,
    /// No tensor, but the dict's entries for items that DLPack cannot express.
    Words(Py<PyDict>),
    Sole(ImportedDlpack),
    Shared(Arc<Later>),
}

/// Unset while the tensor is in its capsule; `None` if it stays there.
type Later = OnceLock<Option<ImportedDlpack>>;

/// A capsule that a later step consumes. If it is dropped unconsumed, every holder of its tensor has lost the memory.
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
    /// Refuses a capsule that was consumed elsewhere in the meantime.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        capsule::read(self.capsule.bind(py)).map(drop).map_err(PyErr::from)
    }

    /// Takes the tensor out for all its holders. If none is left, the tensor's deleter runs here.
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
    /// Shares the tensor of a `capsule` that is not consumed yet.
    pub(super) fn in_capsule(capsule: Py<PyCapsule>) -> (Self, Unconsumed) {
        let tensor = Arc::new(OnceLock::new());
        (Self::Shared(Arc::clone(&tensor)), Unconsumed { capsule, tensor })
    }

    /// Whether the tensor stays in its capsule, for others.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Shared(tensor) if matches!(tensor.get(), Some(None)))
    }

    /// The tensor for another holder.
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
