//! The driver's entry points, looked up when the driver is found.
//!
//! A result code, or an enumeration that the driver writes, is read as a number: a newer driver may write a value that
//! a Rust `enum` lacks, which would be undefined behaviour. With the feature `cudarc-sys` the compiler compares each
//! signature with cudarc's, except that of `cuGetErrorName`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

#[cfg(feature = "cudarc-sys")]
use cudarc::driver::sys::{self as cudarcs, CUresult};
use libloading::Library;

use super::sys::{
    self, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUcontext, CUdevice,
    CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphNode, CUhostFn, CUipcEventHandle,
    CUipcMemHandle, CUlaunchConfig, CUmemAllocationHandleType, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemoryPool, CUmodule, CUpointer_attribute, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus, CUuuid, cuuint64_t,
};
use crate::driver::codes::{STUB_LIBRARY, SUCCESS};
use crate::error::{Error, Kind, Result};

pub(super) type ResultCode = u32;
type ErrorName = unsafe extern "C" fn(ResultCode, *mut *const c_char) -> ResultCode;
#[cfg(feature = "cudarc-sys")]
const _: () = assert!(size_of::<CUresult>() == size_of::<ResultCode>());

pub(super) struct Started {
    pub(super) library: &'static Library,
    pub(super) calls: Calls,
    pub(super) initialised: ResultCode,
}

/// The caller must check the code that `cuInit` returned.
pub(super) fn start() -> Result<Started> {
    let start = |library| {
        let calls = Calls::load(library)?;
        // SAFETY: `cuInit` requires its flags to be 0.
        let initialised = unsafe { (calls.init)(0) };
        Ok(Started { library, calls, initialised })
    };
    let Some(library) = sys::library() else {
        let got = "no CUDA driver library (libcuda.so.1) on this machine";
        return Err(Error::new(Kind::DriverMissing, got));
    };
    let found = start(library)?;
    // `libcuda.so` can be the toolkit's stub. The toolkit does not install a stub named `libcuda.so.1`.
    match (found.initialised == STUB_LIBRARY).then(sys::versioned).flatten() {
        Some(library) => start(library),
        None => Ok(found),
    }
}

macro_rules! calls {
    (
        $table:ident:
        raw { $($raw:ident = $raw_symbol:ident: fn($($raw_type:ty),*);)* }
        $($name:ident = $symbol:ident: fn($($argument:ident: $type:ty),*);)+
    ) => {
        /// An entry point marked `raw` returns its code; every other one has a method that returns a `Result`.
        #[derive(Debug)]
        pub(super) struct $table {
            error_name: ErrorName,
            $(pub(super) $raw: unsafe extern "C" fn($($raw_type),*) -> ResultCode,)*
            $($name: unsafe extern "C" fn($($type),*) -> ResultCode,)+
        }

        impl $table {
            pub(super) fn load(library: &Library) -> Result<Self> {
                // SAFETY: each signature is that of `cuda.h`. Only result codes differ: C declares a 32-bit
                // enumeration, this crate a number of the same size.
                unsafe {
                    Ok(Self {
                        error_name: symbol(library, "cuGetErrorName")?,
                        $($raw: symbol(library, stringify!($raw_symbol))?,)*
                        $($name: symbol(library, stringify!($symbol))?,)+
                    })
                }
            }

            #[inline]
            pub(super) fn check(&self, symbol: &'static str, code: ResultCode) -> Result<()> {
                if code == SUCCESS { Ok(()) } else { Err(failed(self.error_name, symbol, code)) }
            }

            $(
                /// # Safety
                ///
                /// The arguments must be as the driver's documentation of this call requires.
                #[inline]
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                    // SAFETY: the caller promises that the arguments are as the driver requires.
                    self.check(stringify!($symbol), unsafe { (self.$name)($($argument),*) })
                }
            )+
        }

        $(
            #[cfg(feature = "cudarc-sys")]
            const _: unsafe fn($($raw_type),*) -> CUresult = cudarcs::$raw_symbol;
        )*
        $(
            #[cfg(feature = "cudarc-sys")]
            const _: unsafe fn($($type),*) -> CUresult = cudarcs::$symbol;
        )+
    };
}

calls! { Calls:
    raw {
        init = cuInit: fn(c_uint);
        event_query = cuEventQuery: fn(CUevent);
        stream_is_capturing = cuStreamIsCapturing: fn(CUstream, *mut CUstreamCaptureStatus);
        exchange_capture_mode = cuThreadExchangeStreamCaptureMode: fn(*mut CUstreamCaptureMode);
    }
    device_get = cuDeviceGet: fn(device: *mut CUdevice, ordinal: c_int);
    device_count = cuDeviceGetCount: fn(count: *mut c_int);
    primary_retain = cuDevicePrimaryCtxRetain: fn(context: *mut CUcontext, device: CUdevice);
    pointer_attributes = cuPointerGetAttributes: fn(
        count: c_uint,
        names: *mut CUpointer_attribute,
        values: *mut *mut c_void,
        pointer: CUdeviceptr
    );
    ctx_get_current = cuCtxGetCurrent: fn(context: *mut CUcontext);
    ctx_get_device = cuCtxGetDevice: fn(device: *mut CUdevice);
    ctx_push = cuCtxPushCurrent_v2: fn(context: CUcontext);
    ctx_pop = cuCtxPopCurrent_v2: fn(context: *mut CUcontext);
    stream_get_flags = cuStreamGetFlags: fn(stream: CUstream, flags: *mut c_uint);
    stream_get_ctx = cuStreamGetCtx: fn(stream: CUstream, context: *mut CUcontext);
    event_create = cuEventCreate: fn(event: *mut CUevent, flags: c_uint);
    event_record = cuEventRecord: fn(event: CUevent, stream: CUstream);
    event_synchronize = cuEventSynchronize: fn(event: CUevent);
    stream_wait_event = cuStreamWaitEvent: fn(
        stream: CUstream,
        event: CUevent,
        flags: c_uint
    );
    stream_capture_info = cuStreamGetCaptureInfo_v2: fn(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize
    );
    allocate = cuMemAlloc_v2: fn(pointer: *mut CUdeviceptr, bytes: usize);
    free = cuMemFree_v2: fn(pointer: CUdeviceptr);
    allocate_host = cuMemAllocHost_v2: fn(pointer: *mut *mut c_void, bytes: usize);
    free_host = cuMemFreeHost: fn(pointer: *mut c_void);
}

calls! { ModuleCalls:
    raw {
        query = cuStreamQuery: fn(CUstream);
    }
    load_data = cuModuleLoadData: fn(module: *mut CUmodule, image: *const c_void);
    unload = cuModuleUnload: fn(module: CUmodule);
    create = cuStreamCreate: fn(stream: *mut CUstream, flags: c_uint);
    launch = cuLaunchHostFunc: fn(stream: CUstream, function: CUhostFn, data: *mut c_void);
    destroy = cuStreamDestroy_v2: fn(stream: CUstream);
}

calls! { NumberCalls:
    raw {}
    ctx_get_id = cuCtxGetId: fn(context: CUcontext, id: *mut c_ulonglong);
    stream_get_id = cuStreamGetId: fn(stream: CUstream, id: *mut c_ulonglong);
}

calls! { CopyCalls:
    raw {}
    allocate = cuMemAllocAsync: fn(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    free_on = cuMemFreeAsync: fn(pointer: CUdeviceptr, stream: CUstream);
    linear = cuMemcpyAsync: fn(
        target: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream
    );
    to_host = cuMemcpyDtoHAsync_v2: fn(
        target: *mut c_void,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream
    );
    to_device = cuMemcpyHtoDAsync_v2: fn(
        target: CUdeviceptr,
        source: *const c_void,
        bytes: usize,
        stream: CUstream
    );
    peer = cuMemcpyPeerAsync: fn(
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
        stream: CUstream
    );
    rows = cuMemcpy2DAsync_v2: fn(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream);
    planes = cuMemcpy3DAsync_v2: fn(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream);
    peer_planes = cuMemcpy3DPeerAsync: fn(
        copy: *const CUDA_MEMCPY3D_PEER_v1,
        stream: CUstream
    );
    stream_synchronize = cuStreamSynchronize: fn(stream: CUstream);
}

calls! { LaunchCalls:
    raw {}
    launch = cuLaunchKernelEx: fn(
        config: *const CUlaunchConfig,
        function: CUfunction,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    );
}

calls! { IpcCalls:
    raw {}
    uuid = cuDeviceGetUuid_v2: fn(uuid: *mut CUuuid, device: CUdevice);
    name_memory = cuIpcGetMemHandle: fn(name: *mut CUipcMemHandle, pointer: CUdeviceptr);
    open_memory = cuIpcOpenMemHandle_v2: fn(
        pointer: *mut CUdeviceptr,
        name: CUipcMemHandle,
        flags: c_uint
    );
    close_memory = cuIpcCloseMemHandle: fn(pointer: CUdeviceptr);
    name_event = cuIpcGetEventHandle: fn(name: *mut CUipcEventHandle, event: CUevent);
    open_event = cuIpcOpenEventHandle: fn(event: *mut CUevent, name: CUipcEventHandle);
    close_event = cuEventDestroy_v2: fn(event: CUevent);
    create_stream = cuStreamCreate: fn(stream: *mut CUstream, flags: c_uint);
    create_pool = cuMemPoolCreate: fn(pool: *mut CUmemoryPool, wanted: *const CUmemPoolProps);
    export_pool = cuMemPoolExportToShareableHandle: fn(
        file: *mut c_void,
        pool: CUmemoryPool,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong
    );
    import_pool = cuMemPoolImportFromShareableHandle: fn(
        pool: *mut CUmemoryPool,
        file: *mut c_void,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong
    );
    allocate_from = cuMemAllocFromPoolAsync: fn(
        pointer: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream
    );
    name_pointer = cuMemPoolExportPointer: fn(
        name: *mut CUmemPoolPtrExportData,
        pointer: CUdeviceptr
    );
    import_pointer = cuMemPoolImportPointer: fn(
        pointer: *mut CUdeviceptr,
        pool: CUmemoryPool,
        name: *mut CUmemPoolPtrExportData
    );
}

/// # Safety
///
/// `F` is the type of a pointer to the function.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller promises the type `F`. The module `sys` never closes a library, so the address stays valid.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found
        .map(|found| *found)
        .map_err(|_| Error::new(Kind::DriverMissing, format!("a CUDA driver without {name}")))
}

#[cold]
fn failed(error_name: ErrorName, symbol: &'static str, code: ResultCode) -> Error {
    let call = symbol.strip_suffix("_v2").unwrap_or(symbol);
    let mut name: *const c_char = ptr::null();
    // SAFETY: `name` outlives the call, which writes a static string or NULL.
    let known = unsafe { error_name(code, &raw mut name) };
    if known != SUCCESS || name.is_null() {
        return Error::driver(call, code, "an unknown error");
    }
    // SAFETY: the pointer is not NULL, and the driver's error names are static NUL-terminated strings.
    let name = unsafe { CStr::from_ptr(name) };
    Error::driver(call, code, &name.to_string_lossy())
}

impl Calls {
    /// Until the result is dropped, this thread is in relaxed capture mode: its `cuMemAlloc` invalidates no capture.
    pub(super) fn relaxed(&self) -> Result<Relaxed<'_>> {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
        // SAFETY: `mode` outlives the call. It is a plain number, so the driver may write any value.
        let code = unsafe { (self.exchange_capture_mode)((&raw mut mode).cast()) };
        self.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Relaxed { calls: self, before: mode })
    }
}

/// Its drop restores the thread's earlier capture mode. Drop the value on the thread that made it.
pub(super) struct Relaxed<'a> {
    calls: &'a Calls,
    before: c_uint,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: `before` is the mode that the driver returned in `Calls::relaxed`, and it outlives the call.
        let _ = unsafe { (self.calls.exchange_capture_mode)((&raw mut self.before).cast()) };
    }
}
