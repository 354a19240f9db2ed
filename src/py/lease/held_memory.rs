//! Held memory: the references that keep the memory alive, and the streams of its producer and its consumers. A managed
//! tensor has no reference count, so the holders of one tensor share the tensor through an `Arc`.

use dlpark::python::ImportedDlpack;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::consumer_side::{Captured, Consumer, ConsumerSide};
use super::conversion::ConversionMember;
use super::generation;
use super::known_memory::KnownMemory;
use super::producer_side::{ProducerSide, Readiness};
use super::tensor::{HeldTensor, Unconsumed};
use crate::buffer::Buffer;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::dlpack::encode::Boxed;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::lease::Failure;
use crate::py::observe::{By, EndTag, EndedBy};
use crate::py::streams::{KnownStream, StreamRef, Unnamed};
use crate::stream::{Alive, Ready, Stream};

#[derive(Debug)]
pub(crate) struct HeldMemory {
    /// [`Descriptor::EMPTY`] in a new holder, and after [`Self::take_array`].
    pub(crate) array: Descriptor,
    /// What consumers are told about pending work on the array.
    pub(crate) ready: Ready,
    pub(crate) by: By,
    pub(crate) is_read: bool,
    pub(super) owner: MemoryOwner,
    pub(crate) driver: Handle,
    /// A forked child makes no order and runs no deleter: the CUDA driver does not survive a fork.
    pub(crate) process: Process,
    pub(crate) producer_side: ProducerSide,
    pub(super) consumer_side: ConsumerSide,
    pub(super) conversion: Option<Box<ConversionMember>>,
    pub(crate) tag: EndTag,
    pub(super) generation: u32,
    pub(super) known: Option<KnownMemory>,
}

#[derive(Debug)]
pub(super) enum MemoryOwner {
    /// The producer's object, and the managed tensor if there is one. The object is Python's `None` if only a tensor
    /// was imported.
    Array(Py<PyAny>, HeldTensor),
    Copy(Box<Copied>),
}

#[derive(Debug)]
pub(super) struct Copied {
    pub(super) buffer: Buffer,
    /// The array that was copied. It keeps the copy's context alive. `None` if the context is a primary one, or if host
    /// memory was copied.
    _context: Option<Box<MemoryGuard>>,
}

impl HeldMemory {
    /// The caller must set the descriptor, the place and the streams afterwards.
    #[inline(always)]
    pub(crate) fn array(
        object: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        driver: Handle,
        by: By,
    ) -> Box<Self> {
        let managed = managed.map_or(HeldTensor::None, HeldTensor::Sole);
        Self::new(MemoryOwner::Array(object, managed), driver, by)
    }

    #[inline(always)]
    pub(crate) const fn set_place(&mut self, place: Place) {
        (self.producer_side.place, self.consumer_side.at) = (place, place);
    }

    pub(crate) const fn consumer_place(&self) -> Place {
        self.consumer_side.at
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, managed: ImportedDlpack) {
        if let MemoryOwner::Array(_, tensor) = &mut self.owner {
            *tensor = HeldTensor::Sole(managed);
        }
    }

    /// Keeps the typestr and `descr` of an array that DLPack cannot express, in place of a managed tensor.
    pub(crate) fn keep_words(&mut self, words: Py<PyDict>) {
        if let MemoryOwner::Array(_, tensor) = &mut self.owner {
            *tensor = HeldTensor::Words(words);
        }
    }

    pub(crate) const fn words(&self) -> Option<&Py<PyDict>> {
        match &self.owner {
            MemoryOwner::Array(_, HeldTensor::Words(words)) => Some(words),
            _ => None,
        }
    }

    pub(crate) fn take_later(&mut self, py: Python<'_>) -> Option<Unconsumed> {
        let MemoryOwner::Array(object, tensor) = &mut self.owner else { return None };
        let capsule = object.bind(py).cast::<PyCapsule>().ok()?.clone().unbind();
        let (later, unconsumed) = HeldTensor::in_capsule(capsule);
        *tensor = later;
        Some(unconsumed)
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(&self.owner, MemoryOwner::Array(_, tensor) if tensor.is_lost())
    }

    /// The end frees `buffer` in stream order on `producer`, if that stream is still alive. `context` keeps a context
    /// alive that is not a primary one.
    pub(crate) fn copy(
        buffer: Buffer,
        driver: &Handle,
        place: Place,
        producer: StreamRef,
        context: Option<Box<MemoryGuard>>,
    ) -> Box<Self> {
        let ptr = buffer.ptr();
        let owner = MemoryOwner::Copy(Box::new(Copied { buffer, _context: context }));
        let mut copy = Self::new(owner, driver.clone(), By::View);
        copy.set_place(place);
        copy.producer_side.stream = Some(producer);
        copy.tag = EndTag { by: EndedBy::Copy, ptr };
        copy
    }

    #[inline(always)]
    fn new(owner: MemoryOwner, driver: Handle, by: By) -> Box<Self> {
        let nowhere = Place::gpu(0);
        Box::write(
            Box::new_uninit(),
            Self {
                array: Descriptor::EMPTY,
                ready: Ready::Nothing,
                by,
                is_read: false,
                owner,
                driver,
                process: Process::current(),
                producer_side: ProducerSide::at(nowhere),
                consumer_side: ConsumerSide::nobody(nowhere),
                conversion: None,
                tag: EndTag { by: EndedBy::Call, ptr: 0 },
                generation: generation::now(),
                known: None,
            },
        )
    }

    #[inline(always)]
    pub(crate) const fn take_array(&mut self, end: EndedBy) -> Descriptor {
        self.tag = EndTag { by: end, ptr: self.array.ptr() };
        std::mem::replace(&mut self.array, Descriptor::EMPTY)
    }

    /// Returns another holder of the same memory, without a consumer. Fails for a copy, and in a forked child.
    pub(crate) fn share(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let mut shared = self.sharing(py, Consumer::Nobody)?;
        shared.put_behind(self.consumer_side.consumer.clone_ref(py));
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    /// Like [`Self::share`], but keeps the consumer. A consumer that is `Unnamed` or `Declined` becomes `Unread`.
    pub(crate) fn share_with_consumer(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let mut shared = self.sharing(py, self.consumer_side.consumer.clone_ref(py))?;
        shared.consumer_side.line.clone_from(&self.consumer_side.line);
        if let Consumer::Unnamed(_) | Consumer::Declined = shared.consumer_side.consumer {
            shared.replace_consumer(Consumer::Unread, None);
        }
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    pub(super) fn share_owner(&mut self, py: Python<'_>) -> Result<MemoryOwner> {
        self.process.check()?;
        match &mut self.owner {
            MemoryOwner::Array(object, managed) => {
                Ok(MemoryOwner::Array(object.clone_ref(py), managed.share(py)))
            }
            // A copy has only one holder.
            MemoryOwner::Copy(_) => Err(Error::new(Kind::Released, "a copy's memory")),
        }
    }

    #[inline]
    fn sharing(&mut self, py: Python<'_>, consumer: Consumer) -> Result<Box<Self>> {
        let owner = self.share_owner(py)?;
        Ok(Box::write(
            Box::new_uninit(),
            Self {
                array: Descriptor::EMPTY,
                ready: self.ready,
                by: By::View,
                is_read: false,
                owner,
                driver: self.driver.clone(),
                process: self.process,
                producer_side: self.producer_side.clone_ref(py),
                consumer_side: ConsumerSide {
                    consumer,
                    captured: self.consumer_side.captured,
                    ..ConsumerSide::nobody(self.consumer_side.at)
                },
                conversion: None,
                tag: EndTag { by: EndedBy::Call, ..self.tag },
                generation: generation::now(),
                known: None,
            },
        ))
    }

    /// Set the descriptor before: an array without memory has no pending work.
    #[inline(always)]
    pub(crate) fn produced(&mut self, Readiness { told, producer, ready_on }: Readiness) {
        self.ready = self.array.pending(told);
        self.producer_side.stream = producer;
        self.producer_side.ready_on = ready_on;
    }

    #[inline]
    pub(crate) fn keep_unnamed(&mut self, unnamed: Option<Unnamed>) {
        self.producer_side.unnamed = unnamed;
    }

    /// Sets `self.ready` to `ready`. But if `ready` is not a stream, and the producer's dict named no stream, asks the
    /// producer again. If the dict names a stream now, that stream becomes `self.ready` and the producer's stream.
    #[inline]
    pub(crate) fn ready_by_now(&mut self, py: Python<'_>, ready: Ready) -> PyResult<()> {
        self.ready = ready;
        if !matches!(ready, Ready::On(_))
            && let Some(stream) = self.producer_side.ask_unnamed(py, &self.driver)?
        {
            self.ready = Ready::On(stream);
        }
        Ok(())
    }

    /// Pass `None` if the array is ready on the producer's own stream, or on a default stream at the producer's place.
    #[inline(always)]
    pub(crate) fn keep_ready_on(&mut self, kept: Option<StreamRef>) {
        self.producer_side.ready_on = kept;
    }

    pub(crate) fn ready_for_consumer(&mut self, py: Python<'_>) {
        if self.producer_side.ready_on.as_ref().is_some_and(StreamRef::waits_again) {
            return self.still_ready_for_consumer(py);
        }
        self.producer_side.ready_on = match &self.consumer_side.consumer {
            Consumer::On(KnownStream::Kept(kept)) => Some(kept.clone_ref(py)),
            Consumer::OnProducer(Some(KnownStream::Kept(kept))) if !kept.stands_in() => {
                Some(kept.clone_ref(py))
            }
            Consumer::OnProducer(Some(_)) => {
                self.producer_side.stream.as_ref().map(|kept| kept.clone_ref(py))
            }
            _ => None,
        };
    }

    /// What the consumer's stream must wait for again, it must wait for still, if it is the stream of before.
    #[cold]
    fn still_ready_for_consumer(&mut self, py: Python<'_>) {
        let before = self.producer_side.ready_on.take();
        self.ready_for_consumer(py);
        let own = self.producer_side.ready_on.take();
        self.producer_side.ready_on = match before {
            Some(before) => own.map(|own| own.waits_like(py, &before)),
            None => own,
        };
    }

    /// The stream that a consumer waits for. Call this before the consumer is recorded. `None` if nothing is pending.
    pub(crate) fn waited_for(&self, py: Python<'_>) -> Option<StreamRef> {
        let side = &self.producer_side;
        match self.ready {
            Ready::Nothing => None,
            Ready::Unsaid => Some(StreamRef::standing_in(side.place)),
            Ready::On(stream) => match side.keeper_of(stream) {
                Some(kept) => Some(kept.clone_ref(py)),
                None => Alive::default_stream(stream, side.place).and_then(StreamRef::of_default),
            },
        }
    }

    /// Call this after the consumer is recorded. If the array is ready on the consumer's stream now, `waited_for` is
    /// what that stream must wait for again outside the graph.
    pub(crate) fn captured(
        &mut self,
        captured: Captured,
        waited_for: impl IntoIterator<Item = StreamRef>,
    ) {
        // That no wait was made says less than the number of the capture.
        if captured != Captured::Unsaid || self.consumer_side.captured == Captured::No {
            self.consumer_side.captured = captured;
        }
        for waited_for in waited_for {
            let own = self.producer_side.ready_on.take();
            self.producer_side.ready_on = own.map(|own| captured.keep(own, || Some(waited_for)));
        }
    }

    /// Whether the array is ready on a stream that waited in a graph alone, and that nothing keeps: nobody can make it
    /// wait again.
    #[inline]
    pub(crate) const fn is_ready_in_graph(&self, ready: Ready) -> bool {
        !matches!(self.consumer_side.captured, Captured::No)
            && self.producer_side.ready_on.is_none()
            && matches!(ready, Ready::On(Stream::Handle(_)))
    }

    pub(crate) fn place_of_ready(&self, ready: Stream) -> Option<Place> {
        let named = matches!(ready, Stream::Handle(_)).then_some(self.consumer_side.at);
        self.producer_side.keeper_of(ready).map(StreamRef::place).or(named)
    }

    #[inline(always)]
    pub(crate) fn confirm_ready(
        &self,
        py: Python<'_>,
        ready: Stream,
    ) -> Result<Option<Ready<Alive<'_>>>, Failure<PyErr>> {
        self.producer_side.confirm_ready(py, &self.driver, ready)
    }

    pub(crate) fn also_ready(&self, py: Python<'_>) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        self.producer_side.also_ready(py, &self.driver)
    }

    /// If the producer's stream is not known to be alive, returns the legacy default stream of the producer's place.
    pub(crate) fn producer(&self, py: Python<'_>) -> Result<Alive<'_>, Failure<PyErr>> {
        let known = self.producer_side.stream.as_ref();
        let known = known.map(|producer| producer.confirm(py, &self.driver)).transpose()?;
        Ok(known.flatten().unwrap_or(Alive::standing_in(self.producer_side.place)))
    }

    pub(crate) const fn is_by_object(&self) -> bool {
        matches!(self.owner, MemoryOwner::Array(_, HeldTensor::None | HeldTensor::Words(_)))
    }

    /// Python's `None` if only a managed tensor was imported. Rust's `None` for a copy.
    pub(crate) fn object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.owner {
            MemoryOwner::Array(object, _) => Some(object.clone_ref(py)),
            MemoryOwner::Copy(_) => None,
        }
    }

    pub(crate) fn lend(&mut self, py: Python<'_>, at: Place) {
        self.consumer_side.lent = Some(at);
        self.note_use(py);
    }

    pub(crate) const fn collected(&mut self) {
        self.tag.by = EndedBy::Collected;
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let MemoryOwner::Array(object, _) = &self.owner {
            visit.call(object)?;
        }
        self.producer_side.visit(visit)?;
        self.consumer_side.visit(visit)
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if !self.process.is_current()
            && let MemoryOwner::Array(_, managed) = &mut self.owner
        {
            std::mem::forget(std::mem::replace(managed, HeldTensor::None));
        }
    }
}

/// Held memory that is given back when this guard is dropped.
#[derive(Debug)]
pub(crate) struct MemoryGuard(pub(super) Option<Box<HeldMemory>>);

impl Boxed for MemoryGuard {
    type Inner = HeldMemory;

    fn into_box(mut self) -> Option<Box<HeldMemory>> {
        self.0.take()
    }

    fn of_box(inner: Box<HeldMemory>) -> Self {
        Self::new(inner)
    }
}

impl MemoryGuard {
    pub(crate) const fn new(memory: Box<HeldMemory>) -> Self {
        Self(Some(memory))
    }

    pub(crate) fn memory_mut(&mut self) -> Option<&mut HeldMemory> {
        self.0.as_deref_mut()
    }

    pub(crate) fn memory(&self) -> Option<&HeldMemory> {
        self.0.as_deref()
    }
}
