//! The consumer's side of held memory: who works on it, where, and on which stream, as far as the bridge was told.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::warned;
use crate::device::Place;
use crate::lease::plan;
use crate::py::streams::{KnownStream, KnownStreams};

/// Who works on the memory by one holder, and where; and where that holder lent it.
#[derive(Debug)]
pub(super) struct Use {
    /// Where the consumer's streams are.
    pub(super) at: Place,
    /// Where the exchange API lent the array; its borrowers work on the legacy default stream there.
    pub(super) lent: Option<Place>,
    pub(super) consumer: Consumer,
    /// The line that named the consumer's stream, where nothing keeps that.
    pub(super) line: Option<Box<warned::Line>>,
    /// Where others work who were handed the memory on.
    pub(super) also: KnownStreams,
}

/// Who works on the memory.
pub(super) type Consumer = plan::Consumer<KnownStream>;

impl Use {
    /// No one works on it, at `place`.
    #[inline(always)]
    pub(super) const fn nobody(at: Place) -> Self {
        Self { at, lent: None, consumer: Consumer::Nobody, line: None, also: KnownStreams::NONE }
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            at: self.at,
            lent: self.lent,
            consumer: self.consumer.clone_ref(py),
            line: self.line.clone(),
            also: self.also.clone_ref(py),
        }
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
            (Consumer::On(known), Consumer::On(other)) if known.is_same(&other) => None,
            (Consumer::Nobody, Consumer::Nobody)
            | (Consumer::Declined, Consumer::Declined)
            | (Consumer::OnProducer(_), Consumer::OnProducer(_))
            | (Consumer::Unread, Consumer::Unread) => None,
            (_, consumer) => Some(Self { consumer, ..other }),
        }
    }
}

impl plan::Known for KnownStream {
    #[inline]
    fn is_kept(&self) -> bool {
        self.kept().is_some()
    }
}

impl Consumer {
    /// The same consumer for another holder.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Nobody => Self::Nobody,
            Self::Unread => Self::Unread,
            Self::Declined => Self::Declined,
            Self::OnProducer(own) => Self::OnProducer(own.as_ref().map(|own| own.clone_ref(py))),
            Self::Unnamed(seen) => {
                Self::Unnamed(seen.iter().map(|known| known.clone_ref(py)).collect())
            }
            Self::On(known) => Self::On(known.clone_ref(py)),
        }
    }

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let known = |known: &KnownStream| known.kept().map_or(Ok(()), |kept| kept.visit(visit));
        match self {
            Self::On(stream) | Self::OnProducer(Some(stream)) => known(stream),
            Self::Unnamed(seen) => seen.iter().try_for_each(known),
            _ => Ok(()),
        }
    }
}
