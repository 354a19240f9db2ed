//! The events by which cudarc orders the streams that use its memory. If cudarc fails to record or wait for such an
//! event, it keeps the error in its context, and a later cudarc call of any thread returns the error. This module makes
//! the waits itself, or asks the context for an error after cudarc has made them.
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

/// The `CUevent`s that cudarc records after reads and after writes of some memory, perhaps one event for both. `None`
/// if the memory has no such event.
pub(super) struct CudarcEvents {
    read: Option<usize>,
    written: Option<usize>,
    /// Set once a wait has found an error in cudarc's context: perhaps an event was not recorded.
    unsure: AtomicBool,
}

impl CudarcEvents {
    /// Also returns the device address of `memory`.
    pub(super) fn of<T>(
        memory: &mut (impl DevicePtr<T> + DevicePtrMut<T> + Send),
        stream: &CudaStream,
    ) -> (Self, u64) {
        // `device_ptr` and `device_ptr_mut` can make waits, whose errors are dropped here. A caller that needs the
        // waits calls `wait`.
        undisturbed(stream.context(), || {
            let read = event_of(memory.device_ptr(stream).1);
            let (ptr, written) = memory.device_ptr_mut(stream);
            (Self { read, written: event_of(written), unsure: AtomicBool::new(false) }, ptr)
        })
    }

    /// Records the memory's write event, if the memory has one, on `stream`.
    ///
    /// # Safety
    ///
    /// The memory that the events belong to is alive, or was forgotten without being dropped.
    pub(super) unsafe fn record(&self, stream: &Arc<CudaStream>) -> Result<()> {
        each(stream, [self.written, None], |event| {
            // SAFETY: the caller promises that the event exists; `stream` keeps the stream alive.
            unsafe { result::event::record(event, stream.cu_stream()) }
        })
    }

    /// Makes `stream` wait for the read event and the write event that the memory has. If cudarc's context holds an
    /// error, or held one at an earlier call, makes the host wait for all streams of the context instead.
    ///
    /// # Safety
    ///
    /// The contract of [`CudarcEvents::record`].
    pub(super) unsafe fn wait(&self, stream: &Arc<CudaStream>) -> Result<()> {
        if has_unsaid(stream.context()) {
            self.unsure.store(true, Ordering::Relaxed);
        }
        if !self.unsure.load(Ordering::Relaxed) {
            return each(stream, [self.read, self.written], |event| {
                let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                // SAFETY: the caller promises that the event exists; `stream` keeps the stream alive.
                unsafe { result::stream::wait_event(stream.cu_stream(), event, flags) }
            });
        }
        synchronize(stream)
    }
}

/// Returns the device address of `memory`. Lets cudarc's `device_ptr` make `stream` wait for the last write to
/// `memory`. If cudarc's context holds an error before or after, the host waits for all streams of the context.
pub(super) fn read<T>(
    memory: &(impl DevicePtr<T> + Sync),
    stream: &Arc<CudaStream>,
) -> Result<u64> {
    let mut is_unsure = has_unsaid(stream.context());
    let ptr = undisturbed(stream.context(), || {
        let (ptr, used) = memory.device_ptr(stream);
        event_of(used);
        is_unsure |= stream.context().check_err().is_err();
        ptr
    });
    if is_unsure {
        synchronize(stream)?;
    }
    Ok(ptr)
}

/// Records the read event of `memory`, if `memory` has one, on `stream`: by this event cudarc's later writes to
/// `memory` wait for the work on `stream`. If recording fails, the host waits for all streams of the context.
pub(super) fn end_read<T>(
    memory: &(impl DevicePtr<T> + Sync),
    stream: &Arc<CudaStream>,
) -> Result<()> {
    let event = undisturbed(stream.context(), || event_of(memory.device_ptr(stream).1));
    let Some(event) = event else { return Ok(()) };
    let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    each(stream, [Some(event), None], |event| {
        // The event stands for one reader only. So first make `stream` wait for the previous reader.
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

/// Takes the event out of `used`, so that dropping `used` does not record the event.
fn event_of(mut used: SyncOnDrop<'_>) -> Option<usize> {
    match &mut used {
        SyncOnDrop::Record(event) => event.take().map(|(event, _)| event.cu_event() as usize),
        SyncOnDrop::Sync(_) => None,
    }
}

/// Whether an earlier call of cudarc failed and kept its error in the context. Leaves the error in the context.
fn has_unsaid(context: &CudaContext) -> bool {
    let unsaid = context.check_err();
    let has = unsaid.is_err();
    context.record_err(unsaid);
    has
}

/// Runs `call` by [`answered`], and then gives the context back the error that it had before, in place of new ones.
fn undisturbed<R: Send>(context: &CudaContext, call: impl FnOnce() -> R + Send) -> R {
    let before = context.check_err();
    let done = answered(call);
    let _ = context.check_err();
    context.record_err(before);
    done
}
