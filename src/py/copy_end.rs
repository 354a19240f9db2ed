//! The end of a copy on a GPU: its memory goes back once, in the order of its stream, or once the host
//! has waited where nobody vouches for that stream any more.

use pyo3::prelude::*;

use super::adopt::{self, Live};
use super::keep::Keep;
use super::parked::{self, Parked};
use super::traced::{Began, Came};
use super::unraised;
use crate::buffer::{Buffer, Return};
use crate::driver::Handle;
use crate::error::Kind;
use crate::order;
use crate::stream::{Stream, Thread};

/// What a managed tensor of a copy on a GPU holds.
pub(super) struct Copied(Option<Copy>);

impl Copied {
    /// Holds the memory of a copy, what keeps the stream alive that it goes back on, and what keeps a
    /// context alive that is not primary.
    pub(super) const fn new(buffer: Buffer, live: Option<Live>, keeper: Option<Keep>) -> Self {
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
    /// Whether a capture is in the way, which giving the memory back would end.
    fn is_barred(py: Python<'_>, buffer: &Buffer) -> bool {
        let queue = buffer.queue();
        let mut streams = vec![queue.stream.seen_from(Thread::current())];
        if buffer.waits() {
            streams = adopt::current_streams(py, buffer.driver(), queue.place.ordinal);
            streams.extend([Stream::Legacy, Stream::PerThread(Thread::current())]);
        }
        let why = (Kind::CaptureCopy, "a copy's end");
        let asked = buffer.driver().get();
        asked.is_ok_and(|driver| order::check_captures(driver, queue.place, &streams, why).is_err())
    }

    /// Gives the memory back, if that can be now.
    fn attempt(&mut self, py: Python<'_>) -> Came {
        let Some(mut buffer) = self.buffer.take() else { return Came::Done };
        // A stream that is not alive any more is not asked for its part in a capture either.
        if !buffer.waits()
            && self.live.as_ref().is_some_and(|live| !live.is_open(py).unwrap_or(false))
        {
            buffer.set_return(Return::Waiting);
        }
        if buffer.is_current() && buffer.ptr() != 0 && Self::is_barred(py, &buffer) {
            self.buffer = Some(buffer);
            return Came::PutOff;
        }
        let came = if buffer.waits() { Came::DoneWaiting } else { Came::Done };
        py.detach(|| drop(buffer));
        came
    }

    /// Its memory's address.
    fn ptr(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::ptr)
    }
}

impl Parked for Copy {
    fn is_over(&mut self, py: Python<'_>) -> bool {
        let (began, ptr) = (Began::now(), self.ptr());
        let over = self.attempt(py) != Came::PutOff;
        if over {
            began.copy_released(ptr, Came::DoneLater);
        }
        over
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
