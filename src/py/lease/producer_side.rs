//! The producer's side of held memory: its streams, their place, and the stream on which the array is ready.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::Failure;
use crate::py::streams::{KnownStream, KnownStreams, StreamRef, Unnamed};
use crate::stream::{Alive, Ready, Stream};

/// The producer's streams, which wait at the end, and the stream on which the array is ready.
#[derive(Debug)]
pub(crate) struct ProducerSide {
    /// The producer's GPU and context.
    pub(crate) place: Place,
    /// A reference to the producer's stream if something keeps that stream, or to its stand-in. `None` if no stream of
    /// the producer's is known, or if nothing keeps the stream and nothing stands in for it.
    pub(super) stream: Option<StreamRef>,
    /// The producer, if its dict named no stream at import and may name one later. The bridge asks it again.
    pub(super) unnamed: Option<Unnamed>,
    /// Streams that wait at the end besides `stream`: further streams that callers declared or dicts named, and the
    /// streams of earlier users, also of the views between in a view of a view.
    pub(super) upstream: KnownStreams,
    /// A reference to the stream that the array is ready on, or to the stream's stand-in. Not needed if `stream` has
    /// that stream, nor for a default stream at `place`. `None` also if nothing keeps the stream.
    pub(super) ready_on: Option<StreamRef>,
}

/// What consumers of an imported array are told about pending work, with references to the producer's stream and to the
/// stream that the array is ready on.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// What consumers are told about pending work: the stream that the array is ready on, that nothing is pending, or
    /// that the producer does not say.
    pub(crate) told: Ready,
    /// A reference to the producer's stream if something keeps that stream, or to its stand-in. `None` if no stream of
    /// the producer's is known, or if nothing keeps the stream and nothing stands in for it.
    pub(crate) producer: Option<StreamRef>,
    /// A reference to the stream that the array is ready on, or to the stream's stand-in. Not needed if `producer` has
    /// that stream, nor for a default stream at the producer's place. `None` also if nothing keeps the stream. A
    /// stand-in may be in both fields.
    pub(crate) ready_on: Option<StreamRef>,
}

impl Readiness {
    /// A readiness without a kept stream.
    #[inline]
    pub(crate) const fn told(told: Ready) -> Self {
        Self { told, producer: None, ready_on: None }
    }

    /// A readiness that keeps no stream but `producer`.
    #[inline]
    pub(crate) const fn of(told: Ready, producer: Option<StreamRef>) -> Self {
        Self { told, producer, ready_on: None }
    }
}

impl ProducerSide {
    /// A producer's side at `place`, with no stream known.
    #[inline(always)]
    pub(super) const fn at(place: Place) -> Self {
        Self { place, stream: None, unnamed: None, upstream: KnownStreams::NONE, ready_on: None }
    }

    /// Clones the references, for another holder of the memory.
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

    /// Returns the reference recorded for the stream `ready`: `ready_on` if it is set, else the producer's stream if
    /// that is the same stream, else `None`. Without a reference the caller takes the stream to be at `self.place`.
    pub(super) fn keeper_of(&self, ready: Stream) -> Option<&StreamRef> {
        // A default stream of another place is another stream, so compare its place too.
        let own = |producer: &&StreamRef| {
            producer.stream() == ready
                && (matches!(ready, Stream::Handle(_)) || producer.place() == self.place)
        };
        self.ready_on.as_ref().or_else(|| self.stream.as_ref().filter(own))
    }

    /// The GPU and context of the stream `ready`, on which the array is ready.
    pub(crate) fn ready_place(&self, ready: Stream) -> Place {
        self.keeper_of(ready).map_or(self.place, StreamRef::place)
    }

    fn keeper(&self, ready: Ready) -> Option<&StreamRef> {
        ready.stream().and_then(|stream| self.keeper_of(stream))
    }

    /// Whether the array may stop being ready on `ready` while it is held: the stream may be closed, or a dict may name
    /// another stream, or a first one. `is_named` tells that the reader named a stream: then a first one does not count
    /// if `ready` is a stream.
    pub(crate) fn may_lose(&self, ready: Ready, is_named: bool) -> bool {
        let is_there = is_named && matches!(ready, Ready::On(_));
        let asks_again = self.unnamed.is_some() && !is_there;
        asks_again || self.keeper(ready).is_some_and(StreamRef::may_change)
    }

    /// Whether the stream that the array is `ready` on can be closed through its stream object, and no dict may name
    /// another stream instead.
    pub(crate) fn may_close(&self, ready: Ready) -> bool {
        self.keeper(ready).is_some_and(|keeper| keeper.may_change() && !keeper.may_move())
    }

    /// Where the array is ready now, if it was ready on the stream `ready`: on `ready`, if something other than the
    /// exporter of a dict keeps that stream alive. If only the exporter does, its dict is asked. An answer other than
    /// `ready` counts only if `ready_on` is not set and the producer may move: a producer that moved has made its new
    /// stream wait for its pending work. `None` if nothing tells.
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

    /// The stream that the producer's dict names now besides the stream that it named first, as [`StreamRef::also`]
    /// tells it; or the stream that it names now if it named none at first.
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

    /// Asks a producer that named no stream again. If it names a stream now, keeps and returns that stream.
    pub(super) fn ask_unnamed(
        &mut self,
        py: Python<'_>,
        driver: &Handle,
    ) -> PyResult<Option<Stream>> {
        let Some(unnamed) = &self.unnamed else { return Ok(None) };
        let Some(named) = unnamed.named(py, driver)? else { return Ok(None) };
        let stream = named.stream();
        // `ready_on` may be the stream of an earlier consumer, on which the array was ready for that one.
        (self.stream, self.unnamed, self.ready_on) = (Some(named), None, None);
        Ok(Some(stream))
    }

    /// Whether the producer may move to another stream, which its dict then names, or may name a first one.
    pub(super) fn may_move(&self) -> bool {
        self.unnamed.is_some() || self.stream.as_ref().is_some_and(StreamRef::may_move)
    }

    /// A second stream on which work on the array may be pending, by [`Self::producer_also`]. `None` if `ready_on` is
    /// set: the array is then ready there, even if the producer has moved.
    pub(crate) fn also_ready(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        if self.ready_on.is_none() { self.producer_also(py, driver) } else { Ok(None) }
    }

    /// Whether the producer's recorded stream is the default stream `stream` of `place`, by [`StreamRef::is_default`],
    /// and `ready_on` is not set.
    #[inline]
    pub(super) fn is_on_default(&self, stream: Stream) -> bool {
        let is_it = |producer: &StreamRef| producer.is_default(stream, self.place);
        self.ready_on.is_none() && self.stream.as_ref().is_some_and(is_it)
    }

    /// Whether `stream` is the producer's recorded stream, by [`StreamRef::is`]. False if none is recorded.
    pub(crate) fn is_producer(&self, stream: Alive<'_>) -> bool {
        self.stream.as_ref().is_some_and(|producer| producer.is(stream))
    }

    /// Whether [`Self::keeper_of`] finds a reference to the same stream as `kept`.
    pub(crate) fn is_kept_by(&self, kept: &StreamRef) -> bool {
        self.keeper_of(kept.stream()).is_some_and(|own| own.is_same(kept))
    }

    /// Whether the producer's stream may be closed, or the producer may move to another stream, which its dict then
    /// names. False if the stream is unknown.
    pub(super) fn may_change(&self) -> bool {
        self.stream.as_ref().is_some_and(StreamRef::may_change)
    }

    /// Whether the producer is still on its recorded stream, by [`StreamRef::stays`]. True if none is recorded.
    pub(crate) fn stays(&self, py: Python<'_>, driver: &Handle) -> Result<bool, Failure<PyErr>> {
        self.stream.as_ref().map_or(Ok(true), |producer| producer.stays(py, driver))
    }

    /// Adds a stream that, like the producer's, may use the memory again after the end.
    pub(crate) fn put_upstream(&mut self, kept: KnownStream) {
        self.upstream.add(kept);
    }

    /// Visits the Python objects held here, for the garbage collector (`tp_traverse`).
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let upstream = self.upstream.iter().filter_map(KnownStream::kept);
        let mut all = self.stream.iter().chain(&self.ready_on).chain(upstream);
        all.try_for_each(|kept| kept.visit(visit))?;
        self.unnamed.as_ref().map_or(Ok(()), |unnamed| unnamed.visit(visit))
    }
}
