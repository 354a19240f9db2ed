//! A stream that the bridge owns.
#![allow(unsafe_code)]

use super::Driver;
use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::{Context, Place};
use crate::error::Result;
use crate::stream::{Alive, Stream, Thread};

/// A stream in a GPU's primary context. The bridge never destroys the stream.
#[derive(Debug, Clone, Copy)]
pub struct OwnStream {
    native: u64,
    place: Place,
    context: Context,
    life: u64,
}

impl OwnStream {
    /// `context`, the primary context of the GPU at `place`, must be current.
    pub fn new(driver: &dyn Driver, place: Place, context: Context) -> Result<Self> {
        let life = driver.life(context)?;
        Ok(Self { native: driver.create_own_stream()?, place, context, life })
    }

    pub const fn native(&self) -> u64 {
        self.native
    }

    /// Fails if the stream was destroyed with its context. Before CUDA 12, a reset of the context goes unnoticed.
    pub fn alive(&self, driver: &dyn Driver) -> Result<Alive<'_>> {
        if driver.life(self.context)? != self.life {
            return Err(failed("cuStreamGetCtx", CONTEXT_IS_DESTROYED));
        }
        let stream = Stream::from_native(self.native, Thread::current());
        // SAFETY: only the end of its context destroys the stream, and the check above shows that the context is the
        // same. Before CUDA 12 there is no number to check; there the program must not have reset the context.
        Ok(unsafe { Alive::kept(stream, self.place) })
    }
}
