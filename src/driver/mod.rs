//! The door to CUDA's driver: what the bridge asks of it, and which one answers.
//!
//! [`Driver`] is the short list of driver calls that the bridge makes; every method is one call, so
//! that each can be counted, made to fail, and dropped in a test. [`cuda`] makes them on a real
//! driver, [`simulated`] on a device that needs no GPU; those that make copies are in [`copies`],
//! those that reach other processes in [`ipc`].
//! Nothing here decides: [`crate::stream::plan`] says which stream waits for which, and [`crate::order`]
//! makes the waits.

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
pub use self::handle::{Call, Handle, borrow, current, install, prepared};
use crate::capture::Part;
pub use crate::device::{Context, Pointer};
use crate::error::Result;
use crate::stream::Alive;

/// The calls that the bridge makes. Each is one call of the CUDA driver API, named in its text.
///
/// A failed call is an error of kind [`crate::error::Kind::DriverCall`] that names the call and CUDA's code. None of
/// them panics. Those marked *may block* are made with the interpreter lock released: a full launch
/// queue blocks them, and a host callback in that queue may need the lock.
pub trait Driver: Copies + ipc::Ipc + Send + Sync + fmt::Debug {
    /// `cuPointerGetAttributes`: what `pointer` is; `None` where CUDA does not know it. Legal during
    /// any graph capture.
    fn pointer(&self, pointer: u64) -> Result<Option<Pointer>>;

    /// `cuDevicePrimaryCtxRetain`, once a device: its primary context.
    fn primary_context(&self, ordinal: i32) -> Result<Context>;

    /// `cuCtxGetCurrent`: the calling thread's context.
    fn current_context(&self) -> Result<Option<Context>>;

    /// `cuCtxGetDevice`: the ordinal of the calling thread's current context.
    fn current_ordinal(&self) -> Result<i32>;

    /// `cuCtxPushCurrent`.
    fn push_context(&self, context: Context) -> Result<()>;

    /// `cuCtxPopCurrent`.
    fn pop_context(&self) -> Result<()>;

    /// `cuCtxGetId`: the number of a context, which no other context of the process, and no other life of
    /// this one, has. 10 ns (H200, driver 580, 2026-11).
    fn life(&self, context: Context) -> Result<u64>;

    /// `cuEventCreate`, unless one is to spare: an event of `context`, which must be current, that is the
    /// caller's alone until [`Driver::spare_event`] takes it back. Timing is disabled.
    fn take_event(&self, context: Context) -> Result<Event>;

    /// Takes an event back, which is used again: it may be recorded anew as soon as the wait on it is
    /// queued. No driver call.
    fn spare_event(&self, event: Event);

    /// `cuEventQuery`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`, so that no capture
    /// minds: whether the work before the event is done. Does not block. Fails where the event's context is
    /// gone.
    fn is_reached(&self, event: Event) -> Result<bool>;

    /// `cuEventSynchronize`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`, so that no capture minds: the
    /// host waits until the work before the event is done. Blocks. Fails where the event's context is gone.
    fn wait_until(&self, event: Event) -> Result<()>;

    /// `cuStreamIsCapturing`, and `cuStreamGetCaptureInfo` where it is: the stream's part in a graph
    /// capture. Legal at any time.
    fn part(&self, stream: Alive<'_>) -> Result<Part>;

    /// `cuStreamGetFlags`: whether the stream is a blocking one, which the legacy default stream of its
    /// context is ordered with. Not to be asked of a stream that is being captured, whose capture it
    /// ends.
    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool>;

    /// `cuStreamGetCtx`: the context of a stream, where it is a handle's; a default stream's is the
    /// current one.
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context>;

    /// `cuStreamGetId`: the number of a handle's stream, which no other stream of the process has, also a later one
    /// that is given the handle; 0 where the driver does not tell. Not to be asked of a stream that is being captured,
    /// whose capture it ends.
    fn stream_number(&self, stream: Alive<'_>) -> Result<u64>;

    /// `cuEventRecord`. May block.
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamWaitEvent`. May block.
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, on a stream that is being captured: a node of
    /// the graph that waits, whenever the graph runs, for what was recorded last. So the event is never
    /// to be recorded again, nor destroyed: it is not given back. May block.
    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuModuleUnload`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`: the host waits for all work that
    /// is queued in the current context by now, on non-blocking and destroyed streams too. Blocks.
    ///
    /// It ends no capture, in whatever mode, and does not wait for what is captured. Other threads go on queueing
    /// work meanwhile (H100, driver 580, 2026-11).
    fn synchronize_context(&self) -> Result<()>;
}
