//! Held memory goes from hand to hand: whom it is for, and who had it before.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::Holding;
use super::warned;
use crate::device::Place;
use crate::py::streams::{Argument, KeepAlive, StreamRef};
use crate::stream::{Alive, Request};

impl Holding {
    /// The memory is handed to the consumer that `argument` names, on a stream at `at`.
    pub(crate) fn hand_to(
        &mut self,
        py: Python<'_>,
        argument: &Argument<'_, '_>,
        at: Place,
    ) -> PyResult<()> {
        self.at = at;
        let consumer = match (argument.request(), argument.alive(at)) {
            (Request::NoOrder, _) => Consumer::Declined,
            (_, None) => Consumer::Unread,
            (_, Some(alive)) if self.is_producer(alive) => {
                let kept = self.producer_moves().then(|| argument.keep(py, &self.driver, at));
                Consumer::OnProducer(kept.transpose()?.flatten())
            }
            _ => match argument.keep(py, &self.driver, at)? {
                Some(KeepAlive::By(kept) | KeepAlive::StandIn(kept)) => Consumer::On(kept),
                Some(KeepAlive::Nobody(handle)) => Consumer::Unkept(handle, warned::here(py)?),
                None => Consumer::Nobody,
            },
        };
        self.hand_on(consumer);
        self.note_use(py);
        Ok(())
    }

    /// The memory goes on to `next`. Whoever had it before is upstream from here on.
    pub(super) fn hand_on(&mut self, next: Consumer) {
        match std::mem::replace(&mut self.consumer, next) {
            Consumer::On(kept) => self.put_upstream(KeepAlive::By(kept)),
            Consumer::OnProducer(Some(KeepAlive::StandIn(legacy))) => {
                // By its name, which matters only if the producer has left it.
                let named = self.producer.as_ref().map_or(legacy.stream(), StreamRef::stream);
                self.put_upstream(KeepAlive::Nobody(named.handle()));
            }
            Consumer::OnProducer(Some(known)) => self.put_upstream(known),
            Consumer::Unkept(handle, _) => self.put_upstream(KeepAlive::Nobody(handle)),
            Consumer::Unnamed(seen) => {
                for known in seen {
                    self.put_upstream(known);
                }
            }
            _ => {}
        }
    }

    /// Whether it has a consumer, and is not only passed on.
    pub(crate) const fn has_consumer(&self) -> bool {
        !matches!(self.consumer, Consumer::Nobody)
    }

    /// Somebody reads the address. Whether that is a consumer that named no stream.
    pub(crate) fn read(&mut self, py: Python<'_>) -> bool {
        if matches!(self.consumer, Consumer::Nobody | Consumer::Unread) {
            self.consumer = Consumer::Unnamed(Vec::new());
            self.note_use(py);
        }
        matches!(self.consumer, Consumer::Unnamed(_))
    }

    /// Whether a stream that a library works on as it takes the memory is still to be noted. The producer's
    /// own is only where others are upstream, which do not follow it, or where the producer may move.
    pub(crate) fn has_to_note(&self, stream: Alive<'_>) -> bool {
        let Consumer::Unnamed(seen) = &self.consumer else { return false };
        let settled =
            self.upstream.is_empty() && self.is_producer(stream) && !self.producer_moves();
        !settled && !seen.iter().any(|known| known.is(stream))
    }

    /// Notes such a stream. It comes back where nothing is to be noted: to drop it may run anything.
    pub(crate) fn note(&mut self, py: Python<'_>, known: KeepAlive) -> Option<KeepAlive> {
        let Consumer::Unnamed(seen) = &mut self.consumer else { return Some(known) };
        let left = known.add_to(seen);
        if left.is_none() {
            self.note_use(py);
        }
        left
    }

    /// Consumers that are not named work at `at`.
    pub(crate) fn hand_out_at(&mut self, at: Place) {
        if !matches!(self.consumer, Consumer::On(_) | Consumer::Unkept(..)) {
            self.at = at;
            if self.conversion.is_some() {
                self.note_place();
            }
        }
    }
}
