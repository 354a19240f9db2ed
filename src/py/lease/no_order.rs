//! Ends that need no order, as most do: who read the memory works where its producer does, or nobody read it.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::{Holding, Owner};
use crate::lease::Failure;
use crate::order::{self, Purpose};
use crate::py::streams::StreamRef;
use crate::py::streams::current::{self, Objects};
use crate::stream::{Alive, Elided};

impl Holding {
    #[inline(always)]
    pub(super) fn tell_elided(&self, why: Elided) {
        let on = || self.producer.as_ref().map(StreamRef::stream);
        order::elided(Purpose::give_back("release"), self.place, why, on);
    }

    /// Whether all is done for its end: no stream has to wait for another, as is known without a question to Python.
    #[inline(always)]
    pub(super) fn is_done_without_orders(&self, py: Python<'_>) -> bool {
        if matches!(self.held, Owner::Copy(_)) || !self.process.is_current() {
            return false;
        }
        let why = match self.nothing_to_order() {
            None if self.may_be_all_on_legacy() => {
                match current::are_all_on_legacy(py, &self.driver, self.at.ordinal) {
                    Ok(all) => (all == Some(true)).then_some(Elided::SameStream),
                    Err(interrupt) => {
                        interrupt.write_unraisable(py, None);
                        None
                    }
                }
            }
            why => why,
        };
        why.inspect(|why| self.tell_elided(*why)).is_some()
    }

    /// Why no stream has to wait for another, where that is known without a question to anybody.
    #[inline(always)]
    pub(super) fn nothing_to_order(&self) -> Option<Elided> {
        if self.lent.is_some_and(|at| {
            !self.is_producer(Alive::legacy(at))
                || !self.upstream.is_empty()
                || self.producer_may_change()
        }) {
            return None;
        }
        match &self.consumer {
            Consumer::Nobody | Consumer::Unread => Some(Elided::NoConsumer),
            Consumer::Declined => Some(Elided::NotAsked),
            Consumer::OnProducer(_) if self.upstream.is_empty() && !self.producer_may_change() => {
                Some(Elided::SameStream)
            }
            _ => None,
        }
    }

    /// Whether the consumer works on the stream of a producer that may move, and has not.
    pub(super) fn is_on_producer_still(&self, py: Python<'_>) -> Result<bool, Failure<PyErr>> {
        let asks = matches!(self.consumer, Consumer::OnProducer(_))
            && self.upstream.is_empty()
            && self.lent.is_none();
        Ok(asks && self.producer_stays(py)?)
    }

    /// Whether the consumer was never named, and the producer works on the legacy default stream. What a call of `adapt`
    /// gave to a function is ordered all the same: the next call may be on another stream that follows the legacy one.
    #[inline]
    fn may_be_all_on_legacy(&self) -> bool {
        matches!(&self.consumer, Consumer::Unnamed(seen) if seen.is_empty())
            && self.upstream.is_empty()
            && self.lent.is_none()
            && self.conversion.is_none()
            && !self.producer_may_change()
            // Its own: the legacy stream may stand in for another producer's.
            && self.is_producer(Alive::standing_in(self.at))
    }

    /// Whether the consumer was never named, and whoever may be one works on the producer's own stream, the legacy
    /// default one: what most programs do, without a list of streams.
    pub(super) fn is_all_on_legacy(&self, py: Python<'_>) -> Result<bool, Failure<PyErr>> {
        if !self.may_be_all_on_legacy() {
            return Ok(false);
        }
        let (mut is_all, objects) = (true, Objects::default());
        current::each(py, &self.driver, self.at, &objects, |alive, _| {
            is_all &= alive.is(Alive::legacy(self.at));
            Ok(())
        })?;
        Ok(is_all)
    }
}
