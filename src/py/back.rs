//! How memory goes back to its producer: the producer's stream waits for the consumer's.
//!
//! Nothing is touched but streams that are alive ([`Live`]); where the producer's is unknown the legacy
//! default stream stands in for it, and the memory must be kept besides until the consumer is done.

use pyo3::prelude::*;

use super::adopt::Live;
use crate::descriptor::Descriptor;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::Error;
use crate::order::{self, Door, Place};
use crate::stream::{Home, Request, Stream, Thread, plan_return};

/// How the memory goes back.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) driver: Handle,
    pub(super) place: Place,
    /// The producer's stream, which is alive as long as this is; `None` where it is unknown.
    pub(super) home: Option<Live>,
    /// The stream that a caller declared to be the producer's beside it, who knows of work there.
    pub(super) declared: Option<Live>,
    /// The consumer's stream.
    pub(super) consumer: Option<Live>,
    /// Whether the array was lent by the exchange API, whose borrowers work on the legacy default stream.
    pub(super) lent_out: bool,
    /// The process whose memory it is. In a fork of it nothing is given back, since its driver does
    /// not survive that, and its tensors are left alone: their deleters may call that driver.
    pub(super) process: Process,
}

impl Back {
    /// Memory of this process, which has no consumer yet.
    pub(super) fn new(driver: &Handle, place: Place, home: Option<Live>) -> Self {
        let (driver, process) = (driver.clone(), Process::current());
        Self { driver, place, home, declared: None, consumer: None, lent_out: false, process }
    }

    /// Whether `stream` is the producer's own.
    pub(super) fn is_home(&self, stream: Stream) -> bool {
        self.home.as_ref().is_some_and(|home| home.stream == stream)
    }

    /// Whether the references may go at once: no stream has to wait for another, nor has it to be found
    /// out whether it does.
    pub(super) fn is_settled(&self) -> bool {
        let mut users = self.consumer.as_ref().map(|live| live.stream).into_iter();
        let settled = |user| self.is_home(user) && self.declared.is_none();
        users.all(settled) && (!self.lent_out || settled(Stream::Legacy))
    }

    /// The producer's stream, for `users` of the memory to be waited for there.
    pub(super) fn home(&self, py: Python<'_>, users: &[Stream]) -> PyResult<Home> {
        let needed = users.iter().any(|user| !self.is_home(*user));
        Ok(match &self.home {
            None => Home::Unknown,
            Some(home) if !needed => Home::On(home.stream),
            Some(home) => home.now(py)?.map_or(Home::Unknown, Home::On),
        })
    }

    /// The stream that was declared beside it, which waits for the same.
    pub(super) fn declared(&self, py: Python<'_>) -> PyResult<Option<Home>> {
        let now = self.declared.as_ref().map(|declared| declared.now(py)).transpose()?;
        Ok(now.flatten().map(Home::On))
    }

    /// Whether the consumer's stream may be used. As the producer's own it will not be touched, unless
    /// another one was declared; then whoever vouches for the producer's is asked where nobody does for
    /// the consumer's.
    fn is_open(&self, py: Python<'_>, live: &Live) -> PyResult<bool> {
        match self.home.as_ref().filter(|home| home.stream == live.stream) {
            Some(_) if self.declared.is_none() => Ok(true),
            Some(home) if live.object.is_none() => home.is_open(py),
            _ => live.is_open(py),
        }
    }

    /// The streams whose work on the memory has to be waited for.
    fn users(&self, py: Python<'_>, also: Option<Stream>) -> PyResult<Vec<Stream>> {
        let mut users = Vec::new();
        if let Some(live) = &self.consumer
            && self.is_open(py, live)?
        {
            users.push(live.stream);
        }
        for user in also.into_iter().chain(self.lent_out.then_some(Stream::Legacy)) {
            if !users.contains(&user) {
                users.push(user);
            }
        }
        Ok(users)
    }

    /// The same.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let consumer = self.consumer.as_ref().map(|consumer| consumer.clone_ref(py));
        Self { consumer, lent_out: self.lent_out, ..self.share(py) }
    }

    /// The same for another holder, which has no consumer yet.
    pub(super) fn share(&self, py: Python<'_>) -> Self {
        Self {
            driver: self.driver.clone(),
            place: self.place,
            home: self.home.as_ref().map(|home| home.clone_ref(py)),
            declared: self.declared.as_ref().map(|declared| declared.clone_ref(py)),
            consumer: None,
            lent_out: false,
            process: self.process,
        }
    }

    /// `array` was made ready for a consumer as `request` asks. The stream of that, and of `object`, is
    /// waited for at the end, if it is still alive then. Where it is the producer's own, nothing will have
    /// to wait, and nobody has to vouch for it.
    pub(super) fn hand_to(
        &mut self,
        py: Python<'_>,
        array: &Descriptor,
        request: Request,
        object: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let Request::On(stream) = request else { return Ok(()) };
        if array.ptr() != 0 {
            self.consumer = if self.is_home(stream) {
                Some(Live::same(stream, object))
            } else {
                Live::new(py, stream, object, &self.driver, self.place.ordinal)?
            };
        }
        Ok(())
    }

    /// The consumer works at `place`, on a device that is not the producer's. A default stream of the
    /// producer's has no name there, so the references stay until the consumer is done.
    pub(super) fn move_to(&mut self, place: Place) {
        let is_named = |home: &Live| matches!(home.stream, Stream::Handle(_));
        self.home = self.home.take().filter(is_named);
        self.place = place;
    }
}

/// What giving memory back came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// The references may go.
    Now,
    /// The producer's stream is unknown: they may go when the consumer is done.
    WhenDone,
}

/// Why memory could not be given back.
#[derive(Debug)]
pub(super) enum Unable {
    /// The driver failed, or something is in the way.
    Failed(Error),
    /// Whoever was asked for a stream raised what is no answer: an interrupt, an exit.
    Raised(PyErr),
}

impl From<Error> for Unable {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<PyErr> for Unable {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Unable> for PyErr {
    fn from(unable: Unable) -> Self {
        match unable {
            Unable::Failed(error) => error.into(),
            Unable::Raised(error) => error,
        }
    }
}

/// Makes the producer's stream wait for the consumer's of `back`, and for `also`.
pub(super) fn give_back(
    py: Python<'_>,
    door: &'static str,
    back: &Back,
    also: Option<Stream>,
) -> Result<Given, Unable> {
    let users = back.users(py, also)?;
    let home = back.home(py, &users)?;
    let make = |user, home: Home| {
        let on = || if home == Home::Unknown { user } else { Some(home.stream()) };
        let (door, edge) = (Door::giving_back(door), plan_return(user, home, Thread::current()));
        order::carry_out(door, &back.driver, back.place, edge, on, |call| py.detach(call))
    };
    if users.is_empty() {
        make(None, home)?;
        return Ok(Given::Now);
    }
    for user in &users {
        make(Some(*user), home)?;
    }
    if let Some(declared) = back.declared(py)? {
        for user in &users {
            make(Some(*user), declared)?;
        }
    }
    Ok(if home == Home::Unknown { Given::WhenDone } else { Given::Now })
}
