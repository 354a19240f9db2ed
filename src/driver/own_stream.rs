//! A stream of this library's own, which is alive as long as its context.
#![allow(unsafe_code)]

use super::Driver;
use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::{Context, Place};
use crate::error::Result;
use crate::stream::{Alive, Stream, Thread};

/// A stream that this library made in a GPU's primary context, and never destroys.
#[derive(Debug, Clone, Copy)]
pub struct OwnStream {
    native: u64,
    place: Place,
    context: Context,
    life: u64,
}

impl OwnStream {
    /// A new one of the GPU at `place`, whose primary context is `context`, and current.
    pub fn new(driver: &dyn Driver, place: Place, context: Context) -> Result<Self> {
        let life = driver.life(context)?;
        Ok(Self { native: driver.create_own_stream()?, place, context, life })
    }

    /// Its handle.
    pub const fn native(&self) -> u64 {
        self.native
    }

    /// The stream, unless it went with its context.
    pub fn alive(&self, driver: &dyn Driver) -> Result<Alive<'_>> {
        if driver.life(self.context)? != self.life {
            return Err(failed("cuStreamGetCtx", CONTEXT_IS_DESTROYED));
        }
        let stream = Stream::from_native(self.native, Thread::current());
        // SAFETY: `new` made the stream, nothing destroys it, and its context is in the life that it was made in, by the
        // check above.
        Ok(unsafe { Alive::kept(stream, self.place) })
    }
}
