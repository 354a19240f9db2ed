//! The driver's own functions, without the hooks.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use crate::streams::{LEGACY, PER_THREAD};
use crate::symbols;

/// `CUDA_ERROR_NOT_FOUND`. This library also returns it for a function that the process's driver lacks.
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const NOT_READY: u32 = 600;
const RELAXED: u32 = 2;

/// Declares functions of the driver. A call looks its function up until it is found once, and returns
/// [`NOT_FOUND`] without it.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        // The driver chose these names and arguments.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe fn $name($($argument: $type),*) -> u32 {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let found = symbols::once(&FOUND, concat!(stringify!($name), "\0"));
            if found.is_null() {
                return NOT_FOUND;
            }
            let function: unsafe extern "C" fn($($type),*) -> u32 =
                // SAFETY: the driver exports it under this name with this signature (CUDA Driver API).
                unsafe { core::mem::transmute(found) };
            // SAFETY: the caller guarantees the arguments.
            unsafe { function($($argument),*) }
        }
    )*};
}

driver! {
    fn cuCtxGetCurrent(to: *mut u64);
    fn cuCtxPushCurrent_v2(context: u64);
    fn cuCtxPopCurrent_v2(to: *mut u64);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32);
    fn cuCtxSynchronize();
    fn cuEventCreate(to: *mut u64, flags: u32);
    fn cuEventQuery(event: u64);
    fn cuEventRecord(event: u64, stream: u64);
    fn cuFuncGetName(to: *mut *const c_char, function: u64);
    fn cuFuncGetParamInfo(function: u64, index: usize, offset: *mut usize, size: *mut usize);
    fn cuGraphChildGraphNodeGetGraph(node: u64, to: *mut u64);
    fn cuGraphEventRecordNodeGetEvent(node: u64, to: *mut u64);
    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize);
    fn cuGraphKernelNodeGetParams_v2(node: u64, to: *mut u64);
    fn cuGraphLaunch(graph: u64, stream: u64);
    fn cuGraphMemcpyNodeGetParams(node: u64, to: *mut u64);
    fn cuGraphMemsetNodeGetParams(node: u64, to: *mut u64);
    fn cuGraphNodeGetType(node: u64, to: *mut i32);
    fn cuKernelGetParamInfo(kernel: u64, index: usize, offset: *mut usize, size: *mut usize);
    fn cuKernelGetName(to: *mut *const c_char, kernel: u64);
    fn cuLaunchKernel(
        function: u64, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64,
        arguments: *const *const c_void, extra: *const c_void
    );
    fn cuLaunchKernelEx(config: u64, function: u64, arguments: u64, extra: u64);
    fn cuMemAlloc_v2(to: *mut u64, size: usize);
    fn cuMemFree_v2(memory: u64);
    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize);
    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, size: usize);
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, size: usize);
    fn cuMemHostAlloc(to: *mut *mut u64, size: usize, flags: u32);
    fn cuModuleGetFunction(to: *mut u64, module: u64, name: *const c_char);
    fn cuModuleLoadData(to: *mut u64, image: *const c_void);
    fn cuPointerGetAttribute(to: *mut c_void, attribute: u32, pointer: u64);
    fn cuStreamCreate(to: *mut u64, flags: u32);
    fn cuStreamDestroy_v2(stream: u64);
    fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64, before: *mut *const u64, count: *mut usize
    );
    fn cuStreamGetCtx(stream: u64, to: *mut u64);
    fn cuStreamGetFlags(stream: u64, to: *mut u32);
    fn cuStreamIsCapturing(stream: u64, to: *mut u32);
    fn cuStreamQuery(stream: u64);
    fn cuStreamSynchronize(stream: u64);
    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
}

/// The context of work on this stream: the stream's own; for a default stream, or if the driver cannot tell,
/// the thread's current one. None if there is none.
pub(crate) fn context_of(stream: u64) -> Option<u64> {
    let mut context = 0;
    // SAFETY: the program is about to use this stream, so it is alive; the result is a local.
    if stream > PER_THREAD && unsafe { cuStreamGetCtx(stream, &raw mut context) } != 0 {
        context = 0;
    }
    // SAFETY: the result is a local.
    if context == 0 && unsafe { cuCtxGetCurrent(&raw mut context) } != 0 {
        context = 0;
    }
    (context != 0).then_some(context)
}

/// Whether the stream is being captured. True also if the driver cannot tell.
pub(crate) fn is_capturing(stream: u64) -> bool {
    let mut state = 0;
    // SAFETY: the program is about to use this stream, so it is alive; the result is a local.
    unsafe { cuStreamIsCapturing(stream, &raw mut state) != 0 || state != 0 }
}

/// The node that the last call on a captured stream added to the graph. None if the stream's next work depends
/// on no node or on several, or the driver cannot tell.
pub(crate) fn last_node(stream: u64) -> Option<u64> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
    let mut before = core::ptr::null();
    // SAFETY: the program has just used this stream, so it is alive; the results are locals. The driver's array
    // has as many nodes as it says, and lives until the next call on the stream.
    unsafe {
        let to = (&raw mut status, &raw mut id, &raw mut graph);
        let code =
            cuStreamGetCaptureInfo_v2(stream, to.0, to.1, to.2, &raw mut before, &raw mut count);
        (code == 0 && count == 1 && !before.is_null()).then(|| before.read())
    }
}

/// Whether the stream is blocking, so that CUDA orders it with the legacy default stream. Default streams are.
/// True also if the driver cannot tell.
///
/// # Safety
/// The stream is alive, and is not being captured: this question ends a capture, in every capture mode.
pub(crate) unsafe fn is_blocking(stream: u64) -> bool {
    let mut flags = 0;
    // SAFETY: the caller guarantees the stream; the result is a local.
    stream <= PER_THREAD
        || unsafe { cuStreamGetFlags(stream, &raw mut flags) } != 0
        || flags & 1 == 0
}

/// Makes `call` with the thread in the relaxed capture mode, in which queries and event calls break no capture.
pub(crate) fn relaxed<T>(call: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    // SAFETY: the mode is a local; the second call restores what the first took.
    unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    let result = call();
    // SAFETY: the mode is a local; this restores the mode from before.
    unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    result
}

/// Whether a stream has unfinished work. False also if the driver reports an error.
///
/// # Safety
/// The stream is alive.
pub(crate) unsafe fn is_busy(stream: u64) -> bool {
    // SAFETY: the caller guarantees that the stream is alive.
    relaxed(|| unsafe { cuStreamQuery(stream) } == NOT_READY)
}

/// Makes an event without timing.
///
/// # Safety
/// The context is alive.
pub(crate) unsafe fn new_event(context: u64) -> Option<u64> {
    const WITHOUT_TIME: u32 = 2;
    let (mut event, mut popped) = (0, 0);
    // SAFETY: the caller guarantees the context; the results are locals.
    unsafe {
        if cuCtxPushCurrent_v2(context) != 0 {
            return None;
        }
        let code = relaxed(|| cuEventCreate(&raw mut event, WITHOUT_TIME));
        cuCtxPopCurrent_v2(&raw mut popped);
        (code == 0).then_some(event)
    }
}

/// Records an event on a stream. Returns false on failure.
///
/// # Safety
/// Event and stream are alive, and the stream is not being captured.
pub(crate) unsafe fn record(event: u64, stream: u64) -> bool {
    // SAFETY: the caller guarantees the event and the stream.
    relaxed(|| unsafe { cuEventRecord(event, stream) }) == 0
}

/// Makes a stream wait for an event. Ignores a failure.
///
/// # Safety
/// Event and stream are alive, and the stream is not being captured.
pub(crate) unsafe fn wait(stream: u64, event: u64) {
    // SAFETY: the caller guarantees the event and the stream.
    relaxed(|| unsafe { cuStreamWaitEvent(stream, event, 0) });
}

/// Whether the work before an event is unfinished. False also if the driver reports an error.
///
/// # Safety
/// The event is alive.
pub(crate) unsafe fn is_pending(event: u64) -> bool {
    // SAFETY: the caller guarantees that the event is alive.
    relaxed(|| unsafe { cuEventQuery(event) == NOT_READY })
}

/// Whether an address counts as pageable host memory: the driver does not know it.
pub(crate) fn is_pageable(pointer: u64) -> bool {
    let mut kind = 0_u32;
    // SAFETY: attribute 2, the memory type, is an unsigned int; the driver takes any address.
    let code = unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, pointer) };
    code != 0 || kind == 0
}

/// Whether a device's primary context is active. False also if the driver cannot tell.
pub(crate) fn is_active(device: i32) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both results are locals.
    unsafe {
        cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) == 0 && active != 0
    }
}

/// The mangled name of a function or a kernel; None if the driver cannot tell.
pub(crate) fn name_of(function: u64) -> Option<&'static [u8]> {
    let mut name = core::ptr::null();
    // SAFETY: the program is about to launch this function or kernel; the driver tells the two apart.
    let found = unsafe {
        cuFuncGetName(&raw mut name, function) == 0 || cuKernelGetName(&raw mut name, function) == 0
    };
    if !found || name.is_null() {
        return None;
    }
    // SAFETY: the string is the module's own, and ends with a zero. Callers read it before the program can
    // unload the module.
    Some(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// The handle of the stream that a function's argument means. 0 means the legacy default stream, or the
/// thread's own default stream in the function's per-thread form.
pub(crate) fn handle(given: u64, per_thread: bool) -> u64 {
    match given {
        0 if per_thread => PER_THREAD,
        0 => LEGACY,
        other => other,
    }
}
