//! The end of something that holds memory: given back in order, then let go of; kept until that can be.
//!
//! Where the producer's stream is unknown, or the order cannot be made just now (a graph capture is in
//! the way, or a call of the driver failed), what is held stays until the consumer is done, or the
//! order made ([`parked`]). Where no order can ever be made any more, since the context is gone or
//! broken and the memory with it, it is let go of.

use pyo3::prelude::*;

use super::back::{Back, Given, Unable, give_back};
use super::parked::{self, Parked};
use super::traced::{Began, Came, End};
use crate::driver::Handle;
use crate::error::{Error, Kind};
use crate::order::{self, Mark};
use crate::stream::Stream;

/// What is to be let go of.
pub(super) trait Held: Send {
    /// How its memory goes back.
    fn back(&self) -> &Back;

    /// How it ends, and the address of its array.
    fn tag(&self) -> (End, u64);
}

/// Something that ends, in order.
#[derive(Debug)]
pub(super) struct Ending<H> {
    held: H,
    /// What giving back came to, once it is done.
    given: Option<Given>,
    /// The end of the consumer's work, where that has to be waited for.
    mark: Option<Mark>,
    /// Whether it was said that it could not end yet.
    told: bool,
}

impl<H: Held + 'static> Ending<H> {
    /// The end of `held`, of which `given` says what was done already.
    pub(super) const fn new(held: H, given: Option<Given>) -> Self {
        Self { held, given, mark: None, told: false }
    }

    /// Ends it now, or as soon as that can be. The end has `began` before.
    pub(super) fn end(mut self, py: Python<'_>, began: Began) {
        let (came, tag) = (self.attempt(py), self.held.tag());
        if came == Came::PutOff {
            parked::park(Box::new(self));
        } else {
            drop(self);
        }
        began.released(tag, came);
    }
}

impl<H: Held> Ending<H> {
    /// Whether everything is done that has to be before the references go.
    fn advance(&mut self, py: Python<'_>) -> Result<bool, Unable> {
        let back = self.held.back();
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
        Ok(done?)
    }

    /// What an attempt to end it comes to.
    fn attempt(&mut self, py: Python<'_>) -> Came {
        match self.advance(py) {
            Ok(true) => Came::Done,
            Ok(false) => Came::PutOff,
            Err(Unable::Raised(error)) => {
                error.write_unraisable(py, None);
                Came::PutOff
            }
            Err(Unable::Failed(error)) => {
                let over = is_hopeless(&error);
                if over || !std::mem::replace(&mut self.told, true) {
                    let producer = if over { "let go" } else { "kept" };
                    tracing::warn!(
                        target: "cai_bridge", door = "release",
                        device = self.held.back().place.ordinal, %error, order = "failed", producer,
                        "the memory could not be given back in order"
                    );
                }
                if over { Came::LetGo } else { Came::PutOff }
            }
        }
    }
}

impl<H: Held> Parked for Ending<H> {
    fn is_over(&mut self, py: Python<'_>) -> bool {
        let began = Began::now();
        match self.attempt(py) {
            Came::PutOff => return false,
            Came::Done => began.released(self.held.tag(), Came::DoneLater),
            came => began.released(self.held.tag(), came),
        }
        true
    }

    fn ripens(&self) -> bool {
        matches!(self.held.back().driver, Handle::Cuda)
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
