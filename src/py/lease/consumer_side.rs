//! The consumer's side of held memory: who works on the memory, where, and on which stream if the caller named one.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::warned;
use crate::capture::CaptureStatus;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::end_rules;
use crate::order::{self, Ordered};
use crate::py::streams::{KnownStream, KnownStreams, StreamRef};
use crate::stream::Alive;

#[derive(Debug)]
pub(super) struct ConsumerSide {
    pub(super) at: Place,
    /// If the exchange API lent the array: the place whose legacy default stream the borrowers use.
    pub(super) lent: Option<Place>,
    pub(super) consumer: Consumer,
    pub(super) captured: Captured,
    /// The source line that named the consumer's stream, if nothing keeps that stream alive.
    pub(super) line: Option<Box<warned::Line>>,
    pub(super) further: KnownStreams,
}

/// Whether the consumer's stream waited for the producer in a graph only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captured {
    No,
    /// In the graph that the capture with this number makes. As long as that capture goes on, all work of the stream on
    /// the memory is part of the graph.
    In(u64),
    /// No wait was made, because of a capture.
    Unsaid,
}

impl Captured {
    /// The capture that `made`, a wait of the stream `waiting`, is part of.
    pub(crate) fn of(driver: &Handle, waiting: Option<Alive<'_>>, made: Ordered) -> Result<Self> {
        match waiting {
            _ if made.is_for_good() => Ok(Self::No),
            Some(waiting) if made == Ordered::InGraph => Self::at(driver, waiting),
            _ => Ok(Self::Unsaid),
        }
    }

    /// The capture that `stream` has part in.
    #[cold]
    pub(super) fn at(driver: &Handle, stream: Alive<'_>) -> Result<Self> {
        let status = order::status_of(driver.get()?, stream)?;
        Ok(if let CaptureStatus::Inside(capture) = status { Self::In(capture) } else { Self::No })
    }

    /// The consumer's stream `own`, with what it must wait for again outside the graph.
    #[cold]
    pub(crate) fn keep(
        self,
        own: StreamRef,
        waited_for: impl FnOnce() -> Option<StreamRef>,
    ) -> StreamRef {
        let capture = match self {
            Self::No => return own,
            Self::In(capture) => Some(capture),
            Self::Unsaid => None,
        };
        match waited_for() {
            Some(waited_for) => own.waited_in_graph(capture, waited_for),
            None => own,
        }
    }
}

pub(super) type Consumer = end_rules::Consumer<KnownStream>;

impl ConsumerSide {
    #[inline(always)]
    pub(super) const fn nobody(at: Place) -> Self {
        Self {
            at,
            lent: None,
            consumer: Consumer::Nobody,
            captured: Captured::No,
            line: None,
            further: KnownStreams::NONE,
        }
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            at: self.at,
            lent: self.lent,
            consumer: self.consumer.clone_ref(py),
            captured: self.captured,
            line: self.line.clone(),
            further: self.further.clone_ref(py),
        }
    }

    /// The recorded streams.
    pub(super) fn known(&self) -> impl Iterator<Item = &KnownStream> {
        let consumers = match &self.consumer {
            Consumer::On(known) | Consumer::OnProducer(Some(known)) => std::slice::from_ref(known),
            Consumer::Unnamed(seen) => seen,
            _ => &[],
        };
        consumers.iter().chain(self.further.iter())
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.known().filter_map(KnownStream::kept).try_for_each(|kept| kept.visit(visit))
    }

    /// Merges `other` into this side. Returns `other` if the two cannot be merged.
    pub(super) fn merge(&mut self, other: Self) -> Option<Self> {
        let key = |side: &Self| (side.at, side.lent, side.captured);
        if key(self) != key(&other) || !other.further.is_empty() {
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
}
