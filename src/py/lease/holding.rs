//! What holds memory: the references that go at its end, and whose streams that end is between.
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
use crate::lease::{Holder, Parties, Settled, Trouble};
use crate::order::{self, Door, Mark};
use crate::py::interpreter::detach;
use crate::py::observe::End;
use crate::py::streams::{Argument, Keeping, Kept, Unsaid, current, wait_for_all};
use crate::stream::{Alive, Elided, Request, Stream};

/// References to memory, and how it goes back.
#[derive(Debug)]
pub(crate) struct Holding {
    held: Held,
    pub(crate) driver: Handle,
    /// The process whose memory it is. In a fork of it nothing is given back, since its driver does not
    /// survive that, and its tensors are left alone: their deleters may call that driver.
    pub(crate) process: Process,
    /// Where the producer's streams are.
    place: Place,
    /// The producer's stream; `None` where nobody said, or nobody keeps it.
    home: Option<Kept>,
    /// The stream that a caller declared to be the producer's beside it, who knows of work there.
    declared: Option<Kept>,
    /// What the array is ready on, where that is not `home`.
    ready: Option<Kept>,
    /// Where the consumer's streams are.
    at: Place,
    consumer: Consumer,
    /// Where the array was lent by the exchange API, whose borrowers work on the legacy default stream there.
    lent: Option<Place>,
    /// How this will have ended if nobody says otherwise, and the array's address.
    pub(crate) tag: (End, u64),
}

/// What is held.
#[derive(Debug)]
enum Held {
    /// A producer's array: the object, and its managed tensor.
    Array(Py<PyAny>, Tensor),
    /// A copy of ours, and what keeps a context alive that is not a primary one.
    Copy(Buffer, #[allow(dead_code, reason = "held")] Option<Box<super::Tenant>>),
}

enum Tensor {
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
    /// Somebody who wants no order (-1).
    Declined,
    /// Somebody on the producer's own stream.
    AtHome,
    /// Whoever reads the dict, which nobody has done yet.
    Unread,
    /// Somebody who has read the dict, and did not say where he works. Known are the streams that libraries
    /// worked on then.
    Unnamed(Vec<Kept>),
    /// Somebody on that stream.
    On(Kept),
    /// Somebody on that non-blocking stream, which nobody keeps alive; and where that was said.
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
    ) -> Self {
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
    ) -> Self {
        let ptr = buffer.ptr();
        let mut copy = Self::new(Held::Copy(buffer, context), driver, place, Some(home));
        copy.tag = (End::Copy, ptr);
        copy
    }

    fn new(held: Held, driver: &Handle, place: Place, home: Option<Kept>) -> Self {
        Self {
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
        }
    }

    /// Another holder of the same, which has no consumer yet. Refused in a fork of the process whose memory
    /// it is.
    pub(crate) fn share(&mut self, py: Python<'_>) -> Result<Self> {
        self.process.check()?;
        let held = match &mut self.held {
            Held::Array(object, managed) => Held::Array(object.clone_ref(py), managed.share()),
            // A copy has one holder: nobody makes a view of it but by the tensor that it is in.
            Held::Copy(..) => return Err(Error::new(Kind::Released, "a copy's memory")),
        };
        let clone = |kept: &Option<Kept>| kept.as_ref().map(|kept| kept.clone_ref(py));
        Ok(Self {
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
        })
    }

    /// The same for the consumer that this is for, until another is named.
    pub(crate) fn share_with_consumer(&mut self, py: Python<'_>) -> Result<Self> {
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

    /// Whether it is for somebody, and not only passed on.
    pub(crate) const fn has_consumer(&self) -> bool {
        !matches!(self.consumer, Consumer::Nobody)
    }

    /// Somebody reads where the memory is. Whether that is a consumer who did not say where it works.
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

    /// The array is lent to whoever reads it by the exchange API, and works at `at`.
    pub(crate) const fn lend(&mut self, at: Place) {
        self.lent = Some(at);
    }

    /// A caller declares a stream to be the producer's, beside the one that is known.
    pub(crate) fn declare(&mut self, declared: Option<Kept>) {
        self.declared = declared;
    }

    /// The streams that the producer works on, for others that are alive to be waited for there: the first
    /// stands in for it where it is unknown, which the flag says.
    pub(crate) fn producers(
        &self,
        py: Python<'_>,
    ) -> Result<(Vec<Alive<'_>>, bool), Trouble<PyErr>> {
        let home =
            self.home.as_ref().map(|home| home.confirm(py, &self.driver)).transpose()?.flatten();
        let mut producers = vec![home.unwrap_or(Alive::standing_in(self.place))];
        if let Some(declared) = &self.declared {
            producers.extend(declared.confirm(py, &self.driver)?);
        }
        Ok((producers, home.is_some()))
    }

    /// Readies it to end in the hands of the garbage collector, which may have taken apart by now what else
    /// is garbage: an exporter vouches for no stream any more that would have to be touched.
    pub(crate) fn collected(&mut self) {
        self.tag.0 = End::Collected;
        let settled = matches!(self.consumer, Consumer::AtHome) && self.declared.is_none();
        if !settled && self.home.as_ref().is_some_and(Kept::is_lent) {
            self.home = None;
            if matches!(self.consumer, Consumer::AtHome) {
                self.consumer = Consumer::Nobody;
            }
        }
    }

    /// Makes the orders of the end, for the consumer and for the user of `also`.
    pub(crate) fn settle_with(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settled<Vec<Mark>>, Trouble<PyErr>> {
        if !self.process.is_current() {
            return Ok(Settled::Done);
        }
        let settled = match self.nothing_to_order().filter(|_| also.is_none()) {
            Some(why) => {
                let on = || self.home.as_ref().map(Kept::stream);
                order::elided(Door::giving_back("release"), self.place, why, on);
                Settled::Done
            }
            None => self.order(py, also)?,
        };
        if let Held::Copy(buffer, _) = &self.held
            && buffer.ptr() != 0
        {
            self.free(py, buffer)?;
        }
        Ok(settled)
    }

    /// Why no stream has to wait for another, where that is known without a question to anybody.
    fn nothing_to_order(&self) -> Option<Elided> {
        if self.lent.is_some_and(|at| !self.is_home(Alive::legacy(at)) || self.declared.is_some()) {
            return None;
        }
        match &self.consumer {
            Consumer::Nobody | Consumer::Unread => Some(Elided::NoConsumer),
            Consumer::Declined => Some(Elided::NotAsked),
            Consumer::AtHome if self.declared.is_none() => Some(Elided::SameStream),
            _ => None,
        }
    }

    fn order(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settled<Vec<Mark>>, Trouble<PyErr>> {
        let holding = &*self;
        let (producers, known) = holding.producers(py)?;
        let (mut users, covered) = holding.users(py, &producers)?;
        if let Some(also) = also {
            add(&mut users, also);
        }
        if covered {
            // Asked last: nothing of Python's runs from here on that might let a stream go.
            users.push(Alive::standing_in(holding.at));
            current::each(py, &holding.driver, holding.at, |alive, _| {
                add(&mut users, alive);
                Ok(())
            })?;
            if let Some((handle, line)) = holding.uncovered(&users) {
                warned::uncovered(holding.at, handle, line);
                wait_for_all(py, "release", &holding.driver, holding.at, Unsaid::ItsConsumers)?;
                return Ok(Settled::Done);
            }
        }
        if let Some(at) = holding.lent {
            add(&mut users, Alive::legacy(at));
        }
        let parties = Parties { users, producers, known };
        match parties.settle(&holding.driver, |call| detach(py, call)) {
            Ok(settled) => Ok(settled),
            Err(error) => {
                if covered {
                    // Whoever tries again may be another thread, with other current streams.
                    let seen = Kept::of_libraries(py, &holding.driver, holding.at)?;
                    for (kept, _) in seen {
                        self.note(kept);
                    }
                }
                Err(error.into())
            }
        }
    }

    /// The streams that the consumer is known to work on, and whether others have to stand in for what is
    /// not known.
    fn users<'a>(
        &'a self,
        py: Python<'_>,
        producers: &[Alive<'a>],
    ) -> Result<(Vec<Alive<'a>>, bool), Trouble<PyErr>> {
        let mut users = Vec::new();
        let covered = match &self.consumer {
            Consumer::Nobody | Consumer::Unread | Consumer::Declined => false,
            Consumer::AtHome => {
                users.extend(producers.first());
                false
            }
            Consumer::On(kept) => {
                users.extend(kept.confirm(py, &self.driver)?);
                users.is_empty()
            }
            Consumer::Unnamed(seen) => {
                for kept in seen {
                    users.extend(kept.confirm(py, &self.driver)?);
                }
                true
            }
            Consumer::Unkept(..) => true,
        };
        Ok((users, covered))
    }

    /// The consumer's stream, where that is one that nobody keeps, and that none of `users` is: a non-blocking
    /// one, so that no other stands for it; but not one that went with its context. And where it was named.
    fn uncovered(&self, users: &[Alive<'_>]) -> Option<(u64, Option<&warned::Line>)> {
        let (stream, line) = match &self.consumer {
            Consumer::Unkept(handle, line) => (Stream::Handle(*handle), line.as_ref()),
            Consumer::On(kept) if kept.is_of_this_life(&self.driver) => (kept.stream(), None),
            _ => return None,
        };
        let found = users.iter().any(|user| user.stream() == stream);
        (!found).then_some((stream.handle(), line))
    }

    /// Frees a copy's memory in the order of its stream, unless a capture would be ended by that. Where nobody
    /// keeps that stream any more, the host waits first.
    fn free(&self, py: Python<'_>, buffer: &Buffer) -> Result<(), Trouble<PyErr>> {
        buffer.check(self.driver.get()?)?;
        let (producers, known) = self.producers(py)?;
        if !known {
            wait_for_all(py, "release", &self.driver, self.at, Unsaid::ItsConsumers)?;
        }
        let Some(on) = producers.first().copied() else { return Ok(()) };
        let calls = self.driver.get()?;
        let free = || {
            order::check_captures(calls, &[on], (Kind::CaptureCopy, "a copy's end"))?;
            buffer.free(&self.driver, on)
        };
        Ok(detach(py, free)?)
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

fn add<'a>(users: &mut Vec<Alive<'a>>, alive: Alive<'a>) {
    if !users.iter().any(|user| user.is(alive)) {
        users.push(alive);
    }
}

impl Holder for Holding {
    type Lock<'l> = Python<'l>;
    type Mark = Vec<Mark>;
    type Interrupt = PyErr;

    fn settle(&mut self, py: Python<'_>) -> Result<Settled<Vec<Mark>>, Trouble<PyErr>> {
        self.settle_with(py, None)
    }

    fn is_done(&self, marks: &mut Vec<Mark>) -> Result<bool> {
        let driver = self.driver.get()?;
        while let Some(mark) = marks.last() {
            if !order::is_reached(driver, mark)? {
                return Ok(false);
            }
            marks.pop();
        }
        Ok(true)
    }
}

impl From<PyErr> for Trouble<PyErr> {
    fn from(interrupt: PyErr) -> Self {
        Self::Interrupted(interrupt)
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
