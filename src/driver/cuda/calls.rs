//! The driver's entry points, looked up once in the library that cudarc opens.
//!
//! The types of the arguments are cudarc's, the signatures are not: a result is the 32-bit number that C
//! passes. A driver newer than any enumeration of today answers with codes that cudarc's `CUresult` lacks,
//! which as a Rust `enum` would be undefined behaviour; so would values that a driver writes into one.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUcontext, CUdevice,
    CUdeviceptr, CUevent, CUgraph, CUgraphNode, CUpointer_attribute, CUresult, CUstream,
    CUstreamCaptureMode, cuuint64_t,
};
use libloading::Library;

use crate::error::{Error, Kind, Result};

/// `CUresult`.
pub(super) type Code = u32;

/// Opens the driver's library. It is never closed.
pub(super) fn library() -> Result<&'static Library> {
    // SAFETY: opens the driver's library by its well-known names. Its initialisers are the driver's own,
    // which every CUDA program runs.
    if unsafe { sys::is_culib_present() } {
        // SAFETY: as above. cudarc panics where it finds no library; the line above found one.
        return Ok(unsafe { sys::culib() });
    }
    Err(Error::new(Kind::DriverMissing, "no CUDA driver library (libcuda.so.1) on this machine"))
}

/// The driver's library by its versioned name, which no toolkit gives to its stub.
pub(super) fn versioned_library() -> Option<&'static Library> {
    // SAFETY: as in `library`.
    let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
    Some(Box::leak(Box::new(library)))
}

macro_rules! calls {
    (
        raw { $($raw:ident = $raw_symbol:literal: fn($($raw_type:ty),*);)+ }
        needed { $($name:ident = $symbol:literal: fn($($argument:ident: $type:ty),*);)+ }
        optional { $($new:ident = $new_symbol:literal: fn($($new_argument:ident: $new_type:ty),*);)+ }
    ) => {
        /// The entry points: those whose result is looked at, those that succeed or fail, and those of the
        /// same kind that a driver may lack: it does all else.
        #[derive(Debug)]
        pub(super) struct Calls {
            $(pub(super) $raw: unsafe extern "C" fn($($raw_type),*) -> Code,)+
            $($name: unsafe extern "C" fn($($type),*) -> Code,)+
            $(pub(super) $new: Option<unsafe extern "C" fn($($new_type),*) -> Code>,)+
        }

        impl Calls {
            pub(super) fn load(library: &Library) -> Result<Self> {
                // SAFETY: each signature is the one that the driver's header gives the symbol, in cudarc's
                // types, but for results and enumerations that the driver writes: those are numbers.
                unsafe {
                    Ok(Self {
                        $($raw: symbol(library, $raw_symbol).ok_or_else(|| missing($raw_symbol))?,)+
                        $($name: symbol(library, $symbol).ok_or_else(|| missing($symbol))?,)+
                        $($new: symbol(library, $new_symbol),)+
                    })
                }
            }

            $(
                /// # Safety
                ///
                /// What the driver's documentation asks of the arguments.
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                    // SAFETY: the caller's own arguments.
                    self.check($symbol, unsafe { (self.$name)($($argument),*) })
                }
            )+
            $(
                /// # Safety
                ///
                /// What the driver's documentation asks of the arguments.
                pub(super) unsafe fn $new(&self, $($new_argument: $new_type),*) -> Result<()> {
                    let entry = self.$new.ok_or_else(|| missing($new_symbol))?;
                    // SAFETY: the caller's own arguments.
                    self.check($new_symbol, unsafe { entry($($new_argument),*) })
                }
            )+
        }
    };
}

calls! {
    raw {
        init = "cuInit": fn(c_uint);
        error_name = "cuGetErrorName": fn(Code, *mut *const c_char);
        event_query = "cuEventQuery": fn(CUevent);
        stream_is_capturing = "cuStreamIsCapturing": fn(CUstream, *mut c_uint);
        exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_uint);
    }
    needed {
        device_get = "cuDeviceGet": fn(device: *mut CUdevice, ordinal: c_int);
        device_count = "cuDeviceGetCount": fn(count: *mut c_int);
        primary_retain = "cuDevicePrimaryCtxRetain": fn(context: *mut CUcontext, device: CUdevice);
        pointer_attributes = "cuPointerGetAttributes": fn(
            count: c_uint,
            names: *mut CUpointer_attribute,
            values: *mut *mut c_void,
            pointer: CUdeviceptr
        );
        ctx_get_current = "cuCtxGetCurrent": fn(context: *mut CUcontext);
        ctx_get_device = "cuCtxGetDevice": fn(device: *mut CUdevice);
        ctx_push = "cuCtxPushCurrent_v2": fn(context: CUcontext);
        ctx_pop = "cuCtxPopCurrent_v2": fn(context: *mut CUcontext);
        ctx_synchronize = "cuCtxSynchronize": fn();
        stream_get_flags = "cuStreamGetFlags": fn(stream: CUstream, flags: *mut c_uint);
        stream_get_ctx = "cuStreamGetCtx": fn(stream: CUstream, context: *mut CUcontext);
        event_create = "cuEventCreate": fn(event: *mut CUevent, flags: c_uint);
        event_record = "cuEventRecord": fn(event: CUevent, stream: CUstream);
        stream_wait_event = "cuStreamWaitEvent": fn(
            stream: CUstream,
            event: CUevent,
            flags: c_uint
        );
        stream_capture_info = "cuStreamGetCaptureInfo_v2": fn(
            stream: CUstream,
            status: *mut c_uint,
            id: *mut cuuint64_t,
            graph: *mut CUgraph,
            dependencies: *mut *const CUgraphNode,
            count: *mut usize
        );
    }
    optional {
        ctx_get_id = "cuCtxGetId": fn(context: CUcontext, id: *mut u64);
        allocate = "cuMemAllocAsync": fn(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        free_on = "cuMemFreeAsync": fn(pointer: CUdeviceptr, stream: CUstream);
        linear = "cuMemcpyAsync": fn(
            target: CUdeviceptr,
            source: CUdeviceptr,
            bytes: usize,
            stream: CUstream
        );
        to_host = "cuMemcpyDtoHAsync_v2": fn(
            target: *mut c_void,
            source: CUdeviceptr,
            bytes: usize,
            stream: CUstream
        );
        peer = "cuMemcpyPeerAsync": fn(
            target: CUdeviceptr,
            target_context: CUcontext,
            source: CUdeviceptr,
            source_context: CUcontext,
            bytes: usize,
            stream: CUstream
        );
        rows = "cuMemcpy2DAsync_v2": fn(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream);
        planes = "cuMemcpy3DAsync_v2": fn(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream);
        peer_planes = "cuMemcpy3DPeerAsync": fn(
            copy: *const CUDA_MEMCPY3D_PEER_v1,
            stream: CUstream
        );
        stream_synchronize = "cuStreamSynchronize": fn(stream: CUstream);
    }
}

/// Looks `name` up.
///
/// # Safety
///
/// `F` is the function's type.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller vouches for the type. The library is never closed, so the address stays valid.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
}

#[cold]
fn missing(symbol: &str) -> Error {
    Error::new(Kind::DriverMissing, format!("a CUDA driver without {symbol}"))
}

impl Calls {
    pub(super) fn check(&self, symbol: &'static str, code: Code) -> Result<()> {
        if code == CUresult::CUDA_SUCCESS as Code { Ok(()) } else { Err(self.failed(symbol, code)) }
    }

    #[cold]
    pub(super) fn failed(&self, symbol: &'static str, code: Code) -> Error {
        let call = symbol.strip_suffix("_v2").unwrap_or(symbol);
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

    /// Puts the thread into the mode in which it can spoil no capture, until the answer is dropped.
    pub(super) fn relaxed(&self) -> Result<Relaxed<'_>> {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
        // SAFETY: `mode` outlives the call, which swaps the thread's mode with it.
        let code = unsafe { (self.exchange_capture_mode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Relaxed { calls: self, before: mode })
    }
}

/// See [`Calls::relaxed`].
pub(super) struct Relaxed<'a> {
    calls: &'a Calls,
    before: c_uint,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: `before` is the mode that the driver gave in `Calls::relaxed`; it outlives the call.
        let _ = unsafe { (self.calls.exchange_capture_mode)(&raw mut self.before) };
    }
}
