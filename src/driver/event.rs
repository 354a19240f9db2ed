//! An event of the driver.

use crate::device::Context;

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
    /// The context's number when the event was made. No other context of the process has this number.
    pub life: u64,
}
