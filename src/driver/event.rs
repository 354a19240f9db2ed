//! An event of the driver.

use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::Context;
use crate::error::Result;

/// An event of the driver, `CUevent`, with the context that it was made in.
///
/// A context can be destroyed and its address reused (`cuDevicePrimaryCtxReset`, `cuCtxDestroy`). So an event records
/// the number of its context. Using an event whose context was destroyed kills the process (SIGSEGV in `cuEventQuery`,
/// H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `CUevent`.
    pub handle: usize,
    /// The context of the event.
    pub context: Context,
    /// The context's number when the event was made ([`Driver::life`](super::Driver::life)).
    pub life: u64,
}

impl Event {
    /// If the event's context is destroyed, fails as the driver call `call` would. `life` is the number that the driver
    /// gives for the context now.
    pub fn check_life(self, life: u64, call: &'static str) -> Result<()> {
        if life == self.life { Ok(()) } else { Err(failed(call, CONTEXT_IS_DESTROYED)) }
    }
}
