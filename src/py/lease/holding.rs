//! What holds memory: the references that go at its end, and whose streams that end is between. The orders of
//! the end are [`super::settle`]'s.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is right. The
//! managed tensor of a DLPack producer has no reference count; it is shared from the second holder on.

use dlpark::python::ImportedDlpack;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::consumer::Consumer;
use super::conversion::Member;
use super::generation;
use super::ready_on::ReadyOn;
use super::tensor::{Tensor, Unconsumed};
use crate::buffer::Buffer;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::py::observe::{By, End};
use crate::py::streams::{KeepAlive, StreamRef};
use crate::stream::Ready;

/// An array that was taken in: what keeps its memory, and how that goes back.
#[derive(Debug)]
pub(crate) struct Holding {
    /// What it is, until a view has that.
    pub(crate) array: Descriptor,
    /// What its consumers are told of the work that is pending on it.
    pub(crate) ready: Ready,
    /// By which way it came.
    pub(crate) by: By,
    /// Whether somebody has read its dict.
    pub(crate) is_read: bool,
    pub(super) held: Owner,
    pub(crate) driver: Handle,
    /// The process that owns the memory. A fork gives nothing back, since the driver does not survive a fork,
    /// and calls no deleters: they may call that driver.
    pub(crate) process: Process,
    /// Where the producer's streams are.
    pub(crate) place: Place,
    /// The producer's stream; `None` if it is unknown or not kept.
    pub(super) producer: Option<StreamRef>,
    /// Streams that wait at the end as well as the producer's: those that callers declared, and for a view of a
    /// view those of the consumers of the views between.
    pub(super) upstream: Vec<KeepAlive>,
    pub(super) ready_on: ReadyOn,
    /// Where the consumer's streams are.
    pub(super) at: Place,
    pub(super) consumer: Consumer,
    /// Where the exchange API lent the array; its borrowers work on the legacy default stream there.
    pub(super) lent: Option<Place>,
    /// The conversion that it comes from, for a call that has to know who is left at its end.
    pub(super) conversion: Option<Box<Member>>,
    /// How this ends by default, and the array's address.
    pub(crate) tag: (End, u64),
    pub(super) generation: u32,
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
        (self.place, self.at) = (place, place);
    }

    /// Holds the producer's managed tensor as well.
    #[inline(always)]
    pub(crate) fn take(&mut self, managed: ImportedDlpack) {
        if let Owner::Array(_, tensor) = &mut self.held {
            *tensor = Tensor::Sole(managed);
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
        copy.producer = Some(producer);
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
                place: nowhere,
                producer: None,
                upstream: Vec::new(),
                ready_on: ReadyOn::Producer,
                at: nowhere,
                consumer: Consumer::Nobody,
                lent: None,
                conversion: None,
                tag: (End::Call, 0),
                generation: generation::now(),
            },
        )
    }

    /// What it is, for whoever has that from here on. Its end is by `end`, unless another comes first.
    #[inline(always)]
    pub(crate) const fn take_array(&mut self, end: End) -> Descriptor {
        self.tag = (end, self.array.ptr());
        std::mem::replace(&mut self.array, Descriptor::EMPTY)
    }

    /// Another holder of the same, which has no consumer yet. Refused in a fork of the process whose memory
    /// it is.
    pub(crate) fn share(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let held = self.share_owner(py)?;
        let mut shared = self.with_same_streams(py, held, Consumer::Nobody);
        shared.put_behind(self.consumer.clone_ref(py));
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    /// The same for the consumer that this is for, until another is named.
    pub(crate) fn share_with_consumer(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let held = self.share_owner(py)?;
        let mut shared = self.with_same_streams(py, held, self.consumer.clone_ref(py));
        // What one consumer declined is another's to have.
        if let Consumer::Unnamed(_) | Consumer::Declined = shared.consumer {
            shared.hand_on(py, Consumer::Unread);
        }
        if self.conversion.is_some() {
            self.bring(py, &mut shared);
        }
        Ok(shared)
    }

    fn share_owner(&mut self, py: Python<'_>) -> Result<Owner> {
        self.process.check()?;
        match &mut self.held {
            Owner::Array(object, managed) => {
                Ok(Owner::Array(object.clone_ref(py), managed.share()))
            }
            // A copy has one holder: nobody makes a view of it but by the tensor that it is in.
            Owner::Copy(_) => Err(Error::new(Kind::Released, "a copy's memory")),
        }
    }

    /// A holder of `held` between the same streams, for that consumer: this one's, or none.
    #[inline]
    pub(super) fn with_same_streams(
        &self,
        py: Python<'_>,
        held: Owner,
        consumer: Consumer,
    ) -> Box<Self> {
        let ready_on = match (&self.ready_on, &consumer) {
            (ReadyOn::Consumer, Consumer::Nobody) => {
                ReadyOn::of(self.ready_elsewhere().map(|kept| kept.clone_ref(py)))
            }
            (same, _) => same.clone_ref(py),
        };
        let shared = Self {
            array: Descriptor::EMPTY,
            ready: self.ready,
            by: By::View,
            is_read: false,
            held,
            driver: self.driver.clone(),
            process: self.process,
            place: self.place,
            producer: self.producer.as_ref().map(|kept| kept.clone_ref(py)),
            upstream: self.upstream.iter().map(|kept| kept.clone_ref(py)).collect(),
            ready_on,
            at: self.at,
            consumer,
            lent: None,
            conversion: None,
            tag: (End::Call, self.tag.1),
            generation: generation::now(),
        };
        Box::write(Box::new_uninit(), shared)
    }

    /// The producer's object.
    pub(crate) fn object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.held {
            Owner::Array(object, _) => Some(object.clone_ref(py)),
            Owner::Copy(_) => None,
        }
    }

    /// Lends the array to a borrower by the exchange API, which works at `at`.
    pub(crate) fn lend(&mut self, py: Python<'_>, at: Place) {
        self.lent = Some(at);
        self.note_use(py);
    }

    /// Whoever works on that stream may go on with the memory after the end, as the producer does.
    pub(crate) fn put_upstream(&mut self, kept: KeepAlive) {
        kept.add_to(&mut self.upstream);
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
        let upstream = self.upstream.iter().filter_map(KeepAlive::kept);
        for kept in self.producer.iter().chain(self.ready_on.own()).chain(upstream) {
            kept.visit(visit)?;
        }
        match &self.consumer {
            Consumer::On(kept) => kept.visit(visit),
            Consumer::OnProducer(Some(known)) => {
                known.kept().map_or(Ok(()), |kept| kept.visit(visit))
            }
            Consumer::Unnamed(seen) => {
                seen.iter().filter_map(KeepAlive::kept).try_for_each(|kept| kept.visit(visit))
            }
            _ => Ok(()),
        }
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
