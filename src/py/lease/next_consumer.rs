//! Records the consumer of held memory. The recorded streams of the consumer before become upstream streams.

use pyo3::prelude::*;

use super::consumer_side::{Captured, Consumer};
use super::held_memory::HeldMemory;
use super::warned;
use crate::device::Place;
use crate::py::streams::{KnownStream, StreamArgument, StreamName, StreamRef};
use crate::stream::{Alive, Ready, Request, Stream};

impl HeldMemory {
    #[inline]
    pub(crate) fn set_consumer(
        &mut self,
        py: Python<'_>,
        argument: &StreamArgument<'_, '_>,
        at: Place,
    ) -> PyResult<()> {
        self.consumer_side.at = at;
        let (mut line, mut captured) = (None, Captured::No);
        let consumer = match (argument.request(), argument.alive(at)) {
            (Request::NoOrder, _) => Consumer::Declined,
            (_, None) => Consumer::Unread,
            (_, Some(alive)) if self.producer_side.is_producer(alive) && argument.is_on(alive) => {
                let kept =
                    self.producer_side.may_change().then(|| argument.keep(py, &self.driver, at));
                Consumer::OnProducer(kept.transpose()?.flatten())
            }
            _ => match argument.keep(py, &self.driver, at)? {
                Some(named) => {
                    let known = named.works_on(py, &self.driver)?.unwrap_or(named);
                    line = line_of(py, &known)?;
                    if let (KnownStream::Lost(_), Some(alive)) = (&known, argument.alive(at)) {
                        // Later, nobody may ask the stream.
                        captured = Captured::at(&self.driver, alive)?;
                    }
                    Consumer::On(known)
                }
                None => Consumer::Nobody,
            },
        };
        self.replace_consumer(consumer, line);
        self.consumer_side.captured = captured;
        self.note_use(py);
        Ok(())
    }

    /// True only if `argument` names the producer's own default stream, and the array is ready on that stream.
    #[inline]
    pub(crate) fn stays_in_place(&self, argument: &StreamArgument<'_, '_>, at: Place) -> bool {
        let place = self.producer_side.place;
        let stays =
            |stream| self.ready == Ready::On(stream) && self.producer_side.is_on_default(stream);
        at == place && argument.stream_at(place).is_some_and(stays)
    }

    /// Call this only after [`Self::stays_in_place`] returned true.
    #[inline]
    pub(crate) fn keep_in_place(&mut self, py: Python<'_>) {
        self.consumer_side.at = self.producer_side.place;
        self.replace_consumer(Consumer::OnProducer(None), None);
        self.note_use(py);
    }

    /// Records a consumer that named no stream and has not read the view's CAI dict yet.
    #[inline]
    pub(crate) fn set_unread(&mut self, py: Python<'_>, at: Place) {
        self.consumer_side.at = at;
        self.consumer_side.consumer = Consumer::Unread;
        self.note_use(py);
    }

    /// Records the bridge itself as the consumer, on the stream `on`. `kept` is a reference to that stream.
    pub(crate) fn set_worker(
        &mut self,
        py: Python<'_>,
        kept: Option<&KnownStream>,
        on: Alive<'_>,
    ) -> PyResult<()> {
        self.consumer_side.at = on.place();
        let mut line = None;
        let known = if let Some(kept) = kept {
            line = line_of(py, kept)?;
            kept.clone_ref(py)
        } else if let Some(kept) =
            self.producer_side.keeper_of(on.stream()).filter(|kept| kept.is(on))
        {
            // A copy for another GPU is not made on the stream on which the array is ready.
            KnownStream::Kept(kept.clone_ref(py))
        } else {
            let vouched = StreamRef::vouched(py, &self.driver, on.stream(), on.place())?;
            let name = StreamName::of(&self.driver, on)?;
            vouched.map_or(KnownStream::Lost(name), KnownStream::Kept)
        };
        self.replace_consumer(Consumer::On(known), line);
        Ok(())
    }

    /// Records that the end must wait for the stream `known`. Returns `known` if that stream is recorded already.
    pub(crate) fn owe(
        &mut self,
        py: Python<'_>,
        known: KnownStream,
        at: Place,
    ) -> Option<KnownStream> {
        self.consumer_side.at = at;
        let again = self.consumer_side.further.add(known);
        self.note_use(py);
        again
    }

    /// `line` is the source line that named the stream of `next`, and is `Some` only if nothing keeps that stream
    /// alive.
    #[inline]
    pub(super) fn replace_consumer(&mut self, next: Consumer, line: Option<Box<warned::Line>>) {
        let before = std::mem::replace(&mut self.consumer_side.consumer, next);
        (self.consumer_side.line, self.consumer_side.captured) = (line, Captured::No);
        self.put_behind(before);
    }

    #[inline]
    pub(super) fn put_behind(&mut self, before: Consumer) {
        match before {
            Consumer::OnProducer(Some(KnownStream::Kept(legacy))) if legacy.stands_in() => {
                // Keep only the stream's name: while the producer stays on the stream, the end does not need the name.
                let named =
                    self.producer_side.stream.as_ref().map_or(legacy.stream(), StreamRef::stream);
                self.producer_side.put_upstream(KnownStream::Lost(StreamName::unnumbered(named)));
            }
            Consumer::On(known) | Consumer::OnProducer(Some(known)) => {
                self.producer_side.put_upstream(known);
            }
            Consumer::Unnamed(seen) => {
                for known in seen {
                    self.producer_side.put_upstream(known);
                }
            }
            _ => {}
        }
    }

    /// True also for a consumer that has not read the view's CAI dict yet, and for a consumer that passed -1.
    pub(crate) const fn has_consumer(&self) -> bool {
        !matches!(self.consumer_side.consumer, Consumer::Nobody)
    }

    /// Records a read of the view's CAI dict. Returns whether the consumer has read the dict and named no stream.
    pub(crate) fn read(&mut self, py: Python<'_>) -> bool {
        if matches!(self.consumer_side.consumer, Consumer::Nobody | Consumer::Unread) {
            self.consumer_side.consumer = Consumer::Unnamed(Vec::new());
            self.note_use(py);
        }
        matches!(self.consumer_side.consumer, Consumer::Unnamed(_))
    }

    /// Whether `stream` must still be recorded for a consumer that named no stream.
    pub(crate) fn has_to_note(&self, stream: Alive<'_>) -> bool {
        let Consumer::Unnamed(seen) = &self.consumer_side.consumer else { return false };
        let settled = self.producer_side.upstream.is_empty()
            && self.producer_side.is_producer(stream)
            && !self.producer_side.may_change();
        !settled && !seen.iter().any(|known| known.is(stream))
    }

    /// The stream on which the array is ready, if that stream must still be recorded for a consumer that named none.
    /// `None` for a default stream.
    pub(crate) fn ready_to_note(&self, py: Python<'_>, ready: Ready) -> Option<KnownStream> {
        let Consumer::Unnamed(seen) = &self.consumer_side.consumer else { return None };
        let producer_side = &self.producer_side;
        let is_told = |own: &&StreamRef| ready == Ready::On(own.stream());
        let own = || {
            producer_side
                .stream
                .as_ref()
                .filter(|_| !producer_side.upstream.is_empty())
                .filter(is_told)
        };
        let kept = producer_side.ready_on.as_ref().or_else(own);
        let kept = kept.filter(|kept| matches!(kept.stream(), Stream::Handle(_)))?;
        let is_noted = |known: &KnownStream| known.kept().is_some_and(|known| known.is_same(kept));
        (!seen.iter().any(is_noted)).then(|| KnownStream::Kept(kept.clone_stream(py)))
    }

    /// Records `known` for a consumer that named no stream. Returns `known` if nothing was recorded.
    pub(crate) fn note(&mut self, py: Python<'_>, known: KnownStream) -> Option<KnownStream> {
        let Consumer::Unnamed(seen) = &mut self.consumer_side.consumer else { return Some(known) };
        let left = known.add_to(seen);
        if left.is_none() {
            self.note_use(py);
        }
        left
    }

    pub(crate) fn place_readers(&mut self, at: Place) {
        let is_named =
            matches!(self.consumer_side.consumer, Consumer::On(_) | Consumer::OnProducer(_));
        if !is_named {
            self.consumer_side.at = at;
            if self.conversion.is_some() {
                self.note_place();
            }
        }
    }
}

fn line_of(py: Python<'_>, known: &KnownStream) -> PyResult<Option<Box<warned::Line>>> {
    match known {
        KnownStream::Kept(_) => Ok(None),
        KnownStream::Lost(_) => Ok(warned::here(py)?.map(Box::new)),
    }
}
