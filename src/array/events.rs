//! The events by which cudarc orders the streams that use its memory.
//!
//! If a use of memory makes cudarc record an event or wait for one, and this fails, cudarc keeps the error in its
//! context. The next cudarc call that checks the context, on any thread, returns the error. The end of a borrow relies
//! on its waits, so this module makes these waits itself and gets their errors.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUevent, CUevent_wait_flags};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use super::stream::WorkStream;
use super::unlocked::{answered, unlocked};
use crate::driver::Handle;
use crate::error::{Error, Result};
use crate::order::{wait_on_host, within};

/// The events of some memory, each a `CUevent` as an integer. cudarc records `read` after a read and `written` after a
/// write; managed memory has one event for both. `None` means no event: a slice made while event tracking was off has
/// neither.
pub(super) struct CudarcEvents {
    read: Option<usize>,
    written: Option<usize>,
    /// Whether recording one of the events may have failed.
    unsure: AtomicBool,
}

impl CudarcEvents {
    /// The events of `memory`, and the device address of `memory`.
    pub(super) fn of<T>(
        memory: &mut (impl DevicePtr<T> + DevicePtrMut<T> + Send),
        stream: &CudaStream,
    ) -> (Self, u64) {
        // Both calls may also make `stream` wait, and errors of these waits are dropped here. A caller that needs the
        // waits calls `CudarcEvents::wait`, which makes them itself and returns their errors.
        undisturbed(stream.context(), || {
            let read = event_of(memory.device_ptr(stream).1);
            let (ptr, written) = memory.device_ptr_mut(stream);
            (Self { read, written: event_of(written), unsure: AtomicBool::new(false) }, ptr)
        })
    }

    /// Records the memory's write event on `stream`. If the context manages stream synchronization, cudarc's later uses
    /// of the memory, on any stream of the context, then wait for the work queued on `stream`. Does nothing for memory
    /// without a write event.
    ///
    /// # Safety
    ///
    /// The memory that the events belong to is alive, or was forgotten without being dropped.
    pub(super) unsafe fn record(&self, stream: &Arc<CudaStream>) -> Result<()> {
        each(stream, [self.written, None], |event| {
            // SAFETY: the caller promises that the memory, and so its event, exists; `stream` keeps the stream alive.
            unsafe { result::event::record(event, stream.cu_stream()) }
        })
    }

    /// Makes later work on `stream` run after the last read and the last write of the memory that cudarc has recorded,
    /// each if the memory has an event for it. If recording an event may have failed, with or without events, the host
    /// waits for all streams of the context instead.
    ///
    /// # Safety
    ///
    /// The memory that the events belong to is alive, or was forgotten without being dropped.
    pub(super) unsafe fn wait(&self, stream: &Arc<CudaStream>) -> Result<()> {
        if has_unsaid(stream.context()) {
            self.unsure.store(true, Ordering::Relaxed);
        }
        if !self.unsure.load(Ordering::Relaxed) {
            return each(stream, [self.read, self.written], |event| {
                let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                // SAFETY: the caller promises that the memory, and so its event, exists; `stream` keeps the stream
                // alive.
                unsafe { result::stream::wait_event(stream.cu_stream(), event, flags) }
            });
        }
        synchronize(stream)
    }
}

/// Makes `stream` wait for the last write to `memory` that cudarc has recorded, and returns the device address of
/// `memory`. If the record of that write or cudarc's wait may have failed, the host waits for all streams of the context.
pub(super) fn read<T>(
    memory: &(impl DevicePtr<T> + Sync),
    stream: &Arc<CudaStream>,
) -> Result<u64> {
    let mut is_unsure = has_unsaid(stream.context());
    let ptr = undisturbed(stream.context(), || {
        let (ptr, used) = memory.device_ptr(stream);
        event_of(used);
        // If `device_ptr` left an error in the context, its wait may have failed.
        is_unsure |= stream.context().check_err().is_err();
        ptr
    });
    if is_unsure {
        synchronize(stream)?;
    }
    Ok(ptr)
}

/// Makes cudarc's later writes to `memory`, on any stream of the context, run after the work queued on `stream`, by
/// recording the memory's read event. If that fails, the host waits for all streams of the context. Memory without a
/// read event gets no wait, except what its `DevicePtr` does itself.
pub(super) fn end_read<T>(
    memory: &(impl DevicePtr<T> + Sync),
    stream: &Arc<CudaStream>,
) -> Result<()> {
    let event = undisturbed(stream.context(), || event_of(memory.device_ptr(stream).1));
    let Some(event) = event else { return Ok(()) };
    let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    each(stream, [Some(event), None], |event| {
        // The event stands for one reader only. So make `stream` wait for the previous reader, and then record the
        // event for this one.
        // SAFETY: `memory` is borrowed, so it is alive, and it keeps its event alive; the `Arc` keeps the stream alive.
        unsafe { result::stream::wait_event(stream.cu_stream(), event, flags) }?;
        // SAFETY: `memory` keeps its event alive, and the `Arc` the stream.
        unsafe { result::event::record(event, stream.cu_stream()) }
    })
    .or_else(|_| synchronize(stream))
}

/// Makes the host wait for the work on all streams of the context of `stream`.
fn synchronize(stream: &Arc<CudaStream>) -> Result<()> {
    let mut waited = Ok(());
    unlocked(&mut || {
        waited = Handle::Cuda.get().and_then(|driver| wait_on_host(driver, stream.place()));
    });
    waited
}

/// Runs `call` on each event that is not `None`, with the stream's context current and without the interpreter's lock.
/// Stops at the first error. May block.
fn each(
    stream: &Arc<CudaStream>,
    events: [Option<usize>; 2],
    call: impl Fn(CUevent) -> Result<(), DriverError> + Sync,
) -> Result<()> {
    let mut done = Ok(());
    unlocked(&mut || {
        done = Handle::Cuda.get().and_then(|driver| {
            let call = |event| Ok::<_, Error>(call(event as CUevent)?);
            within(driver, stream.place(), |_| events.into_iter().flatten().try_for_each(call))
        });
    });
    done
}

/// Takes the event out of `used`, so that dropping `used` does not record it. `None` if `used` has no event; a `Sync`
/// guard makes the host wait for its stream.
fn event_of(mut used: SyncOnDrop<'_>) -> Option<usize> {
    match &mut used {
        SyncOnDrop::Record(event) => event.take().map(|(event, _)| event.cu_event() as usize),
        SyncOnDrop::Sync(_) => None,
    }
}

/// Whether an earlier call of cudarc, perhaps the record of an event, failed and could not report it. Leaves the error
/// for the next caller.
fn has_unsaid(context: &CudaContext) -> bool {
    let unsaid = context.check_err();
    let has = unsaid.is_err();
    context.record_err(unsaid);
    has
}

/// Runs `call`, drops the error that it left in the context, and puts back the error that the context held before. The
/// interpreter's lock is released meanwhile: memory that says where it is makes a stream wait, which a full launch queue
/// blocks, and memory without events makes the host wait.
fn undisturbed<R: Send>(context: &CudaContext, call: impl FnOnce() -> R + Send) -> R {
    let before = context.check_err();
    let done = answered(call);
    let _ = context.check_err();
    context.record_err(before);
    done
}
