//! What a view, or a managed tensor that it handed out, holds, and how that ends.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is
//! right. The managed tensor of a DLPack producer has no reference count; it is shared from the
//! second holder on.
//!
//! A holder ends by giving the memory back in order: the producer's stream waits for the consumer's,
//! then the references go. Where the producer's stream is unknown, or the order cannot be made just
//! now, the references stay until the consumer is done, or the order made ([`parked`]).

use std::sync::Arc;

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::adopt::Live;
use super::parked::{self, Parked};
use super::unraised;
use crate::descriptor::Descriptor;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::order::{self, Door, Mark, Place};
use crate::stream::{Home, Request, Stream, Thread, plan_return};

/// References that keep memory and stream alive.
#[derive(Debug)]
pub(super) struct Keep(Option<Kept>);

#[derive(Debug)]
struct Kept {
    producer: Py<PyAny>,
    managed: Tensor,
    /// What keeps the stream alive that the array is ready on.
    stream: Option<Py<PyAny>>,
    back: Back,
}

/// How the memory goes back.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) driver: Handle,
    pub(super) place: Place,
    /// The producer's stream, which is alive as long as this is; `None` where it is unknown.
    pub(super) home: Option<Live>,
    /// The consumer's stream.
    pub(super) consumer: Option<Live>,
    /// The process whose memory it is. In a fork of it nothing is given back, since its driver does
    /// not survive that, and its tensors are left alone: their deleters may call that driver.
    pub(super) process: Process,
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

impl Back {
    /// Memory of this process, which has no consumer yet.
    pub(super) fn new(driver: &Handle, place: Place, home: Option<Live>) -> Self {
        let (driver, process) = (driver.clone(), Process::current());
        Self { driver, place, home, consumer: None, process }
    }

    /// Whether `stream` is the producer's own.
    fn is_home(&self, stream: Stream) -> bool {
        self.home.as_ref().is_some_and(|home| home.stream == stream)
    }

    /// The producer's stream, for `users` of the memory to be waited for there.
    pub(super) fn home(&self, py: Python<'_>, users: &[Option<Stream>]) -> Home {
        let needed = users.iter().flatten().any(|user| !self.is_home(*user));
        let home = self.home.as_ref();
        let home = home.and_then(|home| if needed { home.now(py) } else { Some(home.stream) });
        home.map_or(Home::Unknown, Home::On)
    }

    fn clone_ref(&self, py: Python<'_>, consumer: Option<Live>) -> Self {
        Self {
            driver: self.driver.clone(),
            place: self.place,
            home: self.home.as_ref().map(|home| home.clone_ref(py)),
            consumer,
            process: self.process,
        }
    }

    /// `stream` of a consumer, to be waited for at the end if it is still alive then. Where it is the
    /// producer's own, nothing will have to wait, and nobody has to vouch for it.
    pub(super) fn live(
        &self,
        py: Python<'_>,
        stream: Stream,
        object: Option<Py<PyAny>>,
    ) -> Option<Live> {
        if self.is_home(stream) {
            return Some(Live { stream, object, lent: false });
        }
        Live::new(py, stream, object, &self.driver, self.place.ordinal)
    }
}

impl Keep {
    /// Holds `producer`, its managed tensor, and the object of the stream that the array is ready on.
    pub(super) fn new(
        producer: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        stream: Option<Py<PyAny>>,
        back: Back,
    ) -> Self {
        let managed = managed.map_or(Tensor::None, Tensor::Sole);
        Self(Some(Kept { producer, managed, stream, back }))
    }

    /// The producer.
    pub(super) fn producer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.0.as_ref().map(|kept| kept.producer.clone_ref(py))
    }

    /// Another holder of the same, for a consumer that [`Keep::hand_to`] names. It keeps the stream
    /// alive that the array is ready on: by `stream` where that is another one now. Refused in a fork
    /// of the process whose memory it is.
    pub(super) fn share(&mut self, py: Python<'_>, stream: Option<Py<PyAny>>) -> Result<Self> {
        let Some(kept) = &mut self.0 else { return Ok(Self(None)) };
        kept.back.process.check()?;
        Ok(Self(Some(Kept {
            producer: kept.producer.clone_ref(py),
            managed: kept.managed.share(),
            stream: stream.or_else(|| kept.stream.as_ref().map(|held| held.clone_ref(py))),
            back: kept.back.clone_ref(py, None),
        })))
    }

    /// The array was made ready as `request` asks, on the stream that `object` is of, and its consumer
    /// works there. Only now: where that was refused there is no consumer to wait for at the end.
    pub(super) fn handed_over(
        &mut self,
        py: Python<'_>,
        array: &Descriptor,
        request: Request,
        object: Option<Py<PyAny>>,
    ) {
        let Some(kept) = &mut self.0 else { return };
        if let Request::On(stream) = request
            && array.ptr() != 0
        {
            let object = object.as_ref().map(|object| object.clone_ref(py));
            kept.back.consumer = kept.back.live(py, stream, object);
        }
        if object.is_some() {
            kept.stream = object;
        }
    }

    /// The memory is handed to a consumer, who works on that stream.
    pub(super) fn hand_to(&mut self, consumer: Option<Live>) {
        if let Some(kept) = &mut self.0 {
            kept.back.consumer = consumer;
        }
    }

    /// The same where the consumer works on a device that is not the producer's: `place` is its own. A
    /// default stream of the producer's has no name there, so the references stay until the consumer is
    /// done.
    pub(super) fn hand_to_elsewhere(&mut self, place: Place, consumer: Option<Live>) {
        if let Some(kept) = &mut self.0 {
            let is_named = |home: &Live| matches!(home.stream, Stream::Handle(_));
            let home = kept.back.home.take().filter(is_named);
            (kept.back.place, kept.back.home, kept.back.consumer) = (place, home, consumer);
        }
    }

    /// How the memory goes back.
    pub(super) fn back(&self, py: Python<'_>) -> Option<Back> {
        let back = &self.0.as_ref()?.back;
        Some(back.clone_ref(py, back.consumer.as_ref().map(|live| live.clone_ref(py))))
    }

    /// Ends it in the hands of the garbage collector, which may have taken apart by now what else is
    /// garbage: an exporter vouches for no stream any more that would have to be touched.
    pub(super) fn end_collected(mut self) {
        if let Some(Kept { back, .. }) = &mut self.0 {
            let same = back.consumer.as_ref().is_some_and(|live| back.is_home(live.stream));
            back.home = back.home.take().filter(|home| same || !home.lent);
        }
    }

    /// Ends it where [`give_back`] has done what it can.
    pub(super) fn end_given(mut self, py: Python<'_>, given: Given) {
        if let Some(kept) = self.0.take() {
            Ending { kept, given: Some(given), mark: None }.end(py);
        }
    }

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(kept) = &self.0 {
            visit.call(&kept.producer)?;
            visit.call(&kept.stream)?;
            let lives = [&kept.back.home, &kept.back.consumer];
            for live in lives.into_iter().flatten() {
                visit.call(&live.object)?;
            }
        }
        Ok(())
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

/// Makes the producer's stream wait for the consumer's of `back`, and for `also`.
pub(super) fn give_back(
    py: Python<'_>,
    door: &'static str,
    back: &Back,
    also: Option<Stream>,
) -> Result<Given> {
    let consumer = back.consumer.as_ref();
    let consumer = consumer.filter(|live| back.is_home(live.stream) || live.is_open(py));
    let consumer = consumer.map(|live| live.stream);
    let users = [consumer, also.filter(|also| consumer != Some(*also))];
    let home = back.home(py, &users);
    let make = |user| {
        let (door, edge) = (Door::giving_back(door), plan_return(user, home, Thread::current()));
        order::carry_out(door, &back.driver, back.place, edge, |call| py.detach(call))
    };
    if users == [None; 2] {
        make(None)?;
        return Ok(Given::Now);
    }
    for user in users.into_iter().flatten() {
        make(Some(user))?;
    }
    Ok(if home == Home::Unknown { Given::WhenDone } else { Given::Now })
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.back.process.is_current() {
            std::mem::forget(std::mem::replace(&mut self.managed, Tensor::None));
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

/// A holder that ends.
#[derive(Debug)]
struct Ending {
    kept: Kept,
    /// What giving back came to, once it is done.
    given: Option<Given>,
    /// The end of the consumer's work, where that has to be waited for.
    mark: Option<Mark>,
}

impl Ending {
    fn end(mut self, py: Python<'_>) {
        if !self.is_over(py) {
            parked::park(Box::new(self));
        }
    }

    /// Whether everything is done that has to be before the references go.
    fn advance(&mut self, py: Python<'_>) -> Result<bool> {
        let back = &self.kept.back;
        if !back.process.is_current() {
            return Ok(true);
        }
        let given = match self.given {
            Some(given) => given,
            None => *self.given.insert(give_back(py, "release", back, None)?),
        };
        if given == Given::Now {
            return Ok(true);
        }
        let driver = back.driver.get()?;
        let mark = match self.mark.take() {
            Some(mark) => mark,
            // The legacy default stream stands in for the producer's, and follows the consumer's now.
            None => py.detach(|| order::mark(driver, back.place, Stream::Legacy))?,
        };
        let done = order::is_done(driver, &mark);
        self.mark = Some(mark);
        done
    }
}

impl Parked for Ending {
    fn is_over(&mut self, py: Python<'_>) -> bool {
        match self.advance(py) {
            Ok(over) => over,
            Err(error) => {
                let over = is_hopeless(&error);
                tracing::warn!(
                    target: "cai_bridge", door = "release", device = self.kept.back.place.ordinal,
                    %error, order = "failed", producer = if over { "let go" } else { "kept" },
                    "the memory could not be given back in order"
                );
                over
            }
        }
    }

    fn ripens(&self) -> bool {
        matches!(self.kept.back.driver, Handle::Cuda)
    }
}

/// Whether no later attempt can succeed: the context is gone or broken, and the memory with it.
fn is_hopeless(error: &Error) -> bool {
    /// Shut down, no context, an uncorrectable error, a destroyed context, and what a failed kernel
    /// leaves behind (CUresult 700 to 720 are sticky, but for the peer and context states in between).
    const HOPELESS: [u32; 18] =
        [3, 4, 101, 201, 214, 400, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 999];
    match error.driver_code() {
        Some(failed) => HOPELESS.contains(&failed.code),
        None => error.kind() == Kind::DriverMissing,
    }
}

impl Drop for Keep {
    /// Ends with the interpreter attached, from whatever thread this is. Where the interpreter is
    /// gone, or going, everything is left as it is: a leak at the end of a process harms nobody, a
    /// foreign deleter without its interpreter may.
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            let mut ending = Some(Ending { kept, given: None, mark: None });
            Python::try_attach(|py| {
                unraised::during(py, || {
                    parked::look(py);
                    if let Some(ending) = ending.take() {
                        ending.end(py);
                    }
                });
            });
            std::mem::forget(ending);
        }
    }
}
