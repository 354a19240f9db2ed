//! The consumer's side of held memory: who works on it, where, and on which stream, as far as the caller named it.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::warned;
use crate::device::Place;
use crate::lease::end_rules;
use crate::py::streams::{KnownStream, KnownStreams};

/// The users that work on the memory through one holder, and the places of their streams.
#[derive(Debug)]
pub(super) struct ConsumerSide {
    /// The place of the consumer's streams.
    pub(super) at: Place,
    /// The place that the exchange API lent the array at; its borrowers work on the legacy default stream there.
    pub(super) lent: Option<Place>,
    pub(super) consumer: Consumer,
    /// The program's line that named the consumer's stream, if nothing keeps that stream.
    pub(super) line: Option<Box<warned::Line>>,
    /// Streams of further users that got the memory.
    pub(super) further: KnownStreams,
}

pub(super) type Consumer = end_rules::Consumer<KnownStream>;

impl ConsumerSide {
    /// The side of a holder at `place` that has no consumer.
    #[inline(always)]
    pub(super) const fn nobody(at: Place) -> Self {
        Self { at, lent: None, consumer: Consumer::Nobody, line: None, further: KnownStreams::NONE }
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            at: self.at,
            lent: self.lent,
            consumer: self.consumer.clone_ref(py),
            line: self.line.clone(),
            further: self.further.clone_ref(py),
        }
    }

    /// Merges `other` into this side if one order covers both; else returns it.
    pub(super) fn merge(&mut self, other: Self) -> Option<Self> {
        if (self.at, self.lent) != (other.at, other.lent) || !other.further.is_empty() {
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

impl end_rules::Known for KnownStream {
    #[inline]
    fn is_kept(&self) -> bool {
        self.kept().is_some()
    }
}

impl Consumer {
    /// A copy for another holder.
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

    /// Shows the garbage collector the held references.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let known = |known: &KnownStream| known.kept().map_or(Ok(()), |kept| kept.visit(visit));
        match self {
            Self::On(stream) | Self::OnProducer(Some(stream)) => known(stream),
            Self::Unnamed(seen) => seen.iter().try_for_each(known),
            _ => Ok(()),
        }
    }
}
