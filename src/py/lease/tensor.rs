//! A producer's managed tensor, which has one holder or is shared.

use std::sync::Arc;

use dlpark::python::ImportedDlpack;

pub(super) enum Tensor {
    None,
    /// Another holder has it, or there is none.
    Elsewhere,
    Sole(ImportedDlpack),
    Shared(Arc<ImportedDlpack>),
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Elsewhere => "Elsewhere",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

impl Tensor {
    /// Another holder of the same.
    pub(super) fn share(&mut self) -> Self {
        let shared = match std::mem::replace(self, Self::None) {
            none @ (Self::None | Self::Elsewhere) => {
                *self = none;
                return Self::None;
            }
            Self::Sole(managed) => Arc::new(managed),
            Self::Shared(managed) => managed,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }
}
