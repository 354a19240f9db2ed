//! The managed tensor of a producer's array. Several holders can share a tensor. A shared tensor can still be in its
//! capsule.

use std::sync::{Arc, OnceLock};

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::dlpack::capsule;

pub(super) enum HeldTensor {
    None,
    /// No tensor, but the typestr and `descr` of the CAI dict, for an array that DLPack cannot express.
    Words(Py<PyDict>),
    Sole(ImportedDlpack),
    Shared(Arc<Later>),
}

/// Unset until the bridge takes the tensor out of its capsule; `None` if the bridge will not take the tensor out.
type Later = OnceLock<Option<ImportedDlpack>>;

/// If [`Self::consume`] has not succeeded when this is dropped, [`HeldTensor::is_lost`] is true for all holders.
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
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        capsule::read(self.capsule.bind(py)).map(drop).map_err(PyErr::from)
    }

    /// Takes the tensor out of the capsule, for all holders of the tensor. Fails if other code has consumed the
    /// capsule.
    pub(crate) fn consume(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.tensor.set(Some(capsule::take(self.capsule.bind(py))?)));
        Ok(())
    }
}

impl std::fmt::Debug for HeldTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Words(_) => "Words",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

impl HeldTensor {
    pub(super) fn in_capsule(capsule: Py<PyCapsule>) -> (Self, Unconsumed) {
        let tensor = Arc::new(OnceLock::new());
        (Self::Shared(Arc::clone(&tensor)), Unconsumed { capsule, tensor })
    }

    /// Whether the bridge will never take the tensor out of its capsule. Then this value keeps no memory alive.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Shared(tensor) if matches!(tensor.get(), Some(None)))
    }

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
