//! The driver calls that the bridge makes, and the drivers that answer them.
//!
//! [`cuda`] makes the calls on a real driver, [`simulated`] on a device that needs no GPU, and [`lent`] on the
//! simulated device of another library in the process.

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

/// The driver calls of the bridge. A method makes the CUDA call that its documentation names.
///
/// Run a call marked *may block* or *blocks* without Python's interpreter lock: a host callback that the call waits for
/// could need the lock.
pub trait Driver: Copies + ipc::Ipc + Send + Sync + fmt::Debug {
    /// `cuPointerGetAttributes`; `None` if CUDA does not know the address. Allowed during every capture.
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>>;

    /// `cuDevicePrimaryCtxRetain`, unless this driver has retained the context already.
    fn primary_context(&self, ordinal: i32) -> Result<Context>;

    /// `cuCtxGetCurrent`.
    fn current_context(&self) -> Result<Option<Context>>;

    /// `cuCtxGetDevice`.
    fn current_ordinal(&self) -> Result<i32>;

    /// `cuCtxPushCurrent`.
    fn push_context(&self, context: Context) -> Result<()>;

    /// `cuCtxPopCurrent`.
    fn pop_context(&self) -> Result<()>;

    /// `cuCtxGetId`: the context's number, which no other context of the process ever has. 0 before CUDA 12.
    fn life(&self, context: Context) -> Result<u64>;

    /// An event of `context`, which must be current: a spare event, or one from `cuEventCreate`. Give the event back
    /// with [`Driver::spare_event`].
    fn take_event(&self, context: Context) -> Result<Event>;

    /// Takes an event back for reuse. Never give back an event that [`Driver::wait_external`] has waited for.
    fn spare_event(&self, event: Event);

    /// `cuEventQuery`, in relaxed capture mode. From CUDA 12 on, fails if the event's context is destroyed.
    fn is_reached(&self, event: Event) -> Result<bool>;

    /// `cuEventSynchronize`, in relaxed capture mode. Blocks. From CUDA 12 on, fails if the event's context is
    /// destroyed.
    fn wait_until(&self, event: Event) -> Result<()>;

    /// `cuStreamIsCapturing`, and inside a capture `cuStreamGetCaptureInfo`. Allowed during every capture.
    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus>;

    /// `cuStreamGetFlags`: whether CUDA orders the stream with its context's legacy default stream. Invalidates the
    /// stream's capture, if any.
    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool>;

    /// `cuStreamGetCtx`. For a default stream, the current context.
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context>;

    /// `cuStreamGetId`: the stream's number, which no other stream of the process ever has. 0 if the driver has no such
    /// numbers. Invalidates the stream's capture, if any.
    fn stream_number(&self, stream: Alive<'_>) -> Result<u64>;

    /// `cuEventRecord`. May block.
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamWaitEvent`. May block.
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, on a stream under capture. Each launch of the graph waits for
    /// the event's last record. So keep the event alive, and never record it again. May block.
    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuModuleUnload`, or with some drivers `cuMemAlloc` and `cuMemFree`: waits for all work in the current context,
    /// on destroyed streams too. Blocks. Invalidates no capture.
    fn synchronize_context(&self) -> Result<()>;
}
