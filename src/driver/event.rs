//! An event of the driver.

use crate::device::Context;

/// An event of the driver, `CUevent`, in whatever context it was made.
///
/// Contexts end, and their addresses are used again (`cuDevicePrimaryCtxReset`, `cuCtxDestroy`), so an
/// event notes which life of its context it belongs to: to touch one of an earlier life ends the process
/// (SIGSEGV on `cuEventQuery`, H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `CUevent`.
    pub handle: usize,
    /// The context that it was made in.
    pub context: Context,
    /// The context's number then, which no other context of the process has.
    pub life: u64,
}
