//! Who works on the memory that is held, and on which stream, as far as anybody said.

use pyo3::prelude::*;

use super::warned;
use crate::py::streams::{KeepAlive, StreamName, StreamRef};

/// Who works on the memory.
#[derive(Debug)]
pub(super) enum Consumer {
    /// Nobody: it is only passed on.
    Nobody,
    /// A consumer that wants no order (-1).
    Declined,
    /// A consumer on the producer's own stream; and who keeps that one, if it may be closed, or the producer move.
    OnProducer(Option<KeepAlive>),
    /// A reader of the dict; nobody has read it yet.
    Unread,
    /// A reader of the dict that named no stream. The streams are those that libraries worked on then.
    Unnamed(Vec<KeepAlive>),
    /// A consumer on that stream.
    On(StreamRef),
    /// A consumer on that non-blocking stream, which nothing keeps alive; and the line that named it.
    Unkept(StreamName, Option<Box<warned::Line>>),
}

impl Consumer {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Nobody => Self::Nobody,
            Self::Declined => Self::Declined,
            Self::OnProducer(kept) => {
                Self::OnProducer(kept.as_ref().map(|kept| kept.clone_ref(py)))
            }
            Self::Unread => Self::Unread,
            Self::Unnamed(seen) => {
                Self::Unnamed(seen.iter().map(|kept| kept.clone_ref(py)).collect())
            }
            Self::On(kept) => Self::On(kept.clone_ref(py)),
            Self::Unkept(name, line) => Self::Unkept(*name, line.clone()),
        }
    }
}
