//! How memory goes back to its producer: the producer's stream waits for the consumer's.
//!
//! Nothing is touched but streams that are alive ([`Live`]); where the producer's is unknown the legacy
//! default stream stands in for it, and the memory must be kept besides until the consumer is done.

use pyo3::prelude::*;

use super::adopt::Live;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::Result;
use crate::order::{self, Door, Place};
use crate::stream::{Home, Stream, Thread, plan_return};

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

impl Back {
    /// Memory of this process, which has no consumer yet.
    pub(super) fn new(driver: &Handle, place: Place, home: Option<Live>) -> Self {
        let (driver, process) = (driver.clone(), Process::current());
        Self { driver, place, home, consumer: None, process }
    }

    /// Whether `stream` is the producer's own.
    pub(super) fn is_home(&self, stream: Stream) -> bool {
        self.home.as_ref().is_some_and(|home| home.stream == stream)
    }

    /// Whether the references may go at once: no stream has to wait for another, nor has it to be found
    /// out whether it does.
    pub(super) fn is_settled(&self) -> bool {
        self.consumer.as_ref().is_none_or(|live| self.is_home(live.stream))
    }

    /// The producer's stream, for `users` of the memory to be waited for there.
    pub(super) fn home(&self, py: Python<'_>, users: &[Option<Stream>]) -> Home {
        let needed = users.iter().flatten().any(|user| !self.is_home(*user));
        let home = self.home.as_ref();
        let home = home.and_then(|home| if needed { home.now(py) } else { Some(home.stream) });
        home.map_or(Home::Unknown, Home::On)
    }

    pub(super) fn clone_ref(&self, py: Python<'_>, consumer: Option<Live>) -> Self {
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
            return Some(Live::same(stream, object));
        }
        Live::new(py, stream, object, &self.driver, self.place.ordinal)
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
