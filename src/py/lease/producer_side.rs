//! The producer's side of held memory: the producer's place and streams, and the stream on which the array is ready.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::consumer_side::Captured;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::Failure;
use crate::py::streams::{KnownStream, KnownStreams, StreamRef, Unnamed};
use crate::stream::{Alive, Ready, Stream};

#[derive(Debug)]
pub(crate) struct ProducerSide {
    pub(crate) place: Place,
    /// The producer's stream, or the legacy default stream that stands in for it; `None` if neither is recorded.
    pub(super) stream: Option<StreamRef>,
    /// The producer, if its CAI dict named no stream at import but can name one later.
    pub(super) unnamed: Option<Unnamed>,
    /// Streams besides `stream` on which the memory may be used after the end, such as those of earlier consumers.
    pub(super) upstream: KnownStreams,
    /// If this is `Some`, the array is ready on this stream, and not necessarily on `stream`.
    pub(super) ready_on: Option<StreamRef>,
}

#[derive(Debug)]
pub(crate) struct Readiness {
    pub(crate) told: Ready,
    pub(crate) producer: Option<StreamRef>,
    /// If this is `Some`, the array is ready on this stream, and not necessarily on `producer`.
    pub(crate) ready_on: Option<StreamRef>,
}

impl Readiness {
    /// Call this after a wait of the array's stream for `waited_for`, which `captured` can be part of.
    pub(crate) fn waited(&mut self, py: Python<'_>, captured: Captured, waited_for: &StreamRef) {
        if captured != Captured::No {
            let same = || self.producer.as_ref().map(|producer| producer.clone_ref(py));
            let own = self.ready_on.take().or_else(same);
            let keep = |own| captured.keep(own, || Some(waited_for.clone_ref(py)));
            self.ready_on = own.map(keep);
        }
    }

    #[inline]
    pub(crate) const fn told(told: Ready) -> Self {
        Self { told, producer: None, ready_on: None }
    }

    #[inline]
    pub(crate) const fn of(told: Ready, producer: Option<StreamRef>) -> Self {
        Self { told, producer, ready_on: None }
    }
}

impl ProducerSide {
    #[inline(always)]
    pub(super) const fn at(place: Place) -> Self {
        Self { place, stream: None, unnamed: None, upstream: KnownStreams::NONE, ready_on: None }
    }

    #[inline]
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            place: self.place,
            stream: self.stream.as_ref().map(|kept| kept.clone_ref(py)),
            unnamed: self.unnamed.as_ref().map(|unnamed| unnamed.clone_ref(py)),
            upstream: self.upstream.clone_ref(py),
            ready_on: self.ready_on.as_ref().map(|kept| kept.clone_ref(py)),
        }
    }

    pub(crate) fn producer(&self, py: Python<'_>) -> Option<StreamRef> {
        self.stream.as_ref().map(|producer| producer.clone_ref(py))
    }

    /// `own` as the stream that the array is ready on. If it was ready there before, after a wait in a graph alone, the
    /// wait must still be made again.
    #[inline(always)]
    pub(crate) fn ready_again_on(&self, py: Python<'_>, own: StreamRef) -> StreamRef {
        match &self.ready_on {
            Some(before) if before.waits_again() => own.waits_like(py, before),
            _ => own,
        }
    }

    /// The recorded reference to the stream `ready`. The array must be ready on `ready`: this is not checked.
    pub(super) fn keeper_of(&self, ready: Stream) -> Option<&StreamRef> {
        // Two places have different default streams, so compare the place too.
        let own = |producer: &&StreamRef| {
            producer.stream() == ready
                && (matches!(ready, Stream::Handle(_)) || producer.place() == self.place)
        };
        self.ready_on.as_ref().or_else(|| self.stream.as_ref().filter(own))
    }

    pub(crate) fn ready_place(&self, ready: Stream) -> Place {
        self.keeper_of(ready).map_or(self.place, StreamRef::place)
    }

    fn keeper(&self, ready: Ready) -> Option<&StreamRef> {
        ready.stream().and_then(|stream| self.keeper_of(stream))
    }

    /// `is_named` tells whether the consumer named a stream.
    pub(crate) fn may_lose(&self, ready: Ready, is_named: bool) -> bool {
        let is_there = is_named && matches!(ready, Ready::On(_));
        let asks_again = self.unnamed.is_some() && !is_there;
        asks_again || self.keeper(ready).is_some_and(StreamRef::may_change)
    }

    /// Whether the stream of `ready` can be closed through its stream object, but no dict can name another stream.
    pub(crate) fn may_close(&self, ready: Ready) -> bool {
        self.keeper(ready).is_some_and(|keeper| keeper.may_change() && !keeper.may_move())
    }

    /// Where an array that was ready on the stream `ready` is ready now. `None` if the bridge cannot tell.
    #[inline(always)]
    pub(crate) fn confirm_ready(
        &self,
        py: Python<'_>,
        driver: &Handle,
        ready: Stream,
    ) -> Result<Option<Ready<Alive<'_>>>, Failure<PyErr>> {
        let Some(kept) = self.keeper_of(ready) else {
            return Ok(Alive::default_stream(ready, self.place).map(Ready::On));
        };
        let follows = self.ready_on.is_none() && kept.may_move();
        let stays = |now: &Ready<Alive<'_>>| match now {
            Ready::On(alive) => follows || alive.stream() == kept.stream(),
            Ready::Nothing | Ready::Unsaid => follows,
        };
        Ok(kept.now(py, driver)?.filter(stays))
    }

    /// If this is `Some`, the producer's dict now names this stream, and not `stream`.
    pub(super) fn producer_also(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        match (&self.stream, &self.unnamed) {
            (Some(producer), _) => producer.also(py, driver),
            (None, Some(unnamed)) => unnamed.now(py, driver),
            (None, None) => Ok(None),
        }
    }

    /// If `unnamed` is set, and the producer's dict names a stream now, records that stream as `stream` and returns it.
    pub(super) fn ask_unnamed(
        &mut self,
        py: Python<'_>,
        driver: &Handle,
    ) -> PyResult<Option<Stream>> {
        let Some(unnamed) = &self.unnamed else { return Ok(None) };
        let Some(named) = unnamed.named(py, driver)? else { return Ok(None) };
        let stream = named.stream();
        // Clear `ready_on`, which can be the stream of an earlier consumer.
        (self.stream, self.unnamed, self.ready_on) = (Some(named), None, None);
        Ok(Some(stream))
    }

    /// Whether the producer's dict can later name another stream, or name its first stream.
    pub(super) fn may_move(&self) -> bool {
        self.unnamed.is_some() || self.stream.as_ref().is_some_and(StreamRef::may_move)
    }

    /// A second stream that can have pending work on the array. `None` if `ready_on` is set.
    pub(crate) fn also_ready(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        if self.ready_on.is_none() { self.producer_also(py, driver) } else { Ok(None) }
    }

    #[inline]
    pub(super) fn is_on_default(&self, stream: Stream) -> bool {
        let is_it = |producer: &StreamRef| producer.is_default(stream, self.place);
        self.ready_on.is_none() && self.stream.as_ref().is_some_and(is_it)
    }

    /// False if the producer's stream is not recorded.
    pub(crate) fn is_producer(&self, stream: Alive<'_>) -> bool {
        self.stream.as_ref().is_some_and(|producer| producer.is(stream))
    }

    pub(crate) fn is_kept_by(&self, kept: &StreamRef) -> bool {
        self.keeper_of(kept.stream()).is_some_and(|own| own.is_same(kept))
    }

    /// False if the producer's stream is not recorded.
    pub(super) fn may_change(&self) -> bool {
        self.stream.as_ref().is_some_and(StreamRef::may_change)
    }

    /// True if the producer's stream is not recorded.
    pub(crate) fn stays(&self, py: Python<'_>, driver: &Handle) -> Result<bool, Failure<PyErr>> {
        self.stream.as_ref().map_or(Ok(true), |producer| producer.stays(py, driver))
    }

    pub(crate) fn put_upstream(&mut self, kept: KnownStream) {
        self.upstream.add(kept);
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let upstream = self.upstream.iter().filter_map(KnownStream::kept);
        let mut all = self.stream.iter().chain(&self.ready_on).chain(upstream);
        all.try_for_each(|kept| kept.visit(visit))?;
        self.unnamed.as_ref().map_or(Ok(()), |unnamed| unnamed.visit(visit))
    }
}
