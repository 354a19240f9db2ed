//! The consumer's side of held memory: who works on it, where, and on which stream, as far as the bridge was told.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::warned;
use crate::device::Place;
use crate::lease::plan;
use crate::py::streams::{KnownStream, KnownStreams, StreamName, StreamRef};

/// Who works on the memory by one holder, and where; and where that holder lent it.
#[derive(Debug)]
pub(super) struct Use {
    /// Where the consumer's streams are.
    pub(super) at: Place,
    /// Where the exchange API lent the array; its borrowers work on the legacy default stream there.
    pub(super) lent: Option<Place>,
    pub(super) consumer: Consumer,
    /// Where others work who were handed the memory on.
    pub(super) also: KnownStreams,
}

/// Who works on the memory.
#[derive(Debug)]
pub(super) enum Consumer {
    /// No consumer: it is only passed on.
    Nobody,
    /// A consumer that wants no order (-1).
    Declined,
    /// A consumer on the producer's own stream; and who keeps that one, if it may be closed, or the producer move.
    OnProducer(Option<KnownStream>),
    /// A reader of the dict, which was not read yet.
    Unread,
    /// A reader of the dict that named no stream. The streams are those that libraries worked on then.
    Unnamed(Vec<KnownStream>),
    /// A consumer on that stream.
    On(StreamRef),
    /// A consumer on that non-blocking stream, which nothing keeps alive; and the line that named it.
    Unkept(StreamName, Option<Box<warned::Line>>),
}

impl Use {
    /// No one works on it, at `place`.
    #[inline(always)]
    pub(super) const fn nobody(at: Place) -> Self {
        Self { at, lent: None, consumer: Consumer::Nobody, also: KnownStreams::NONE }
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let also = self.also.clone_ref(py);
        Self { at: self.at, lent: self.lent, consumer: self.consumer.clone_ref(py), also }
    }

    /// Takes `other` in if one order covers both.
    pub(super) fn merge(&mut self, other: Self) -> Option<Self> {
        if (self.at, self.lent) != (other.at, other.lent) || !other.also.is_empty() {
            return Some(other);
        }
        match (&mut self.consumer, other.consumer) {
            (Consumer::Unnamed(seen), Consumer::Unnamed(more)) => {
                for known in more {
                    known.add_to(seen);
                }
                None
            }
            (Consumer::On(kept), Consumer::On(other)) if kept.is_same(&other) => None,
            (Consumer::Unkept(name, _), Consumer::Unkept(other, _)) if *name == other => None,
            (Consumer::Nobody, Consumer::Nobody)
            | (Consumer::Declined, Consumer::Declined)
            | (Consumer::OnProducer(_), Consumer::OnProducer(_))
            | (Consumer::Unread, Consumer::Unread) => None,
            (_, consumer) => Some(Self { consumer, ..other }),
        }
    }
}

impl Consumer {
    /// The consumer on a stream that was named just now, and that is kept so.
    pub(super) fn on(py: Python<'_>, kept: KnownStream) -> PyResult<Self> {
        Ok(match kept {
            KnownStream::Kept(kept) => Self::On(kept),
            KnownStream::Lost(name) => Self::Unkept(name, warned::here(py)?.map(Box::new)),
        })
    }

    /// What the plan of an end knows of it.
    pub(super) const fn asked(&self) -> plan::Consumer {
        match self {
            Self::Nobody | Self::Unread => plan::Consumer::Nobody,
            Self::Declined => plan::Consumer::Declined,
            Self::OnProducer(_) | Self::On(_) | Self::Unkept(..) => plan::Consumer::Named,
            Self::Unnamed(_) => plan::Consumer::Unnamed,
        }
    }

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

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let known = |known: &KnownStream| known.kept().map_or(Ok(()), |kept| kept.visit(visit));
        match self {
            Self::On(kept) => kept.visit(visit),
            Self::OnProducer(Some(kept)) => known(kept),
            Self::Unnamed(seen) => seen.iter().try_for_each(known),
            _ => Ok(()),
        }
    }
}
