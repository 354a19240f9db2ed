//! How a copy on a GPU ends: its memory goes back, in the order of the stream that it was made on.
//!
//! Where nobody vouches for that stream, the host waits for the context first. A capture that either
//! would end is waited for ([`super::parked`]).

use pyo3::prelude::*;

use super::adopt::Live;
use super::back::Unable;
use super::keep::Keep;
use super::parked::{self, Parked};
use super::source::check_host_wait;
use super::traced::{Began, Came};
use super::unraised;
use crate::buffer::{Buffer, Queue, Return};
use crate::driver::Handle;
use crate::error::Kind;
use crate::order;
use crate::stream::Thread;

/// What a managed tensor of a copy on a GPU holds.
pub(super) struct Copied(Option<Copy>);

impl Copied {
    /// The copy in `buffer`, whose stream `live` keeps alive, where anybody does, and `keeper` a context
    /// that is not primary.
    pub(super) fn new(mut buffer: Buffer, live: Option<Live>, keeper: Option<Keep>) -> Self {
        if live.is_none() {
            buffer.set_return(Return::Waiting);
        }
        Self(Some(Copy { buffer: Some(buffer), live, _keeper: keeper }))
    }
}

/// A copy on a GPU.
struct Copy {
    /// Its memory; `None` once it is given back.
    buffer: Option<Buffer>,
    /// What keeps the stream alive that it goes back on.
    live: Option<Live>,
    /// What keeps a context alive that is not primary.
    _keeper: Option<Keep>,
}

impl Copy {
    /// Settles how the memory goes back: what its end will have come to. Refused while that would end a
    /// capture.
    fn settle(&mut self, py: Python<'_>) -> Result<Came, Unable> {
        let Some(buffer) = &mut self.buffer else { return Ok(Came::Done) };
        if buffer.ptr() == 0 || !buffer.is_current() {
            return Ok(Came::Done);
        }
        // A stream that is not alive any more is not asked for its part in a capture either.
        if let Some(live) = &self.live
            && !buffer.waits()
            && !live.is_open(py)?
        {
            buffer.set_return(Return::Waiting);
        }
        let (Queue { stream, place }, driver) = (buffer.queue(), buffer.driver());
        let why = (Kind::CaptureCopy, "a copy's end");
        let Ok(calls) = driver.get() else { return Ok(Came::Done) };
        if buffer.waits() {
            check_host_wait(py, driver, place, why)?;
            return Ok(Came::DoneWaiting);
        }
        let stream = stream.seen_from(Thread::current());
        order::check_captures(calls, place, &[stream], why)?;
        Ok(Came::Done)
    }

    /// Gives the memory back, if that can be now.
    fn attempt(&mut self, py: Python<'_>) -> Came {
        match self.settle(py) {
            Ok(came) => {
                let buffer = self.buffer.take();
                py.detach(|| drop(buffer));
                came
            }
            Err(Unable::Failed(_)) => Came::PutOff,
            Err(Unable::Raised(error)) => {
                error.write_unraisable(py, None);
                Came::PutOff
            }
        }
    }

    /// Its memory's address.
    fn ptr(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::ptr)
    }
}

impl Parked for Copy {
    fn is_over(&mut self, py: Python<'_>) -> bool {
        let (began, ptr) = (Began::now(), self.ptr());
        let is_over = self.attempt(py) != Came::PutOff;
        if is_over {
            began.copy_released(ptr, Came::DoneLater);
        }
        is_over
    }

    fn ripens(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| matches!(buffer.driver(), Handle::Cuda))
    }
}

impl Drop for Copied {
    /// Gives the memory back from whatever thread this is, without the interpreter lock, since that may
    /// wait; after a capture that it would end. Where the interpreter is gone, so may the driver be: the
    /// memory is left to the end of the process.
    fn drop(&mut self) {
        let (mut held, began) = (self.0.take(), Began::now());
        Python::try_attach(|py| {
            unraised::during(py, || {
                let Some(mut copy) = held.take() else { return };
                let (ptr, came) = (copy.ptr(), copy.attempt(py));
                if came == Came::PutOff {
                    parked::park(Box::new(copy));
                }
                began.copy_released(ptr, came);
            });
        });
        if let Some(copy) = held {
            began.copy_released(copy.ptr(), Came::Lost);
            std::mem::forget(copy);
        }
    }
}
