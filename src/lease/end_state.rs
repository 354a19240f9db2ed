//! A lease that is ending, and its state.

use super::{EndState, Failure, Holder, Settlement};
use crate::driver::codes::is_final;
use crate::error::Error;

#[derive(Debug)]
pub struct Ending<H: Holder> {
    holder: H,
    state: EndState<H::Mark>,
    reported: bool,
}

impl<H: Holder> Ending<H> {
    pub const fn new(holder: H) -> Self {
        Self { holder, state: EndState::Due, reported: false }
    }

    pub fn settled(holder: H, settled: Settlement<H::Mark>) -> Self {
        Self { holder, state: settled.into(), reported: false }
    }

    pub const fn holder(&self) -> &H {
        &self.holder
    }

    pub const fn mark(&self) -> Option<&H::Mark> {
        match &self.state {
            EndState::Waiting(mark) => Some(mark),
            _ => None,
        }
    }

    pub const fn state(&self) -> EndState {
        match self.state {
            EndState::Due => EndState::Due,
            EndState::Waiting(_) => EndState::Waiting(()),
            EndState::ToRetry => EndState::ToRetry,
            EndState::GivenBack => EndState::GivenBack,
            EndState::Abandoned => EndState::Abandoned,
        }
    }

    /// Whether the holder may be dropped.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, EndState::GivenBack | EndState::Abandoned)
    }

    /// Makes the waits if they are due or to be retried, and asks whether the marked work is done. Returns no error
    /// except an interrupt.
    pub fn advance(&mut self, lock: H::Lock<'_>) -> Result<(), H::Interrupt> {
        if matches!(self.state, EndState::Due | EndState::ToRetry) {
            self.state = match self.holder.settle(lock) {
                Ok(settled) => settled.into(),
                Err(Failure::Failed(error)) => self.failed(&error),
                Err(Failure::Interrupted(interrupt)) => {
                    self.state = EndState::ToRetry;
                    return Err(interrupt);
                }
            };
        }
        if let EndState::Waiting(mark) = &mut self.state {
            match self.holder.is_done(mark) {
                Ok(true) => self.state = EndState::GivenBack,
                Ok(false) => {}
                Err(error) if is_final(&error) => self.state = self.failed(&error),
                Err(error) => self.tell(&error, "kept"),
            }
        }
        Ok(())
    }

    fn failed(&mut self, error: &Error) -> EndState<H::Mark> {
        if is_final(error) {
            self.reported = false;
            self.tell(error, "let go");
            EndState::Abandoned
        } else {
            self.tell(error, "kept");
            EndState::ToRetry
        }
    }

    fn tell(&mut self, error: &Error, producer: &'static str) {
        if tracing::enabled!(target: "cai_bridge", tracing::Level::WARN)
            && !std::mem::replace(&mut self.reported, true)
        {
            tracing::warn!(
                target: "cai_bridge", door = "release", %error, order = "failed", producer,
                "the memory could not be given back in order"
            );
        }
    }
}
