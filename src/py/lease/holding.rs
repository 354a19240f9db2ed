//! What holds memory: the references that go at its end, and whose streams that end is between. The orders of
//! the end are [`super::settle`]'s.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is right. The
//! managed tensor of a DLPack producer has no reference count; it is shared from the second holder on.

use std::sync::Arc;

use dlpark::python::ImportedDlpack;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::warned;
use crate::buffer::Buffer;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::lease::Trouble;
use crate::py::observe::End;
use crate::py::streams::{Argument, Keeping, Kept};
use crate::stream::{Alive, Request, Stream};

/// References to memory, and how it goes back.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) held: Held,
    pub(crate) driver: Handle,
    /// The process that owns the memory. A fork gives nothing back, since the driver does not survive a fork,
    /// and calls no deleters: they may call that driver.
    pub(crate) process: Process,
    /// Where the producer's streams are.
    pub(super) place: Place,
    /// The producer's stream; `None` if it is unknown or not kept.
    pub(super) home: Option<Kept>,
    /// One more stream of the producer's, which a caller declared.
    pub(super) declared: Option<Kept>,
    /// The stream that the array is ready on, if that is not `home`.
    ready: Option<Kept>,
    /// Where the consumer's streams are.
    pub(super) at: Place,
    pub(super) consumer: Consumer,
    /// Where the exchange API lent the array; its borrowers work on the legacy default stream there.
    pub(super) lent: Option<Place>,
    /// How this ends by default, and the array's address.
    pub(crate) tag: (End, u64),
}

/// What is held.
#[derive(Debug)]
pub(super) enum Held {
    /// A producer's array: the object, and its managed tensor.
    Array(Py<PyAny>, Tensor),
    /// A copy of ours, and what keeps a context alive that is not a primary one.
    Copy(Buffer, #[allow(dead_code, reason = "held")] Option<Box<super::Tenant>>),
}

pub(super) enum Tensor {
    None,
    Sole(ImportedDlpack),
    Shared(Arc<ImportedDlpack>),
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

/// Who works on the memory.
#[derive(Debug)]
pub(crate) enum Consumer {
    /// Nobody: it is only passed on.
    Nobody,
    /// A consumer that wants no order (-1).
    Declined,
    /// A consumer on the producer's own stream.
    AtHome,
    /// A reader of the dict; nobody has read it yet.
    Unread,
    /// A reader of the dict that named no stream. The streams are those that libraries worked on then.
    Unnamed(Vec<Kept>),
    /// A consumer on that stream.
    On(Kept),
    /// A consumer on that non-blocking stream, which nothing keeps alive; and the line that named it.
    Unkept(u64, Option<warned::Line>),
}

impl Holding {
    /// A producer's array, by its object and its managed tensor, whose streams are at `place`, and go back
    /// to `home`.
    pub(crate) fn array(
        object: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        driver: &Handle,
        place: Place,
        home: Option<Kept>,
    ) -> Box<Self> {
        let managed = managed.map_or(Tensor::None, Tensor::Sole);
        Self::new(Held::Array(object, managed), driver, place, home)
    }

    /// Holds the producer's managed tensor besides.
    pub(crate) fn take(&mut self, managed: ImportedDlpack) {
        if let Held::Array(_, tensor) = &mut self.held {
            *tensor = Tensor::Sole(managed);
        }
    }

    /// A copy of ours in `buffer`, which is freed on `home`; `context` as in [`Held::Copy`].
    pub(crate) fn copy(
        buffer: Buffer,
        driver: &Handle,
        place: Place,
        home: Kept,
        context: Option<Box<super::Tenant>>,
    ) -> Box<Self> {
        let ptr = buffer.ptr();
        let mut copy = Self::new(Held::Copy(buffer, context), driver, place, Some(home));
        copy.tag = (End::Copy, ptr);
        copy
    }

    /// In a box from the start: it is moved from hand to hand, and larger than what else an array is.
    fn new(held: Held, driver: &Handle, place: Place, home: Option<Kept>) -> Box<Self> {
        Box::new(Self {
            held,
            driver: driver.clone(),
            process: Process::current(),
            place,
            home,
            declared: None,
            ready: None,
            at: place,
            consumer: Consumer::Nobody,
            lent: None,
            tag: (End::Call, 0),
        })
    }

    /// Another holder of the same, which has no consumer yet. Refused in a fork of the process whose memory
    /// it is.
    pub(crate) fn share(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        self.process.check()?;
        let held = match &mut self.held {
            Held::Array(object, managed) => Held::Array(object.clone_ref(py), managed.share()),
            // A copy has one holder: nobody makes a view of it but by the tensor that it is in.
            Held::Copy(..) => return Err(Error::new(Kind::Released, "a copy's memory")),
        };
        let clone = |kept: &Option<Kept>| kept.as_ref().map(|kept| kept.clone_ref(py));
        Ok(Box::new(Self {
            held,
            driver: self.driver.clone(),
            process: self.process,
            place: self.place,
            home: clone(&self.home),
            declared: clone(&self.declared),
            ready: clone(&self.ready),
            at: self.at,
            consumer: Consumer::Nobody,
            lent: None,
            tag: (End::Call, self.tag.1),
        }))
    }

    /// The same for the consumer that this is for, until another is named.
    pub(crate) fn share_with_consumer(&mut self, py: Python<'_>) -> Result<Box<Self>> {
        let mut shared = self.share(py)?;
        shared.consumer = match &self.consumer {
            Consumer::Nobody => Consumer::Nobody,
            Consumer::Declined => Consumer::Declined,
            Consumer::AtHome => Consumer::AtHome,
            Consumer::Unread | Consumer::Unnamed(_) => Consumer::Unread,
            Consumer::On(kept) => Consumer::On(kept.clone_ref(py)),
            Consumer::Unkept(handle, line) => Consumer::Unkept(*handle, line.clone()),
        };
        Ok(shared)
    }

    /// The producer's object.
    pub(crate) fn object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.held {
            Held::Array(object, _) => Some(object.clone_ref(py)),
            Held::Copy(..) => None,
        }
    }

    /// The memory is handed to the consumer that `argument` names, on a stream at `at`.
    pub(crate) fn hand_to(
        &mut self,
        py: Python<'_>,
        argument: &Argument<'_, '_>,
        at: Place,
    ) -> PyResult<()> {
        self.at = at;
        self.consumer = match (argument.request(), argument.alive(at)) {
            (Request::NoOrder, _) => Consumer::Declined,
            (_, None) => Consumer::Unread,
            (_, Some(alive)) if self.is_home(alive) => Consumer::AtHome,
            _ => match argument.keep(py, &self.driver, at)? {
                Some(Keeping::Kept(kept) | Keeping::StandIn(kept)) => Consumer::On(kept),
                Some(Keeping::Nobody(handle)) => Consumer::Unkept(handle, warned::here(py)?),
                None => Consumer::Nobody,
            },
        };
        Ok(())
    }

    /// Whether it has a consumer, and is not only passed on.
    pub(crate) const fn has_consumer(&self) -> bool {
        !matches!(self.consumer, Consumer::Nobody)
    }

    /// Somebody reads the address. Whether that is a consumer that named no stream.
    pub(crate) fn read(&mut self) -> bool {
        if matches!(self.consumer, Consumer::Unread) {
            self.consumer = Consumer::Unnamed(Vec::new());
        }
        matches!(self.consumer, Consumer::Unnamed(_))
    }

    /// Whether a stream that a library works on as it takes the memory is still to be noted. The producer's
    /// own is only where another was declared, which does not follow it.
    pub(crate) fn has_to_note(&self, stream: Alive<'_>) -> bool {
        let Consumer::Unnamed(seen) = &self.consumer else { return false };
        let settled = self.declared.is_none() && self.is_home(stream);
        !settled && !seen.iter().any(|kept| kept.is(stream))
    }

    /// Notes such a stream.
    pub(crate) fn note(&mut self, kept: Kept) {
        if let Consumer::Unnamed(seen) = &mut self.consumer
            && !seen.iter().any(|known| known.stream() == kept.stream())
        {
            seen.push(kept);
        }
    }

    /// What is to be waited for where the array is ready; `None` where that is the producer's own stream, or
    /// a default one at its place.
    pub(crate) fn ready_on(&mut self, kept: Option<Kept>) {
        self.ready = kept;
    }

    /// The array is ready on its consumer's stream.
    pub(crate) fn ready_for_consumer(&mut self, py: Python<'_>) {
        self.ready = match &self.consumer {
            Consumer::On(kept) => Some(kept.clone_ref(py)),
            _ => None,
        };
    }

    /// Who keeps the stream `ready` of the array, where it is not a default one, or nobody's.
    fn keeper_of(&self, ready: Stream) -> Option<&Kept> {
        let home = || self.home.as_ref().filter(|home| home.stream() == ready);
        self.ready.as_ref().or_else(home)
    }

    /// Whether that stream can be closed while it is held here.
    pub(crate) fn may_lose(&self, ready: Stream) -> bool {
        self.keeper_of(ready).is_some_and(Kept::is_by_object)
    }

    /// The proof that the stream `ready` of the array is alive; `None` where nobody keeps it any more.
    pub(crate) fn confirm_ready(
        &self,
        py: Python<'_>,
        ready: Stream,
    ) -> Result<Option<Alive<'_>>, Trouble<PyErr>> {
        match self.keeper_of(ready) {
            Some(kept) => {
                Ok(kept.confirm(py, &self.driver)?.filter(|alive| alive.stream() == kept.stream()))
            }
            None => Ok(Alive::default_stream(ready, self.place)),
        }
    }

    /// Whether `stream` is the producer's own.
    pub(crate) fn is_home(&self, stream: Alive<'_>) -> bool {
        self.home.as_ref().is_some_and(|home| home.is(stream))
    }

    /// Consumers that are not named work at `at`.
    pub(crate) const fn hand_out_at(&mut self, at: Place) {
        if !matches!(self.consumer, Consumer::On(_) | Consumer::Unkept(..)) {
            self.at = at;
        }
    }

    /// Lends the array to a borrower by the exchange API, which works at `at`.
    pub(crate) const fn lend(&mut self, at: Place) {
        self.lent = Some(at);
    }

    /// A caller declares one more stream of the producer's.
    pub(crate) fn declare(&mut self, declared: Kept) {
        self.declared = Some(declared);
    }

    /// It ends in the hands of the garbage collector.
    pub(crate) const fn collected(&mut self) {
        self.tag.0 = End::Collected;
    }

    /// Shows the garbage collector what is held.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Held::Array(object, _) = &self.held {
            visit.call(object)?;
        }
        for kept in [&self.home, &self.declared, &self.ready].into_iter().flatten() {
            kept.visit(visit)?;
        }
        match &self.consumer {
            Consumer::On(kept) => kept.visit(visit),
            Consumer::Unnamed(seen) => seen.iter().try_for_each(|kept| kept.visit(visit)),
            _ => Ok(()),
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !self.process.is_current()
            && let Held::Array(_, managed) = &mut self.held
        {
            std::mem::forget(std::mem::replace(managed, Tensor::None));
        }
    }
}

impl Tensor {
    fn share(&mut self) -> Self {
        let shared = match std::mem::replace(self, Self::None) {
            Self::None => return Self::None,
            Self::Sole(managed) => Arc::new(managed),
            Self::Shared(managed) => managed,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }
}
