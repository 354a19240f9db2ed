//! CUDA's driver. Its library is loaded on first use. If the library or a symbol that the bridge always needs is
//! missing, every call fails. If another symbol is missing, at most the copies, the launches with attributes or the
//! IPC calls fail.
#![allow(unsafe_code)]

mod calls;
mod copies;
mod events;
mod ipc;
mod launch;
mod probe;
mod sys;
mod wait;

use std::ffi::{c_int, c_uint, c_void};
use std::num::NonZeroUsize;
use std::ptr;

pub use self::launch::Launch;
pub use self::probe::Cuda;
use self::sys::{
    CUcontext, CUdevice, CUevent, CUevent_wait_flags, CUmemorytype, CUpointer_attribute, CUstream,
    CUstream_flags, CUstreamCaptureStatus,
};
use super::codes::{NOT_READY, STREAM_CAPTURE_IMPLICIT};
use super::{Context, Driver, Event, PointerAttributes};
use crate::capture::CaptureStatus;
use crate::device::MemoryKind;
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

impl Cuda {
    /// `stream` must be under capture.
    #[cold]
    fn inside(&self, stream: Alive<'_>) -> Result<CaptureStatus> {
        let (mut status, mut id, none): (c_uint, _, _) = (0, 0, ptr::null_mut());
        // SAFETY: `Alive` proves that the stream is alive; `status` and `id` outlive the call. NULL means that the
        // graph and its dependencies are not asked for.
        unsafe {
            let (status, id) = ((&raw mut status).cast(), &raw mut id);
            let (stream, dependencies, count) = (native(stream), ptr::null_mut(), ptr::null_mut());
            self.calls.stream_capture_info(stream, status, id, none, dependencies, count)
        }?;
        Ok(CaptureStatus::Inside(id))
    }

    #[inline]
    fn wait(&self, stream: Alive<'_>, event: Event, flags: CUevent_wait_flags) -> Result<()> {
        let event = event.handle as CUevent;
        // SAFETY: `Alive` proves that the stream is alive. The event is not destroyed, for the reasons that
        // `record_event` gives.
        unsafe { self.calls.stream_wait_event(native(stream), event, flags as c_uint) }
    }
}

#[inline]
fn native(stream: Alive<'_>) -> CUstream {
    stream.native() as CUstream
}

fn context(raw: CUcontext) -> Option<Context> {
    NonZeroUsize::new(raw as usize).map(Context)
}

impl Driver for Cuda {
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>> {
        const HOST: c_uint = CUmemorytype::CU_MEMORYTYPE_HOST as c_uint;
        let mut names = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        ];
        let mut memory_type: c_uint = 0;
        let mut ordinal: c_int = -2;
        let mut managed: c_uint = 0;
        let mut owner: CUcontext = ptr::null_mut();
        let mut values: [*mut c_void; 4] = [
            (&raw mut memory_type).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut managed).cast(),
            (&raw mut owner).cast(),
        ];
        // SAFETY: `names` and `values` have four entries each, and outlive the call. The driver writes an unsigned int,
        // an int, a boolean, which has room in `managed`, and a CUcontext (CUDA driver API, `CUpointer_attribute`).
        unsafe {
            let (names, values) = (names.as_mut_ptr(), values.as_mut_ptr());
            self.calls.pointer_attributes(4, names, values, pointer)
        }?;
        // For a pointer that CUDA does not know, the memory type is 0 (H200, driver 580, 2026-11).
        let kind = match (memory_type, managed & 0xFF) {
            (0, _) => return Ok(None),
            (_, 1) => MemoryKind::Managed,
            (HOST, _) => MemoryKind::Host,
            _ => MemoryKind::Device,
        };
        Ok(Some(PointerAttributes { ordinal, kind, context: context(owner) }))
    }

    #[inline]
    fn primary_context(&self, ordinal: i32) -> Result<Context> {
        let slot = usize::try_from(ordinal).ok().and_then(|at| self.primary.get(at));
        let Some(slot) = slot else {
            let got = format!("{ordinal} on a machine with {} devices", self.primary.len());
            return Err(Error::new(Kind::DeviceOrdinal, got));
        };
        if let Some(known) = slot.get() {
            return Ok(*known);
        }
        let mut device: CUdevice = 0;
        // SAFETY: `device` outlives the call.
        unsafe { self.calls.device_get(&raw mut device, ordinal) }?;
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `device` came from the driver; `raw` outlives the call. The process keeps the reference until it
        // ends.
        unsafe { self.calls.primary_retain(&raw mut raw, device) }?;
        context(raw).map(|made| *slot.get_or_init(|| made)).ok_or_else(|| {
            Error::new(Kind::DriverMissing, format!("no primary context for device {ordinal}"))
        })
    }

    #[inline]
    fn current_context(&self) -> Result<Option<Context>> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        unsafe { self.calls.ctx_get_current(&raw mut raw) }?;
        Ok(context(raw))
    }

    fn current_ordinal(&self) -> Result<i32> {
        let mut device: CUdevice = 0;
        // SAFETY: `device` outlives the call.
        unsafe { self.calls.ctx_get_device(&raw mut device) }?;
        Ok(device)
    }

    fn push_context(&self, context: Context) -> Result<()> {
        // SAFETY: the context is a primary one, which `primary` retains, or that of memory or of a stream in use.
        // Nobody may destroy a context while its memory or streams are in use.
        unsafe { self.calls.ctx_push(context.0.get() as CUcontext) }
    }

    fn pop_context(&self) -> Result<()> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        unsafe { self.calls.ctx_pop(&raw mut raw) }
    }

    #[inline]
    fn life(&self, context: Context) -> Result<u64> {
        let Some(calls) = &self.numbers else { return Ok(0) };
        let mut life = 0;
        // SAFETY: `life` outlives the call. The context may be destroyed: then the driver returns CONTEXT_IS_DESTROYED
        // (H200, driver 580, 2026-11), or the number of a later context at the address.
        unsafe { calls.ctx_get_id(context.0.get() as CUcontext, &raw mut life) }?;
        Ok(life)
    }

    #[inline]
    fn take_event(&self, context: Context) -> Result<Event> {
        let life = self.life(context)?;
        events::take(context, life).map_or_else(|| events::new(&self.calls, context, life), Ok)
    }

    #[inline]
    fn spare_event(&self, event: Event) {
        events::give_back(event);
    }

    fn is_reached(&self, event: Event) -> Result<bool> {
        let call = "cuEventQuery";
        event.check_life(self.life(event.context)?, call)?;
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: a holder does not use an event that it has closed, and the check above shows that the event's context
        // is not destroyed. Before CUDA 12 contexts have no numbers, so the process must not reset the context.
        match unsafe { (self.calls.event_query)(event.handle as CUevent) } {
            NOT_READY => Ok(false),
            code => self.calls.check(call, code).map(|()| true),
        }
    }

    fn wait_until(&self, event: Event) -> Result<()> {
        event.check_life(self.life(event.context)?, "cuEventSynchronize")?;
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: a holder does not use an event that it has closed, and the check above shows that the event's context
        // is not destroyed. Before CUDA 12 contexts have no numbers, so the process must not reset the context.
        unsafe { self.calls.event_synchronize(event.handle as CUevent) }
    }

    #[inline]
    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus> {
        const NONE: c_uint = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
        let call = "cuStreamIsCapturing";
        let mut status = NONE;
        // SAFETY: `Alive` proves that the stream is alive; `status` outlives the call.
        match unsafe { (self.calls.stream_is_capturing)(native(stream), (&raw mut status).cast()) }
        {
            // The driver returns this code only for the legacy default stream, while a blocking stream of its context
            // is captured.
            STREAM_CAPTURE_IMPLICIT => return Ok(CaptureStatus::Beside),
            code => self.calls.check(call, code)?,
        }
        if status == NONE {
            return Ok(CaptureStatus::Outside);
        }
        self.inside(stream)
    }

    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool> {
        let mut flags: c_uint = 0;
        // SAFETY: `Alive` proves that the stream is alive; `flags` outlives the call.
        unsafe { self.calls.stream_get_flags(native(stream), &raw mut flags) }?;
        Ok(flags & CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint == 0)
    }

    #[inline]
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `Alive` proves that the stream is alive; `raw` outlives the call.
        unsafe { self.calls.stream_get_ctx(native(stream), &raw mut raw) }?;
        context(raw).ok_or_else(|| Error::new(Kind::DriverMissing, "a stream without a context"))
    }

    fn stream_number(&self, stream: Alive<'_>) -> Result<u64> {
        let Some(calls) = &self.numbers else { return Ok(0) };
        let mut number = 0;
        // SAFETY: `Alive` proves that the stream is alive; `number` outlives the call.
        unsafe { calls.stream_get_id(native(stream), &raw mut number) }?;
        Ok(number)
    }

    #[inline]
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()> {
        // SAFETY: `Alive` proves that the stream is alive. A holder does not use an event that it has closed. The event
        // is new, or its context's number has been compared with the present one. Before CUDA 12 contexts have no
        // numbers, so the process must not reset the context.
        unsafe { self.calls.event_record(event.handle as CUevent, native(stream)) }
    }

    #[inline]
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        self.wait(stream, event, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
    }

    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        self.wait(stream, event, CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL)
    }

    fn synchronize_context(&self) -> Result<()> {
        self.wait_for_context()
    }
}
