//! The producer of held memory: where its array is ready, whether it moves, and whether it is garbage.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::{Holding, Owner};
use super::ready_on::ReadyOn;
use super::tensor::Tensor;
use crate::device::Place;
use crate::error::Result;
use crate::lease::Failure;
use crate::py::observe::End;
use crate::py::streams::{KeepAlive, Now, StreamRef};
use crate::stream::{Alive, Ready, Stream};

impl Holding {
    /// What is to be waited for where the array is ready; `None` where that is the producer's own stream, or
    /// a default one at its place.
    #[inline(always)]
    pub(crate) fn keep_ready_on(&mut self, kept: Option<StreamRef>) {
        self.ready_on = ReadyOn::of(kept);
    }

    /// Consumers are told `ready`. The producer works on that stream, if it is known; the array is ready on `kept` where
    /// that is another.
    #[inline(always)]
    pub(crate) fn produced(
        &mut self,
        ready: Ready,
        producer: Option<StreamRef>,
        kept: Option<StreamRef>,
    ) {
        self.ready = self.array.pending(ready);
        self.producer = producer;
        self.keep_ready_on(kept);
    }

    /// The array is ready on its consumer's stream: its work is there, wherever the producer goes.
    pub(crate) fn ready_for_consumer(&mut self) {
        self.ready_on = match &self.consumer {
            Consumer::On(_) | Consumer::OnProducer(Some(_)) => ReadyOn::Consumer,
            _ => ReadyOn::Producer,
        };
    }

    /// The stream that the array is ready on, where that is not the producer's own.
    pub(super) fn ready_elsewhere(&self) -> Option<&StreamRef> {
        match (&self.ready_on, &self.consumer) {
            (ReadyOn::Producer, _) => None,
            (ReadyOn::Other(kept), _) => Some(kept),
            (_, Consumer::On(kept) | Consumer::OnProducer(Some(KeepAlive::By(kept)))) => Some(kept),
            _ => self.producer.as_ref(),
        }
    }

    /// Keeps the stream that the array is ready on by itself: another consumer comes.
    pub(super) fn keep_ready(&mut self, py: Python<'_>) {
        if matches!(self.ready_on, ReadyOn::Consumer) {
            let kept = self.ready_elsewhere().map(|kept| kept.clone_ref(py));
            self.keep_ready_on(kept);
        }
    }

    /// Who keeps the stream `ready` of the array, where it is not a default one, or nobody's.
    pub(super) fn keeper_of(&self, ready: Stream) -> Option<&StreamRef> {
        let producer = || self.producer.as_ref().filter(|producer| producer.stream() == ready);
        self.ready_elsewhere().or_else(producer)
    }

    /// Whether it is the producer's own, or a default one at its place.
    const fn is_ready_on_producer(&self) -> bool {
        matches!(self.ready_on, ReadyOn::Producer)
    }

    /// Where that stream is, where it is kept; else where the consumer works, who has named its handle.
    pub(crate) fn place_of_ready(&self, ready: Stream) -> Option<Place> {
        let named = matches!(ready, Stream::Handle(_)).then_some(self.at);
        self.keeper_of(ready).map(StreamRef::place).or(named)
    }

    /// Whether the stream that the array is `ready` on can be closed while it is held here, or become another one.
    pub(crate) fn may_lose(&self, ready: Ready) -> bool {
        let keeper = ready.stream().and_then(|stream| self.keeper_of(stream));
        keeper.is_some_and(StreamRef::may_change)
    }

    /// Whether it can be closed, by others than the exporter of a dict.
    pub(crate) fn may_close(&self, ready: Ready) -> bool {
        let keeper = ready.stream().and_then(|stream| self.keeper_of(stream));
        keeper.is_some_and(|keeper| keeper.may_change() && !keeper.may_move())
    }

    /// What has become of the stream `ready` of the array: a producer that moved to another one has ordered that after
    /// its pending work, a consumer has not.
    #[inline(always)]
    pub(crate) fn confirm_ready(
        &self,
        py: Python<'_>,
        ready: Stream,
    ) -> Result<Now<'_>, Failure<PyErr>> {
        let Some(kept) = self.keeper_of(ready) else {
            return Ok(Alive::default_stream(ready, self.place).map_or(Now::Gone, Now::On));
        };
        let follows = self.is_ready_on_producer() && kept.may_move();
        Ok(match kept.now(py, &self.driver)? {
            Now::On(alive) if follows || alive.stream() == kept.stream() => Now::On(alive),
            Now::Nothing if follows => Now::Nothing,
            _ => Now::Gone,
        })
    }

    /// The stream that the producer names now besides the one that it named first, as far as it may move.
    pub(super) fn producer_also(
        &self,
        py: Python<'_>,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        Ok(self
            .producer
            .as_ref()
            .map(|producer| producer.also(py, &self.driver))
            .transpose()?
            .flatten())
    }

    /// The same where the array is ready on the producer's stream.
    pub(crate) fn also_ready(&self, py: Python<'_>) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        if self.is_ready_on_producer() { self.producer_also(py) } else { Ok(None) }
    }

    /// Whether `stream` is the producer's own.
    pub(crate) fn is_producer(&self, stream: Alive<'_>) -> bool {
        self.producer.as_ref().is_some_and(|producer| producer.is(stream))
    }

    /// Whether the producer's stream may be closed, or the producer move to another one.
    pub(super) fn producer_may_change(&self) -> bool {
        self.producer.as_ref().is_some_and(StreamRef::may_change)
    }

    /// Whether it is on the same stream as ever, which is alive.
    pub(crate) fn producer_stays(&self, py: Python<'_>) -> Result<bool, Failure<PyErr>> {
        self.producer.as_ref().map_or(Ok(true), |producer| producer.stays(py, &self.driver))
    }

    /// Whether nothing but a Python object keeps the memory, which the garbage collector may take apart.
    pub(crate) const fn is_by_object(&self) -> bool {
        matches!(self.held, Owner::Array(_, Tensor::None))
    }

    /// Whether the garbage collector ends the memory's owner, too, whoever holds it.
    pub(super) fn is_of_garbage(&self, py: Python<'_>) -> bool {
        self.is_by_object()
            && match &self.producer {
                Some(producer) => producer.is_of_garbage(py),
                None => matches!(self.tag.0, End::Collected),
            }
    }
}
