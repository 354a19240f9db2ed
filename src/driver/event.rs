//! An event of the driver.

use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::Context;
use crate::error::Result;

/// A driver's event, `CUevent`.
///
/// A context can be destroyed and its address reused (`cuDevicePrimaryCtxReset`, `cuCtxDestroy`). Using an event of a
/// destroyed context can kill the process (SIGSEGV in `cuEventQuery`, H200, driver 580, 2026-11). So an event records
/// its context's number, `life`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub handle: usize,
    pub context: Context,
    /// The number of `context` when the event was made ([`Driver::life`](super::Driver::life)).
    pub life: u64,
}

impl Event {
    /// Fails if the event's `life` is not `life`, the present number of its context. `call` is the driver's call in the
    /// error.
    pub fn check_life(self, life: u64, call: &'static str) -> Result<()> {
        if life == self.life { Ok(()) } else { Err(failed(call, CONTEXT_IS_DESTROYED)) }
    }
}
