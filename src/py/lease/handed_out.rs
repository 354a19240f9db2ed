//! Memory that is handed out: its entry in the table of [known memory](known_memory), and what an import takes over
//! from the entry when the memory comes back.

use pyo3::prelude::*;

use super::consumer_side::{Captured, Consumer};
use super::held_memory::HeldMemory;
use super::known_memory::{self, KnownMemory};
use crate::descriptor::Descriptor;
use crate::py::streams::{KnownStream, StreamRef};
use crate::stream::{Alive, Stream};

impl HeldMemory {
    /// Adds the memory of `array` to the table of known memory, in place of this holder's earlier entry.
    pub(crate) fn register(&mut self, py: Python<'_>, array: &Descriptor) {
        self.known = None;
        self.known = self.known_as(py, array, None);
    }

    /// Like [`Self::register`], for a capsule, which names no stream. Also records the stream on which the array is
    /// ready, unless it is the legacy default stream of the consumer's place.
    pub(crate) fn register_in_capsule(&mut self, py: Python<'_>, array: &Descriptor) {
        self.known = None;
        let clone = |kept: &StreamRef| kept.clone_ref(py);
        let kept = match &self.consumer_side.consumer {
            Consumer::On(KnownStream::Kept(kept)) => {
                let is_plain = self.consumer_side.captured == Captured::No
                    && !self.producer_side.ready_on.as_ref().is_some_and(StreamRef::waits_again);
                let own = if is_plain { kept.clone_ref(py) } else { self.in_capture(py, kept) };
                Some(KnownStream::Kept(own))
            }
            Consumer::On(lost) => Some(lost.clone_ref(py)),
            Consumer::OnProducer(_) => {
                self.producer_side.stream.as_ref().map(clone).map(KnownStream::Kept)
            }
            // A consumer that passed -1 leaves the array ready on the same stream as before.
            Consumer::Declined => self.ready.stream().and_then(|ready| {
                let default = || Alive::default_stream(ready, self.producer_side.place);
                let kept = self.producer_side.keeper_of(ready).map(clone);
                let kept = kept.or_else(|| default().and_then(StreamRef::of_default));
                kept.map(KnownStream::Kept)
            }),
            _ => None,
        };
        // A missing stream means the legacy default stream of the consumer's place, so do not record that stream.
        let at = self.consumer_side.at;
        let is_legacy = |known: &KnownStream| {
            known.kept().is_some_and(|kept| kept.is_default(Stream::Legacy, at))
        };
        self.known = self.known_as(py, array, kept.filter(|known| !is_legacy(known)));
    }

    /// The consumer's stream `kept`, with what it must wait for again outside a graph.
    #[cold]
    fn in_capture(&self, py: Python<'_>, kept: &StreamRef) -> StreamRef {
        let own = self.producer_side.ready_again_on(py, kept.clone_ref(py));
        self.consumer_side.captured.keep(own, || self.waited_for(py))
    }

    pub(crate) fn register_whole(&mut self, py: Python<'_>) {
        self.known = None;
        self.known = self.known_as(py, &self.array, None);
    }

    #[inline]
    fn known_as(
        &self,
        py: Python<'_>,
        array: &Descriptor,
        ready_on: Option<KnownStream>,
    ) -> Option<KnownMemory> {
        let holder = std::ptr::from_ref(self).addr();
        (array.ptr() != 0)
            .then(|| KnownMemory::new(py, array, &self.producer_side, ready_on, holder))
    }

    /// `context` is the `manager_ctx` of the array's managed tensor. If the bridge made that tensor, this function
    /// takes over the producer's side of the tensor's lease. If another library made the tensor, this function adds the
    /// producers' streams of known leases at the same address. Does nothing if `array.ptr()` is 0 or the producer's
    /// stream is set.
    pub(crate) fn adopt_producer_side(&mut self, py: Python<'_>, context: usize) {
        drop(self.adopt_from_capsule(py, context));
    }

    /// Like [`Self::adopt_producer_side`]. Returns the stream that [`Self::register_in_capsule`] recorded, if any.
    pub(crate) fn adopt_from_capsule(
        &mut self,
        py: Python<'_>,
        context: usize,
    ) -> Option<KnownStream> {
        if self.producer_side.stream.is_some() {
            return None;
        }
        match known_memory::from(py, &self.array, self.producer_side.place, context) {
            Some(known_memory::From::Ours(producer_side, ready_on)) => {
                let own = std::mem::replace(&mut self.producer_side, producer_side);
                self.producer_side.ready_on = own.ready_on;
                return ready_on;
            }
            // Another library made the tensor, and may free the memory without the bridge.
            Some(known_memory::From::Same(streams)) => {
                for kept in streams {
                    self.producer_side.put_upstream(kept);
                }
            }
            None => {}
        }
        None
    }

    pub(super) fn find_users(&mut self) {
        if let Some(known) = &self.known
            && known.may_have_later()
        {
            for kept in known.take_later() {
                self.consumer_side.further.add(kept);
            }
        }
    }
}
