//! Which stream held memory is ready on, beside the producer's and the consumer's.

use pyo3::prelude::*;

use crate::py::streams::StreamRef;

/// Which stream an array is ready on.
#[derive(Debug)]
pub(super) enum ReadyOn {
    /// The producer's own, or a default one at its place.
    Producer,
    /// The consumer's, which the holder keeps as that.
    Consumer,
    /// Another.
    Other(Box<StreamRef>),
}

impl ReadyOn {
    /// That stream, or the producer's.
    pub(super) fn of(kept: Option<StreamRef>) -> Self {
        kept.map_or(Self::Producer, |kept| Self::Other(Box::new(kept)))
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Producer => Self::Producer,
            Self::Consumer => Self::Consumer,
            Self::Other(kept) => Self::Other(Box::new(kept.clone_ref(py))),
        }
    }

    /// The stream that nothing else of the holder's keeps.
    pub(super) fn own(&self) -> Option<&StreamRef> {
        match self {
            Self::Other(kept) => Some(kept),
            Self::Producer | Self::Consumer => None,
        }
    }
}
