//! An event of the driver.

use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::Context;
use crate::error::Result;

/// An event of the driver, `CUevent`.
///
/// Using an event of a destroyed context can kill the process (SIGSEGV in `cuEventQuery`, H200, driver 580, 2026-11). A
/// later context can have the same address, so `life` is the context's number (`cuCtxGetId`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub handle: usize,
    pub context: Context,
    pub life: u64,
}

impl Event {
    /// `life` must be the number of the context that has the address `self.context` now. Fails if `life` is not
    /// `self.life`: the event's context was destroyed.
    pub fn check_life(self, life: u64, call: &'static str) -> Result<()> {
        if life == self.life { Ok(()) } else { Err(failed(call, CONTEXT_IS_DESTROYED)) }
    }
}
