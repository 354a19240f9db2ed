//! CUDA's own driver, found at run time.
//!
//! The library is looked for once, on first use; where it or a symbol is missing every call fails
//! with an error that says so. Result codes stay numbers: a driver newer than any enumeration of
//! today answers with codes that it does not have, which as a Rust `enum` would be undefined.
#![allow(unsafe_code)]

mod calls;
mod copies;
mod events;

use std::ffi::{c_int, c_uint, c_void};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use self::calls::{CUcontext, CUdevice, CUevent, CUstream, Calls, Code, Relaxed};
use super::fork::{self, Process};
use super::{Context, Driver, Event, Pointer};
use crate::capture::Part;
use crate::device::MemoryKind;
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

/// The driver of the machine.
#[derive(Debug)]
pub struct Cuda {
    calls: Calls,
    /// `cuCtxGetId`, since CUDA 12.
    ctx_get_id: Option<unsafe extern "C" fn(CUcontext, *mut u64) -> Code>,
    library: &'static Library,
    /// Primary contexts by ordinal. They are retained once and kept: a context that this crate has
    /// recorded events in must not go while the process can still order work in it.
    primary: Box<[OnceLock<Context>]>,
}

/// The driver and the process that found it.
static PROBED: OnceLock<(Process, Result<Cuda>)> = OnceLock::new();

/// `CUDA_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: Code = 3;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const CONTEXT_IS_DESTROYED: Code = 709;

/// The driver's library, by the names that its installers give it. The versioned name comes first:
/// the plain one may be the toolkit's stub.
const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];

impl Cuda {
    /// The driver, probed on first use. The answer is kept: a machine does not grow a driver.
    ///
    /// Fails in a fork of the process that found it.
    pub fn get() -> Result<&'static Self> {
        let (by, found) = PROBED.get_or_init(|| {
            fork::watch();
            (Process::current(), Self::probe())
        });
        let cuda = found.as_ref().map_err(Clone::clone)?;
        by.check().map(|()| cuda)
    }

    /// Refuses a fork of the process that found the driver.
    pub(super) fn check_process() -> Result<()> {
        match PROBED.get() {
            Some((by, Ok(_))) => by.check(),
            _ => Ok(()),
        }
    }

    fn probe() -> Result<Self> {
        // SAFETY: opens the driver's library by its well-known names; its initialisers are the
        // driver's own, which every CUDA program runs.
        let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let Some(library) = library else {
            return Err(Error::new(
                Kind::DriverMissing,
                "no CUDA driver library (libcuda.so.1) on this machine",
            ));
        };
        // Kept open for good: the entry points are called until the process ends.
        let library: &'static Library = Box::leak(Box::new(library));
        let calls = Calls::load(library)?;
        // SAFETY: 0 is the only value that is defined.
        let initialised = unsafe { (calls.init)(0) };
        calls.check("cuInit", initialised).map_err(|error| {
            if initialised == NOT_INITIALIZED {
                // Somebody else had initialised it in the process that this one was forked from.
                return fork::forked();
            }
            let got = format!("a driver that does not start: {}", error.got());
            Error::new(Kind::DriverMissing, got)
        })?;
        let mut count: c_int = 0;
        // SAFETY: the driver is initialised; `count` outlives the call.
        calls.check("cuDeviceGetCount", unsafe { (calls.device_count)(&raw mut count) })?;
        let devices = usize::try_from(count).unwrap_or(0);
        if devices == 0 {
            return Err(Error::new(Kind::DriverMissing, "a CUDA driver that shows no device"));
        }
        // SAFETY: the signature is the one that the driver's header gives the symbol.
        let ctx_get_id = unsafe { calls::symbol(library, "cuCtxGetId") }.ok();
        let primary = (0..devices).map(|_| OnceLock::new()).collect();
        Ok(Self { calls, ctx_get_id, library, primary })
    }

    /// Whether [`Cuda::get`] has an answer already.
    pub(super) fn is_probed() -> bool {
        PROBED.get().is_some()
    }

    /// Whether the primary context of a device is known.
    pub(super) fn is_open(&self, ordinal: i32) -> bool {
        let slot = usize::try_from(ordinal).ok().and_then(|at| self.primary.get(at));
        slot.is_none_or(|slot| slot.get().is_some())
    }

    /// How many devices the driver shows.
    pub fn device_count(&self) -> usize {
        self.primary.len()
    }

    fn new_event(&self, context: Context, life: u64) -> Result<Event> {
        /// `CU_EVENT_DISABLE_TIMING`.
        const DISABLE_TIMING: c_uint = 2;
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: `event` outlives the call; the context that is to own it is current.
        let code = unsafe { (self.calls.event_create)(&raw mut event, DISABLE_TIMING) };
        self.calls.check("cuEventCreate", code)?;
        Ok(Event { handle: event as usize, context, life })
    }
}

fn native(stream: Alive<'_>) -> CUstream {
    stream.native() as CUstream
}

fn context(raw: CUcontext) -> Option<Context> {
    NonZeroUsize::new(raw as usize).map(Context)
}

impl Driver for Cuda {
    fn pointer(&self, pointer: u64) -> Result<Option<Pointer>> {
        /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `_DEVICE_ORDINAL`, `_IS_MANAGED` and `_CONTEXT`.
        const NAMES: [c_uint; 4] = [2, 9, 8, 1];
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
        // SAFETY: four names and four places, each of the type that the driver's table of attributes
        // gives: unsigned int, int, a boolean of at most unsigned int's size (zeroed), CUcontext.
        let code = unsafe {
            (self.calls.pointer_attributes)(4, NAMES.as_ptr(), values.as_mut_ptr(), pointer)
        };
        self.calls.check("cuPointerGetAttributes", code)?;
        // CU_MEMORYTYPE_HOST is 1, _DEVICE 2; a pointer that CUDA does not know is 0 with ordinal -2
        // (measured on an H200, driver 580, 2026-11).
        let kind = match (memory_type, managed & 0xFF) {
            (0, _) => return Ok(None),
            (_, 1) => MemoryKind::Managed,
            (1, _) => MemoryKind::Host,
            _ => MemoryKind::Device,
        };
        Ok(Some(Pointer { ordinal, kind, context: context(owner) }))
    }

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
        let code = unsafe { (self.calls.device_get)(&raw mut device, ordinal) };
        self.calls.check("cuDeviceGet", code)?;
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `device` is the driver's own answer; `raw` outlives the call. The reference is kept
        // for the life of the process.
        let code = unsafe { (self.calls.primary_retain)(&raw mut raw, device) };
        self.calls.check("cuDevicePrimaryCtxRetain", code)?;
        context(raw).map(|made| *slot.get_or_init(|| made)).ok_or_else(|| {
            Error::new(Kind::DriverMissing, format!("no primary context for device {ordinal}"))
        })
    }

    fn current_context(&self) -> Result<Option<Context>> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let code = unsafe { (self.calls.ctx_get_current)(&raw mut raw) };
        self.calls.check("cuCtxGetCurrent", code)?;
        Ok(context(raw))
    }

    fn current_ordinal(&self) -> Result<i32> {
        let mut device: CUdevice = 0;
        // SAFETY: `device` outlives the call.
        let code = unsafe { (self.calls.ctx_get_device)(&raw mut device) };
        self.calls.check("cuCtxGetDevice", code)?;
        Ok(device)
    }

    fn push_context(&self, context: Context) -> Result<()> {
        // SAFETY: a `Context` comes from the driver: a primary context that is never released, or the
        // owner of memory that its producer keeps alive.
        let code = unsafe { (self.calls.ctx_push)(context.0.get() as CUcontext) };
        self.calls.check("cuCtxPushCurrent", code)
    }

    fn pop_context(&self) -> Result<()> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        self.calls.check("cuCtxPopCurrent", unsafe { (self.calls.ctx_pop)(&raw mut raw) })
    }

    /// Before CUDA 12 the driver does not tell, and a context is taken for the one that was at its address.
    fn life(&self, context: Context) -> Result<u64> {
        let Some(ctx_get_id) = self.ctx_get_id else { return Ok(0) };
        let mut life = 0;
        // SAFETY: the driver knows a context that is gone by its address (CONTEXT_IS_DESTROYED, H200,
        // driver 580, 2026-11); `life` outlives the call.
        let code = unsafe { ctx_get_id(context.0.get() as CUcontext, &raw mut life) };
        self.calls.check("cuCtxGetId", code).map(|()| life)
    }

    fn take_event(&self, context: Context) -> Result<Event> {
        let life = self.life(context)?;
        events::take(context, life).map_or_else(|| self.new_event(context, life), Ok)
    }

    fn spare_event(&self, event: Event) {
        events::give_back(event);
    }

    fn is_reached(&self, event: Event) -> Result<bool> {
        /// `CUDA_ERROR_NOT_READY`.
        const NOT_READY: Code = 600;
        if self.life(event.context)? != event.life {
            return Err(self.calls.failed("cuEventQuery", CONTEXT_IS_DESTROYED));
        }
        let relaxed = Relaxed::enter(&self.calls)?;
        // SAFETY: an event is one that `new_event` made, and none is destroyed but with its context,
        // which lives, by the line above.
        let code = unsafe { (self.calls.event_query)(event.handle as CUevent) };
        drop(relaxed);
        match code {
            NOT_READY => Ok(false),
            code => self.calls.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn part(&self, stream: Alive<'_>) -> Result<Part> {
        /// `CU_STREAM_CAPTURE_STATUS_NONE`.
        const NONE: c_uint = 0;
        /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`, for the legacy default stream alone.
        const IMPLICIT: Code = 906;
        let mut status: c_uint = NONE;
        // SAFETY: as for `record_event`; `status` outlives the call.
        let code = unsafe { (self.calls.stream_is_capturing)(native(stream), &raw mut status) };
        if code == IMPLICIT {
            return Ok(Part::Beside);
        }
        self.calls.check("cuStreamIsCapturing", code)?;
        if status == NONE {
            return Ok(Part::Outside);
        }
        let mut id = 0;
        // SAFETY: as above; the graph and its dependencies are not asked for, which NULL says.
        let code = unsafe {
            (self.calls.stream_capture_info)(
                native(stream),
                &raw mut status,
                &raw mut id,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.calls.check("cuStreamGetCaptureInfo", code)?;
        Ok(Part::Inside(id))
    }

    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool> {
        /// `CU_STREAM_NON_BLOCKING`.
        const NON_BLOCKING: c_uint = 1;
        let mut flags: c_uint = 0;
        // SAFETY: as for `record_event`; `flags` outlives the call.
        let code = unsafe { (self.calls.stream_get_flags)(native(stream), &raw mut flags) };
        self.calls.check("cuStreamGetFlags", code)?;
        Ok(flags & NON_BLOCKING == 0)
    }

    fn stream_context(&self, stream: Alive<'_>) -> Result<Context> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: as for `record_event`; `raw` outlives the call.
        let code = unsafe { (self.calls.stream_get_ctx)(native(stream), &raw mut raw) };
        self.calls.check("cuStreamGetCtx", code)?;
        context(raw).ok_or_else(|| Error::new(Kind::DriverMissing, "a stream without a context"))
    }

    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()> {
        // SAFETY: `take_event` has just compared the life of the event's context; `Alive` is the proof
        // for the stream.
        let code = unsafe { (self.calls.event_record)(event.handle as CUevent, native(stream)) };
        self.calls.check("cuEventRecord", code)
    }

    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        let event = event.handle as CUevent;
        // SAFETY: as for `record_event`; 0 asks for the default behaviour.
        let code = unsafe { (self.calls.stream_wait_event)(native(stream), event, 0) };
        self.calls.check("cuStreamWaitEvent", code)
    }

    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        /// `CU_EVENT_WAIT_EXTERNAL`.
        const EXTERNAL: c_uint = 1;
        let event = event.handle as CUevent;
        // SAFETY: as for `record_event`; the event is never destroyed, so the graph may keep it.
        let code = unsafe { (self.calls.stream_wait_event)(native(stream), event, EXTERNAL) };
        self.calls.check("cuStreamWaitEvent", code)
    }

    fn synchronize_context(&self) -> Result<()> {
        // SAFETY: the call takes nothing and waits for the current context.
        self.calls.check("cuCtxSynchronize", unsafe { (self.calls.ctx_synchronize)() })
    }
}
