//! The driver calls that the bridge makes, and the drivers that answer them.
//!
//! [`cuda`] makes the calls on a real driver, [`simulated`] on a device that needs no GPU, and [`lent`] on the
//! simulated device of another library in the process. Nothing is decided here: [`crate::stream::plan`] says which
//! stream waits for which, and [`crate::order`] makes the waits.

pub mod codes;
pub mod copies;
pub mod cuda;
mod event;
pub mod fork;
mod handle;
pub mod host;
pub mod ipc;
pub mod lent;
pub mod own_stream;
pub mod simulated;

use std::fmt;

use self::copies::Copies;
pub use self::event::Event;
pub use self::handle::{BlockingCall, Handle, borrow, current, install, prepared};
use crate::capture::CaptureStatus;
pub use crate::device::{Context, PointerAttributes};
use crate::error::Result;
use crate::stream::Alive;

/// The driver calls of the bridge. A method makes the CUDA call that its documentation names, so a test can count the
/// calls, make one fail, or suppress it.
///
/// If the driver's call fails, the error is of kind [`crate::error::Kind::DriverCall`]. No method panics. Callers run a
/// call marked *may block* or *blocks* without the interpreter lock: the call may wait for queued work, and a host
/// callback in that work may need the lock.
pub trait Driver: Copies + ipc::Ipc + Send + Sync + fmt::Debug {
    /// `cuPointerGetAttributes`; `None` if CUDA does not know the address. Allowed during every capture.
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>>;

    /// `cuDevicePrimaryCtxRetain`, once for each device.
    fn primary_context(&self, ordinal: i32) -> Result<Context>;

    /// `cuCtxGetCurrent`.
    fn current_context(&self) -> Result<Option<Context>>;

    /// `cuCtxGetDevice`.
    fn current_ordinal(&self) -> Result<i32>;

    /// `cuCtxPushCurrent`.
    fn push_context(&self, context: Context) -> Result<()>;

    /// `cuCtxPopCurrent`.
    fn pop_context(&self) -> Result<()>;

    /// `cuCtxGetId`: the context's number, which no other context of the process has, not even a later one at the same
    /// address. 0 before CUDA 12. Takes 10 ns (H200, driver 580, 2026-11).
    fn life(&self, context: Context) -> Result<u64>;

    /// An event of `context`, which must be current: a spare one, or a new one by `cuEventCreate`. The event belongs to
    /// the caller until [`Driver::spare_event`] takes it back. Timing is disabled.
    fn take_event(&self, context: Context) -> Result<Event>;

    /// Takes an event back for reuse, without a call of CUDA. A queued wait for the event keeps its meaning, except one
    /// of [`Driver::wait_external`].
    fn spare_event(&self, event: Event);

    /// `cuEventQuery`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`. Does not block. Fails if the event's
    /// context is destroyed; before CUDA 12 the context must not have been reset.
    fn is_reached(&self, event: Event) -> Result<bool>;

    /// `cuEventSynchronize`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`. Blocks. Fails if the event's
    /// context is destroyed; before CUDA 12 the context must not have been reset.
    fn wait_until(&self, event: Event) -> Result<()>;

    /// `cuStreamIsCapturing`, and inside a capture `cuStreamGetCaptureInfo`. Allowed during every capture.
    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus>;

    /// `cuStreamGetFlags`: whether CUDA orders the stream with the legacy default stream of its context. Spoils the
    /// capture of a stream under capture.
    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool>;

    /// `cuStreamGetCtx`. For a default stream, the current context.
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context>;

    /// `cuStreamGetId`: the stream's number, which no other stream of the process has, not even a later one with the
    /// same handle. 0 if the driver has no such numbers. Spoils the capture of a stream under capture.
    fn stream_number(&self, stream: Alive<'_>) -> Result<u64>;

    /// `cuEventRecord`. May block.
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamWaitEvent`. May block.
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, on a stream under capture. At each launch, the graph waits
    /// for the event's last record. So the event must never be recorded again, be destroyed, or be passed to
    /// [`Driver::spare_event`]. May block.
    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// The host waits for all work queued in the current context so far, on non-blocking and destroyed streams too.
    /// Blocks. Spoils no capture, in any mode, and does not wait for captured work.
    ///
    /// From CUDA 12 on the call is `cuModuleUnload`, and other threads go on queueing work (H100, driver 580, 2026-11).
    /// If `cuModuleUnload` fails or does not wait, `cuMemAlloc` and `cuMemFree` take its place.
    fn synchronize_context(&self) -> Result<()>;
}
