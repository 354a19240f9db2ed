//! A stream that the bridge owns. It exists as long as its context.
#![allow(unsafe_code)]

use super::Driver;
use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::{Context, Place};
use crate::error::Result;
use crate::stream::{Alive, Stream, Thread};

/// A stream that the bridge made in a GPU's primary context, and never destroys.
#[derive(Debug, Clone, Copy)]
pub struct OwnStream {
    native: u64,
    place: Place,
    context: Context,
    life: u64,
}

impl OwnStream {
    /// A new stream on the GPU at `place`, whose primary context `context` is current.
    pub fn new(driver: &dyn Driver, place: Place, context: Context) -> Result<Self> {
        let life = driver.life(context)?;
        Ok(Self { native: driver.create_own_stream()?, place, context, life })
    }

    /// The stream's handle.
    pub const fn native(&self) -> u64 {
        self.native
    }

    /// The stream. Fails if it was destroyed with its context. Before CUDA 12, does not notice that the context was
    /// reset.
    pub fn alive(&self, driver: &dyn Driver) -> Result<Alive<'_>> {
        if driver.life(self.context)? != self.life {
            return Err(failed("cuStreamGetCtx", CONTEXT_IS_DESTROYED));
        }
        let stream = Stream::from_native(self.native, Thread::current());
        // SAFETY: `new` made the stream, and nothing destroys it but the end of its context. The check above shows that
        // the context is still the same one. Before CUDA 12 there is no number to check; there the program must not
        // have reset the context.
        Ok(unsafe { Alive::kept(stream, self.place) })
    }
}
