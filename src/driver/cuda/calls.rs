//! The driver's entry points, by the signatures that its header gives them, looked up once.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use crate::error::{Error, Kind, Result};

/// `CUresult`.
pub(super) type Code = u32;
pub(super) type CUdevice = c_int;
pub(super) type CUcontext = *mut c_void;
pub(super) type CUevent = *mut c_void;
pub(super) type CUstream = *mut c_void;

macro_rules! calls {
    ($table:ident: $($name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// The entry points, looked up once.
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Code,)+
        }

        impl $table {
            pub(super) fn load(library: &Library) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the signature is the one that the driver's header gives the symbol, with
                    // CUresult as the 32-bit number that C passes.
                    $($name: unsafe { $crate::driver::cuda::calls::symbol(library, $symbol)? },)+
                })
            }
        }
    };
}

calls! { Calls:
    init = "cuInit": fn(c_uint);
    error_name = "cuGetErrorName": fn(Code, *mut *const c_char);
    device_get = "cuDeviceGet": fn(*mut CUdevice, c_int);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    primary_retain = "cuDevicePrimaryCtxRetain": fn(*mut CUcontext, CUdevice);
    pointer_attributes = "cuPointerGetAttributes": fn(c_uint, *const c_uint, *mut *mut c_void, u64);
    ctx_get_current = "cuCtxGetCurrent": fn(*mut CUcontext);
    ctx_get_device = "cuCtxGetDevice": fn(*mut CUdevice);
    ctx_push = "cuCtxPushCurrent_v2": fn(CUcontext);
    ctx_pop = "cuCtxPopCurrent_v2": fn(*mut CUcontext);
    ctx_synchronize = "cuCtxSynchronize": fn();
    stream_get_flags = "cuStreamGetFlags": fn(CUstream, *mut c_uint);
    stream_get_ctx = "cuStreamGetCtx": fn(CUstream, *mut CUcontext);
    event_create = "cuEventCreate": fn(*mut CUevent, c_uint);
    event_record = "cuEventRecord": fn(CUevent, CUstream);
    event_query = "cuEventQuery": fn(CUevent);
    stream_wait_event = "cuStreamWaitEvent": fn(CUstream, CUevent, c_uint);
    stream_is_capturing = "cuStreamIsCapturing": fn(CUstream, *mut c_uint);
    stream_capture_info = "cuStreamGetCaptureInfo_v2": fn(
        CUstream, *mut c_uint, *mut u64, *mut *mut c_void, *mut *const c_void, *mut usize
    );
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_uint);
}

pub(super) use calls;

/// Looks `name` up.
///
/// # Safety
///
/// `F` is the function's type.
pub(super) unsafe fn symbol<F: Copy>(library: &Library, name: &'static str) -> Result<F> {
    // SAFETY: the caller vouches for the type; the library is never closed.
    match unsafe { library.get::<F>(name.as_bytes()) } {
        Ok(found) => Ok(*found),
        Err(_) => Err(Error::new(Kind::DriverMissing, format!("a CUDA driver without {name}"))),
    }
}

impl Calls {
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    #[cold]
    pub(super) fn failed(&self, call: &'static str, code: Code) -> Error {
        let mut name: *const c_char = ptr::null();
        // SAFETY: `name` outlives the call, which writes a static string or NULL.
        let known = unsafe { (self.error_name)(code, &raw mut name) };
        if known != 0 || name.is_null() {
            return Error::driver(call, code, "an unknown error");
        }
        // SAFETY: not NULL, and the driver's error names are static NUL-terminated strings.
        let name = unsafe { CStr::from_ptr(name) };
        Error::driver(call, code, &name.to_string_lossy())
    }
}

/// The thread in the mode in which it can spoil no capture, until dropped.
pub(super) struct Relaxed<'a> {
    calls: &'a Calls,
    before: c_uint,
}

impl<'a> Relaxed<'a> {
    pub(super) fn enter(calls: &'a Calls) -> Result<Self> {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
        const RELAXED: c_uint = 2;
        let mut before = RELAXED;
        // SAFETY: `before` outlives the call, which swaps the thread's mode with it.
        let code = unsafe { (calls.exchange_capture_mode)(&raw mut before) };
        calls.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Self { calls, before })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `enter`, with the mode that the driver gave there, which it takes back.
        let _ = unsafe { (self.calls.exchange_capture_mode)(&raw mut self.before) };
    }
}
