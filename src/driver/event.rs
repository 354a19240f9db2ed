//! An event of the driver.

use super::codes::{CONTEXT_IS_DESTROYED, failed};
use crate::device::Context;
use crate::error::Result;

/// An event of the driver, `CUevent`, with the context that it was made in.
///
/// A context can be destroyed and its address reused (`cuDevicePrimaryCtxReset`, `cuCtxDestroy`). So an event records
/// the number of its context. Using an event whose context was destroyed can kill the process (SIGSEGV in
/// `cuEventQuery`, H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The `CUevent`; on a simulated device the device's own number.
    pub handle: usize,
    /// The context that the event was made in.
    pub context: Context,
    /// The context's number when the event was made ([`Driver::life`](super::Driver::life)).
    pub life: u64,
}

impl Event {
    /// Fails with `CUDA_ERROR_CONTEXT_IS_DESTROYED`, as if `call` had returned it, if `life` is not the number in the
    /// event. `life` is what [`Driver::life`](super::Driver::life) returns now for the event's context.
    pub fn check_life(self, life: u64, call: &'static str) -> Result<()> {
        if life == self.life { Ok(()) } else { Err(failed(call, CONTEXT_IS_DESTROYED)) }
    }
}
