//! What a view, or a managed tensor that it handed out, holds.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is
//! right. The managed tensor of a DLPack producer has no reference count; it is shared from the
//! second holder on.

use std::sync::Arc;

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// References that keep memory and stream alive.
#[derive(Debug)]
pub(super) struct Keep(Option<Kept>);

#[derive(Debug)]
struct Kept {
    producer: Py<PyAny>,
    managed: Tensor,
    stream: Option<Py<PyAny>>,
}

enum Tensor {
    None,
    Sole(ImportedDlpack),
    Shared(Arc<ImportedDlpack>),
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

impl Keep {
    /// Holds `producer`, its managed tensor, and the stream object that the caller gave.
    pub(super) fn new(
        producer: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        stream: Option<Py<PyAny>>,
    ) -> Self {
        let managed = managed.map_or(Tensor::None, Tensor::Sole);
        Self(Some(Kept { producer, managed, stream }))
    }

    /// The producer.
    pub(super) fn producer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.0.as_ref().map(|kept| kept.producer.clone_ref(py))
    }

    /// Another holder of the same, with `stream` added where the caller gave one.
    pub(super) fn share(&mut self, py: Python<'_>, stream: Option<Py<PyAny>>) -> Self {
        Self(self.0.as_mut().map(|kept| Kept {
            producer: kept.producer.clone_ref(py),
            managed: kept.managed.share(),
            stream: stream.or_else(|| kept.stream.as_ref().map(|held| held.clone_ref(py))),
        }))
    }

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(kept) = &self.0 {
            visit.call(&kept.producer)?;
            visit.call(&kept.stream)?;
        }
        Ok(())
    }
}

impl Tensor {
    fn share(&mut self) -> Self {
        let shared = match std::mem::replace(self, Self::None) {
            Self::None => return Self::None,
            Self::Sole(managed) => Arc::new(managed),
            Self::Shared(managed) => managed,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }
}

impl Drop for Keep {
    /// Lets go with the interpreter attached, from whatever thread this is. Where the interpreter is
    /// gone, or going, everything is left as it is: a leak at the end of a process harms nobody, a
    /// foreign deleter without its interpreter may.
    ///
    /// An exception that is on its way is put aside meanwhile, and one that a deleter leaves behind is
    /// reported as unraisable: this is called while a stack unwinds, too.
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            let mut kept = Some(kept);
            Python::try_attach(|py| {
                let pending = PyErr::occurred(py).then(|| PyErr::take(py)).flatten();
                drop(kept.take());
                if PyErr::occurred(py)
                    && let Some(left) = PyErr::take(py)
                {
                    left.write_unraisable(py, None);
                }
                if let Some(pending) = pending {
                    pending.restore(py);
                }
            });
            std::mem::forget(kept);
        }
    }
}
