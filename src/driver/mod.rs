//! The driver calls that the bridge makes, and the drivers that answer them.
//!
//! [`Driver`] is the short list of these calls. Nearly every method stands for one driver call, so a test can count the
//! calls, make one fail, or suppress it. [`cuda`] makes the calls on a real driver, [`simulated`] on a device that
//! needs no GPU, and [`lent`] on the simulated device of another library in the process. The calls for copies are in
//! [`copies`], the calls for other processes in [`ipc`]. Nothing is decided here: [`crate::stream::plan`] says which
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

/// The driver calls of the bridge. Each method stands for the call of the CUDA driver API that its documentation names.
///
/// If the driver's call fails, the error is of kind [`crate::error::Kind::DriverCall`], with the call's name and CUDA's
/// code. Other failures have other kinds. No method panics. Callers run a call marked *may block* or *blocks* without
/// the interpreter lock. Such a call may wait for queued work, for instance while a launch queue is full, and a host
/// callback in that work may need the lock.
pub trait Driver: Copies + ipc::Ipc + Send + Sync + fmt::Debug {
    /// `cuPointerGetAttributes`: what `pointer` is; `None` if CUDA does not know it. Legal during any graph capture.
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>>;

    /// `cuDevicePrimaryCtxRetain`, once for each device: the device's primary context.
    fn primary_context(&self, ordinal: i32) -> Result<Context>;

    /// `cuCtxGetCurrent`: the calling thread's context.
    fn current_context(&self) -> Result<Option<Context>>;

    /// `cuCtxGetDevice`: the ordinal of the calling thread's current context.
    fn current_ordinal(&self) -> Result<i32>;

    /// `cuCtxPushCurrent`.
    fn push_context(&self, context: Context) -> Result<()>;

    /// `cuCtxPopCurrent`.
    fn pop_context(&self) -> Result<()>;

    /// `cuCtxGetId`: the context's number. No other context of the process has this number, not even a later one at the
    /// same address. Before CUDA 12 there are no numbers, and this returns 0. The crate calls it the *life* of the
    /// context. 10 ns (H200, driver 580, 2026-11).
    fn life(&self, context: Context) -> Result<u64>;

    /// An event of `context`, which must be current: one that was returned before, or a new one by `cuEventCreate`. The
    /// event belongs to the caller until [`Driver::spare_event`] takes it back. Timing is disabled.
    fn take_event(&self, context: Context) -> Result<Event>;

    /// Takes an event back for reuse. The caller must not use it any more. Later records do not change a wait that is
    /// queued already, except one of [`Driver::wait_external`]. CUDA is not called.
    fn spare_event(&self, event: Event);

    /// `cuEventQuery`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`, so that no capture is spoiled:
    /// whether the work before the event is done. Does not block. Fails if the event's context is destroyed; before
    /// CUDA 12 the context must not have been reset.
    fn is_reached(&self, event: Event) -> Result<bool>;

    /// `cuEventSynchronize`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`, so that no capture is
    /// spoiled: the host waits for the work before the event. Blocks. Fails if the event's context is destroyed; before
    /// CUDA 12 the context must not have been reset.
    fn wait_until(&self, event: Event) -> Result<()>;

    /// `cuStreamIsCapturing`, and inside a capture `cuStreamGetCaptureInfo`: the stream's state with respect to
    /// captures. Legal at any time.
    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus>;

    /// `cuStreamGetFlags`: whether the stream is blocking, so that CUDA orders it with the legacy default stream of
    /// its context. Must not be called for a stream under capture: the call spoils the capture.
    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool>;

    /// `cuStreamGetCtx`: the context of a handle's stream. For a default stream it is the current context.
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context>;

    /// `cuStreamGetId`: the number of a handle's stream. No other stream of the process has it, not even a later one
    /// with the same handle. 0 if the driver has no such numbers. Must not be called for a stream under capture: the
    /// call spoils the capture.
    fn stream_number(&self, stream: Alive<'_>) -> Result<u64>;

    /// `cuEventRecord`. May block.
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamWaitEvent`. May block.
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, on a stream under capture. The wait becomes a graph node that
    /// waits, at each launch, for the event's last record. So the event must never be recorded again, be destroyed, or
    /// be passed to [`Driver::spare_event`]. May block.
    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuModuleUnload`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`: the host waits for all work
    /// queued in the current context so far, on non-blocking and destroyed streams too. Blocks.
    ///
    /// It spoils no capture, in any mode, and does not wait for captured work. Other threads go on queueing work during
    /// `cuModuleUnload` (H100, driver 580, 2026-11). Before CUDA 12, and if `cuModuleUnload` fails or does not wait,
    /// `cuMemAlloc` and `cuMemFree` take its place. They hold up other threads' launches.
    fn synchronize_context(&self) -> Result<()>;
}
