//! What holds memory: the references that go at its end, and whose streams that end is between. The orders of
//! the end are [`super::end`]'s.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is right. The
//! managed tensor of a DLPack producer has no reference count; it is shared from the second holder on.

use dlpark::python::ImportedDlpack;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::conversion::Member;
use super::generation;
use super::home::Home;
use super::known::{self, Known};
use super::tensor::{Tensor, Unconsumed};
use super::used::{Consumer, Use};
use crate::buffer::Buffer;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::dlpack::encode::Boxed;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::lease::Failure;
use crate::py::observe::{By, End};
use crate::py::streams::{KnownStream, StreamRef, Unnamed};
use crate::stream::{Alive, Ready, Stream};

/// An array that was taken in: what keeps its memory, and how that goes back.
#[derive(Debug)]
pub(crate) struct Holding {
    /// What it is, until a view has that.
    pub(crate) array: Descriptor,
    /// What its consumers are told of the work that is pending on it.
    pub(crate) ready: Ready,
    /// By which way it came.
    pub(crate) by: By,
    /// Whether its dict was read.
    pub(crate) is_read: bool,
    pub(super) held: Owner,
    pub(crate) driver: Handle,
    /// The process that owns the memory. A fork gives nothing back, since the driver does not survive a fork,
    /// and calls no deleters: they may call that driver.
    pub(crate) process: Process,
    /// Where it goes back to.
    pub(crate) home: Home,
    /// Who works on it.
    pub(super) used: Use,
    /// The conversion that it comes from, for a call that has to know who is left at its end.
    pub(super) conversion: Option<Box<Member>>,
    /// How this ends by default, and the array's address.
    pub(crate) tag: (End, u64),
    pub(super) generation: u32,
    /// Where the memory is known again, once it is handed out.
    pub(super) known: Option<Known>,
}

/// What is held.
#[derive(Debug)]
pub(super) enum Owner {
    /// A producer's array: the object, and its managed tensor.
    Array(Py<PyAny>, Tensor),
    /// A copy of ours.
    Copy(Box<Copied>),
}

/// A copy of ours.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) buffer: Buffer,
    /// What keeps its context alive, where that is not a primary one.
    _context: Option<Box<Tenant>>,
}

impl Holding {
    /// An array of a producer's, by its object and its managed tensor, which came by that way. What it is, where its
    /// streams are and whose they are is the caller's to say.
    #[inline(always)]
    pub(crate) fn array(
        object: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        driver: Handle,
        by: By,
    ) -> Box<Self> {
        let managed = managed.map_or(Tensor::None, Tensor::Sole);
        Self::new(Owner::Array(object, managed), driver, by)
    }

    /// The streams of both sides are at `place`, as far as the consumer's is not known.
    #[inline(always)]
    pub(crate) const fn set_place(&mut self, place: Place) {
        (self.home.place, self.used.at) = (place, place);
    }

    /// Where its consumer works.
    pub(crate) const fn consumer_place(&self) -> Place {
        self.used.at
    }

    /// Holds the producer's managed tensor as well.
    #[inline(always)]
    pub(crate) fn take(&mut self, managed: ImportedDlpack) {
        if let Owner::Array(_, tensor) = &mut self.held {
            *tensor = Tensor::Sole(managed);
        }
    }

    /// Keeps what a dict says of items that DLPack has no word for.
    pub(crate) fn keep_words(&mut self, words: Py<PyDict>) {
        if let Owner::Array(_, tensor) = &mut self.held {
            *tensor = Tensor::Words(words);
        }
    }

    /// The dict's words, if DLPack has none for the items.
    pub(crate) const fn words(&self) -> Option<&Py<PyDict>> {
        match &self.held {
            Owner::Array(_, Tensor::Words(words)) => Some(words),
            _ => None,
        }
    }

    /// The same where that tensor is in its capsule, which is the object, until it is consumed.
    pub(crate) fn take_later(&mut self, py: Python<'_>) -> Option<Unconsumed> {
        let Owner::Array(object, tensor) = &mut self.held else { return None };
        let capsule = object.bind(py).cast::<PyCapsule>().ok()?.clone().unbind();
        let (later, unconsumed) = Tensor::in_capsule(capsule);
        *tensor = later;
        Some(unconsumed)
    }

    /// Whether a refusal left the tensor in its capsule: the memory is not held any more.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(&self.held, Owner::Array(_, tensor) if tensor.is_lost())
    }

    /// A copy of ours in `buffer`, which is freed on `producer`; `context` as in [`Copied`].
    pub(crate) fn copy(
        buffer: Buffer,
        driver: &Handle,
        place: Place,
        producer: StreamRef,
        context: Option<Box<Tenant>>,
    ) -> Box<Self> {
        let ptr = buffer.ptr();
        let held = Owner::Copy(Box::new(Copied { buffer, _context: context }));
        let mut copy = Self::new(held, driver.clone(), By::View);
        copy.set_place(place);
        copy.home.producer = Some(producer);
        copy.tag = (End::Copy, ptr);
        copy
    }

    /// In a box from the start: it is moved from hand to hand, and larger than what else an array is.
    #[inline(always)]
    fn new(held: Owner, driver: Handle, by: By) -> Box<Self> {
        let nowhere = Place::gpu(0);
        Box::write(
            Box::new_uninit(),
            Self {
                array: Descriptor::EMPTY,
                ready: Ready::Nothing,
                by,
                is_read: false,
                held,
                driver,
                process: Process::current(),
                home: Home::at(nowhere),
                used: Use::nobody(nowhere),
                conversion: None,
                tag: (End::Call, 0),
                generation: generation::now(),
                known: None,
            },
        )
    }

    /// What it is, for its next owner. Its end is by `end`, unless another comes first.
    #[inline(always)]
    pub(crate) const fn take_array(&mut self, end: End) -> Descriptor {
        self.tag = (end, self.array.ptr());
        std::mem::replace(&mut self.array, Descriptor::EMPTY)
    }

    /// Another holder of the same, which has no consumer yet. Refused in a fork of the process whose memory
    /// it is.
    pub(crate) fn share(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let mut shared = self.sharing(py, Consumer::Nobody)?;
        shared.put_behind(self.used.consumer.clone_ref(py));
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    /// The same for the consumer that this is for, until another is named.
    pub(crate) fn share_with_consumer(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let mut shared = self.sharing(py, self.used.consumer.clone_ref(py))?;
        shared.used.line.clone_from(&self.used.line);
        // What one consumer declined is another's to have.
        if let Consumer::Unnamed(_) | Consumer::Declined = shared.used.consumer {
            shared.hand_on(Consumer::Unread, None);
        }
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    pub(super) fn share_owner(&mut self, py: Python<'_>) -> Result<Owner> {
        self.process.check()?;
        match &mut self.held {
            Owner::Array(object, managed) => {
                Ok(Owner::Array(object.clone_ref(py), managed.share(py)))
            }
            // A copy has one holder: a view of it is made only by the tensor that it is in.
            Owner::Copy(_) => Err(Error::new(Kind::Released, "a copy's memory")),
        }
    }

    /// Another holder between the same streams, for that consumer.
    #[inline]
    fn sharing(&mut self, py: Python<'_>, consumer: Consumer) -> Result<Box<Self>> {
        let shared = Self {
            array: Descriptor::EMPTY,
            ready: self.ready,
            by: By::View,
            is_read: false,
            held: self.share_owner(py)?,
            driver: self.driver.clone(),
            process: self.process,
            home: self.home.clone_ref(py),
            used: Use { consumer, ..Use::nobody(self.used.at) },
            conversion: None,
            tag: (End::Call, self.tag.1),
            generation: generation::now(),
            known: None,
        };
        Ok(Box::write(Box::new_uninit(), shared))
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
        self.home.producer = producer;
        self.home.ready_on = kept;
    }

    /// The producer's dict named no stream, and may name one later.
    #[inline]
    pub(crate) fn keep_unnamed(&mut self, unnamed: Option<Unnamed>) {
        self.home.unnamed = unnamed;
    }

    /// For a hand-over: where the array was `ready` at its import, or on the stream that its producer names by now, which
    /// named none then.
    #[inline]
    pub(crate) fn ready_by_now(&mut self, py: Python<'_>, ready: Ready) -> PyResult<()> {
        self.ready = ready;
        if !matches!(ready, Ready::On(_))
            && let Some(stream) = self.home.ask_unnamed(py, &self.driver)?
        {
            self.ready = Ready::On(stream);
        }
        Ok(())
    }

    /// What is to be waited for where the array is ready; `None` where that is the producer's own stream, or
    /// a default one at its place.
    #[inline(always)]
    pub(crate) fn keep_ready_on(&mut self, kept: Option<StreamRef>) {
        self.home.ready_on = kept;
    }

    /// The array is ready on its consumer's stream: its work is there, wherever the producer goes.
    pub(crate) fn ready_for_consumer(&mut self, py: Python<'_>) {
        self.home.ready_on = match &self.used.consumer {
            Consumer::On(KnownStream::Kept(kept)) => Some(kept.clone_ref(py)),
            Consumer::OnProducer(Some(KnownStream::Kept(kept))) if !kept.stands_in() => {
                Some(kept.clone_ref(py))
            }
            Consumer::OnProducer(Some(_)) => {
                self.home.producer.as_ref().map(|kept| kept.clone_ref(py))
            }
            _ => None,
        };
    }

    /// Where the stream that the array is ready on is, where it is kept; else where the consumer works, who has named its
    /// handle.
    pub(crate) fn place_of_ready(&self, ready: Stream) -> Option<Place> {
        let named = matches!(ready, Stream::Handle(_)).then_some(self.used.at);
        self.home.keeper_of(ready).map(StreamRef::place).or(named)
    }

    /// What has become of the stream `ready` of the array.
    #[inline(always)]
    pub(crate) fn confirm_ready(
        &self,
        py: Python<'_>,
        ready: Stream,
    ) -> Result<Option<Ready<Alive<'_>>>, Failure<PyErr>> {
        self.home.confirm_ready(py, &self.driver, ready)
    }

    /// The stream that the producer names now besides the one that it named first, where the array is ready on its own.
    pub(crate) fn also_ready(&self, py: Python<'_>) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        self.home.also_ready(py, &self.driver)
    }

    /// The stream that the producer works on, or the legacy one, which stands in for it.
    pub(crate) fn producer(&self, py: Python<'_>) -> Result<Alive<'_>, Failure<PyErr>> {
        let known = self.home.producer.as_ref();
        let known = known.map(|producer| producer.confirm(py, &self.driver)).transpose()?;
        Ok(known.flatten().unwrap_or(Alive::standing_in(self.home.place)))
    }

    /// Whether nothing but a Python object keeps the memory, which the garbage collector may take apart.
    pub(crate) const fn is_by_object(&self) -> bool {
        matches!(self.held, Owner::Array(_, Tensor::None | Tensor::Words(_)))
    }

    /// The producer's object.
    pub(crate) fn object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.held {
            Owner::Array(object, _) => Some(object.clone_ref(py)),
            Owner::Copy(_) => None,
        }
    }

    /// The memory of `array` goes to others, who may come back with it.
    pub(crate) fn hand_out(&mut self, py: Python<'_>, array: &Descriptor) {
        self.known = None;
        self.known = self.known_as(py, array, None);
    }

    /// The same in a capsule, for the consumer that it is for now. It says nothing of the stream that it is ready on.
    pub(crate) fn hand_out_in_capsule(&mut self, py: Python<'_>, array: &Descriptor) {
        self.known = None;
        let clone = |kept: &StreamRef| kept.clone_ref(py);
        let kept = match &self.used.consumer {
            Consumer::On(known) => known.kept().map(clone),
            Consumer::OnProducer(_) => self.home.producer.as_ref().map(clone),
            // Nothing was ordered for it.
            Consumer::Declined => self.ready.stream().and_then(|ready| {
                let default = || Alive::default_stream(ready, self.home.place);
                let kept = self.home.keeper_of(ready).map(clone);
                kept.or_else(|| default().and_then(StreamRef::of_default))
            }),
            _ => None,
        };
        // Without a word it is taken for ready on that of the GPU that it is handed out on.
        let kept = kept.filter(|kept| !kept.is_default(Stream::Legacy, self.used.at));
        self.known = self.known_as(py, array, kept.map(KnownStream::Kept));
    }

    /// The same of what it is itself, which goes in no tensor of ours.
    pub(crate) fn hand_out_whole(&mut self, py: Python<'_>) {
        self.known = None;
        self.known = self.known_as(py, &self.array, None);
    }

    #[inline]
    fn known_as(
        &self,
        py: Python<'_>,
        array: &Descriptor,
        ready_on: Option<KnownStream>,
    ) -> Option<Known> {
        let holder = std::ptr::from_ref(self).addr();
        (array.ptr() != 0).then(|| Known::new(py, array, (&self.home, ready_on), holder))
    }

    /// The memory came in a tensor of that `manager_ctx`, without a word of the producer's stream. It goes back to where a
    /// lease of ours has it from, if it is some of that. Returns what keeps the stream that our own capsule is ready on,
    /// where that is not the legacy default one.
    pub(crate) fn find_home(&mut self, py: Python<'_>, context: usize) -> Option<StreamRef> {
        if self.home.producer.is_some() {
            return None;
        }
        match known::from(py, (&self.array, self.home.place), context) {
            Some(known::From::Ours(home, ready_on)) => {
                let own = std::mem::replace(&mut self.home, home);
                self.home.ready_on = own.ready_on;
                if let Some(KnownStream::Kept(kept)) = ready_on {
                    return Some(kept);
                }
            }
            // The maker of that tensor may free its memory by itself, so it is kept until the work is done.
            Some(known::From::Same(streams)) => {
                for kept in streams {
                    self.home.put_upstream(kept);
                }
            }
            None => {}
        }
        None
    }

    /// Where others go on with the memory is known from here on.
    pub(super) fn find_users(&mut self) {
        if let Some(known) = &self.known
            && known.may_have_later()
        {
            for kept in known.take_later() {
                self.used.also.add(kept);
            }
        }
    }

    /// Lends the array to a borrower by the exchange API, which works at `at`.
    pub(crate) fn lend(&mut self, py: Python<'_>, at: Place) {
        self.used.lent = Some(at);
        self.note_use(py);
    }

    /// It ends in the hands of the garbage collector.
    pub(crate) const fn collected(&mut self) {
        self.tag.0 = End::Collected;
    }

    /// Shows the garbage collector what is held.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Owner::Array(object, _) = &self.held {
            visit.call(object)?;
        }
        self.home.visit(visit)?;
        self.used.consumer.visit(visit)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !self.process.is_current()
            && let Owner::Array(_, managed) = &mut self.held
        {
            std::mem::forget(std::mem::replace(managed, Tensor::None));
        }
    }
}

/// Who holds memory, and gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Tenant(pub(super) Option<Box<Holding>>);

impl Boxed for Tenant {
    type Inner = Holding;

    fn into_box(mut self) -> Option<Box<Holding>> {
        self.0.take()
    }

    fn of_box(inner: Box<Holding>) -> Self {
        Self::new(inner)
    }
}

impl Tenant {
    /// Holds `holding`.
    pub(crate) const fn new(holding: Box<Holding>) -> Self {
        Self(Some(holding))
    }

    /// What it holds.
    pub(crate) fn holding(&mut self) -> Option<&mut Holding> {
        self.0.as_deref_mut()
    }

    /// The same to look at.
    pub(crate) fn look(&self) -> Option<&Holding> {
        self.0.as_deref()
    }
}
