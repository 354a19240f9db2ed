//! The memory of an array that Rust code imported from a Python object, or that C code imported by the C interface.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::array::origin::Origin;
use crate::array::users::Users;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::{Error, Kind, Result};
use crate::lease::{Failure, Lease};
use crate::order::{self, Purpose};
use crate::py::errors::interrupted;
use crate::py::hand_over::order_for;
use crate::py::interpreter::{detach, enter, is_interrupt};
use crate::py::lease::{HeldMemory, MemoryGuard, look};
use crate::py::observe::{CallSpan, EndedBy};
use crate::py::source::{check_stream, ready_streams};
use crate::py::streams::KnownStream;
use crate::stream::{Alive, Ready};

#[derive(Debug)]
pub(crate) struct PythonMemory {
    lease: Lease<MemoryGuard>,
    driver: Handle,
    place: Place,
    ready: Mutex<Ready>,
    users: Users,
}

impl PythonMemory {
    pub(crate) fn new(mut source: Box<HeldMemory>) -> (Descriptor, Self) {
        let array = source.take_array(EndedBy::Call);
        let (driver, place) = (source.driver.clone(), source.producer_side.place);
        let ready = Mutex::new(array.pending(source.ready));
        let lease = Lease::new(MemoryGuard::new(source));
        (array, Self { lease, driver, place, ready, users: Users::default() })
    }

    pub(crate) fn source(&self, py: Python<'_>, array: &Descriptor) -> PyResult<Box<HeldMemory>> {
        let mut source = self.share_for_hand_over(py)?;
        source.array = array.clone();
        Ok(source)
    }

    pub(crate) fn check_stream(&self, array: &Descriptor, stream: Alive<'_>) -> Result<Place> {
        check_stream(array, &self.driver, Some(stream), stream.place())
    }

    /// Makes the producer's stream, or the host, wait for the stream `user`. If that fails, tries to record `user` for
    /// the end of the lease.
    pub(crate) fn give_back_or_owe(&self, user: Alive<'_>) -> Result<()> {
        inside(|py| {
            self.order_to(py, user).map_err(|trouble| match self.owe(py, user) {
                Err(interrupt) if is_interrupt(py, &interrupt) => interrupt.into(),
                _ => trouble,
            })
        })
    }

    /// The driver handles of up to two streams that a user of the memory must wait for. Unused entries are 0.
    pub(crate) fn ready_on(&self) -> Result<[u64; 2]> {
        let mut found = [0; 2];
        inside(|py| {
            let held = self.share_for_hand_over(py)?;
            if let Some((first, also)) = ready_streams(py, "C", &held)? {
                found = [first.native(), also.map_or(0, Alive::native)];
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn owe(&self, py: Python<'_>, user: Alive<'_>) -> PyResult<()> {
        let (known, failed) = match KnownStream::of(py, &self.driver, user) {
            Ok(known) => (known, Ok(())),
            Err(failed) => (KnownStream::unasked(user.stream()), Err(failed)),
        };
        let again = self.lease.with(|guard| guard.memory_mut()?.owe(py, known, user.place()));
        drop(again);
        failed
    }

    fn ready(&self) -> Ready {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, py: Python<'_>) -> Result<Box<HeldMemory>> {
        let shared = self.lease.with(|guard| guard.memory_mut().map(|held| held.share(py)));
        shared.flatten().unwrap_or_else(|| Err(Error::new(Kind::Released, "a released array")))
    }

    /// Like [`Self::share`]. If the producer had named no stream, asks the producer again.
    fn share_for_hand_over(&self, py: Python<'_>) -> PyResult<Box<HeldMemory>> {
        let mut shared = self.share(py)?;
        shared.ready_by_now(py, self.ready())?;
        Ok(shared)
    }

    fn order_to(&self, py: Python<'_>, user: Alive<'_>) -> Result<(), Failure<PyErr>> {
        look(py);
        let (held, span) = (self.share(py)?, CallSpan::begin());
        let settled = held.settle_for(py, user)?;
        // The producer's next work runs after the work of `user`, so the memory is ready on the producer's stream.
        let producer = held.producer(py)?.stream();
        {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            if *ready == Ready::Nothing {
                *ready = Ready::On(producer);
            }
        }
        MemoryGuard::new(held).settled(py, settled, span);
        Ok(())
    }
}

/// Runs `call` with the interpreter's lock. Fails if this thread cannot enter the interpreter.
fn inside(call: impl FnOnce(Python<'_>) -> Result<(), Failure<PyErr>>) -> Result<()> {
    let done = enter(|py| {
        call(py).map_err(|trouble| match trouble {
            Failure::Failed(error) => error,
            Failure::Interrupted(raised) => interrupted(py, raised),
        })
    });
    done.unwrap_or_else(|| Err(Error::new(Kind::Interrupted, "a call after the interpreter's end")))
}

impl Origin for PythonMemory {
    fn driver(&self) -> &Handle {
        &self.driver
    }

    fn place(&self) -> Place {
        self.place
    }

    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()> {
        inside(|py| order_for(door, py, &*self.share_for_hand_over(py)?, to).map(drop))
    }

    fn give_back(&self, user: Alive<'_>) -> Result<()> {
        inside(|py| self.order_to(py, user))
    }

    fn users(&self) -> &Users {
        &self.users
    }

    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        let door = Purpose::hand_over("scope");
        inside(|py| {
            order::connect(door, &self.driver, from, to, |call| detach(py, call))?;
            Ok(())
        })
    }
}
