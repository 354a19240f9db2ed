//! The entry points, by the driver's own names.
//!
//! Signatures: CUDA Driver API, "Device Management" to "Stream Memory Operations". Every pointer is one that the
//! caller of the real driver has to give, too, and is written only after a test's own answer was looked at.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::answers::{CLAIMS, Entry};

type Context = *mut c_void;
type Stream = *mut c_void;
type Event = *mut c_void;

/// The primary context of device 0; device 1's follows.
const PRIMARY: usize = 0x10_0000;
/// From this handle on, a stream is one of device 1.
const SECOND: usize = 0x2000_0000_0000;

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: RefCell<c_uint> = const { RefCell::new(0) };
}

/// How long an event is waited for that is not reached.
const PATIENCE: Duration = Duration::from_secs(5);

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

static EVENTS: AtomicUsize = AtomicUsize::new(0x20_0000);
/// The sizes of what was allocated.
static MEMORY: Mutex<Option<HashMap<u64, Layout>>> = Mutex::new(None);

/// The modules that are loaded, with the context's identity then.
static MODULES: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
static NEXT_MODULE: AtomicUsize = AtomicUsize::new(0x30_0000);
/// What streams run on the host.
static BUSY: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Waits until no stream is busy.
fn wait_for_all() {
    let busy = BUSY.lock().map(|mut busy| std::mem::take(&mut *busy)).unwrap_or_default();
    for thread in busy {
        let _ = thread.join();
    }
}

/// Whether a call that a capture of another thread minds may be made now.
fn is_relaxed() -> bool {
    MODE.with_borrow(|mode| *mode == RELAXED)
}

/// Writes the address of memory of its own where the caller wants it; false without memory.
unsafe fn taken(to: *mut u64, size: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(size.max(1), 256) else { return false };
    // SAFETY: the size is not 0.
    let address = unsafe { alloc(layout) }.expose_provenance() as u64;
    if let Ok(mut memory) = MEMORY.lock() {
        memory.get_or_insert_default().insert(address, layout);
    }
    // SAFETY: the caller's word.
    unsafe { put(to, address) };
    address != 0
}

/// Frees what `taken` gave; false for what it did not.
unsafe fn freed(pointer: u64) -> bool {
    let layout = MEMORY.lock().ok().and_then(|mut memory| memory.as_mut()?.remove(&pointer));
    let Some(layout) = layout else { return false };
    // SAFETY: it was allocated with that layout, and is freed once.
    unsafe { dealloc(std::ptr::with_exposed_provenance_mut(pointer as usize), layout) };
    true
}

fn primary(ordinal: u64) -> usize {
    PRIMARY + usize::try_from(ordinal).unwrap_or_default() * 0x1000
}

fn current() -> usize {
    let own = CURRENT.with_borrow(|stack| stack.last().copied());
    own.unwrap_or(if CLAIMS.current.load(Relaxed) == 0 { 0 } else { PRIMARY })
}

/// Writes an answer where the caller wants it.
unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller of the driver gives a place for the answer.
        unsafe { to.write(value) };
    }
}

macro_rules! entries {
    ($($name:ident($($argument:ident: $kind:ty),*) $body:block)+) => {
        $(
            #[allow(missing_docs, clippy::missing_safety_doc, unused_unsafe)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> u32 {
                if let Some(code) = entry::$name.called() {
                    return code;
                }
                // SAFETY: the arguments are those that the driver asks its own callers for.
                unsafe { $body }
                0
            }
        )+

        #[allow(non_upper_case_globals)]
        mod entry {
            use super::Entry;

            $(pub(super) static $name: Entry = {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                match std::ffi::CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => Entry::new(name),
                    Err(_) => unreachable!(),
                }
            };)+
        }

        /// All of them.
        pub(crate) static ALL: &[&Entry] = &[$(&entry::$name),+];
    };
}

entries! {
    cuInit(_flags: c_uint) {}
    cuDeviceGet(device: *mut c_int, ordinal: c_int) { put(device, ordinal); }
    cuDeviceGetCount(count: *mut c_int) { put(count, CLAIMS.devices.load(Relaxed) as c_int); }
    cuDevicePrimaryCtxRetain(context: *mut Context, device: c_int) {
        put(context, primary(u64::try_from(device).unwrap_or_default()) as Context);
    }
    cuPointerGetAttributes(
        count: c_uint, names: *const c_uint, values: *mut *mut c_void, pointer: u64
    ) {
        let known = pointer >= 0x1000;
        let kind = if known { CLAIMS.memory_type.load(Relaxed) } else { 0 };
        let ordinal = CLAIMS.ordinal.load(Relaxed);
        for at in 0..count as usize {
            let value = *values.add(at);
            match *names.add(at) {
                1 => put(value.cast::<usize>(), if kind == 0 { 0 } else { primary(ordinal) }),
                2 => put(value.cast::<c_uint>(), kind as c_uint),
                8 => put(value.cast::<u8>(), CLAIMS.managed.load(Relaxed) as u8),
                9 => put(value.cast::<c_int>(), if kind == 0 { -2 } else { ordinal as c_int }),
                _ => return 1,
            }
        }
    }
    cuCtxGetCurrent(context: *mut Context) { put(context, current() as Context); }
    cuCtxGetDevice(device: *mut c_int) {
        match current() {
            0 => return 201,
            context => put(device, ((context - PRIMARY) / 0x1000) as c_int),
        }
    }
    cuCtxSetCurrent(context: Context) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(context as usize);
        });
    }
    cuCtxPushCurrent_v2(context: Context) {
        CURRENT.with_borrow_mut(|stack| stack.push(context as usize));
    }
    cuCtxPopCurrent_v2(context: *mut Context) {
        match CURRENT.with_borrow_mut(Vec::pop) {
            Some(popped) => put(context, popped as Context),
            None => return 201,
        }
    }
    cuCtxSynchronize() {}
    cuCtxGetId(_context: Context, id: *mut u64) { put(id, CLAIMS.context_id.load(Relaxed)); }
    cuStreamGetId(stream: Stream, id: *mut u64) {
        put(id, CLAIMS.stream_id.load(Relaxed) + stream as usize as u64);
    }
    cuStreamGetFlags(_stream: Stream, flags: *mut c_uint) { put(flags, 1); } // non-blocking
    cuStreamGetCtx(stream: Stream, context: *mut Context) {
        put(context, primary(u64::from(stream as usize >= SECOND)) as Context);
    }
    cuStreamIsCapturing(_stream: Stream, status: *mut c_uint) {
        put(status, CLAIMS.capturing.load(Relaxed) as c_uint);
    }
    cuStreamGetCaptureInfo_v2(
        _stream: Stream, status: *mut c_uint, id: *mut u64, _graph: *mut *mut c_void,
        _dependencies: *mut *const c_void, _count: *mut usize
    ) {
        put(status, CLAIMS.capturing.load(Relaxed) as c_uint);
        put(id, 1);
    }
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        MODE.with_borrow_mut(|own| std::mem::swap(own, &mut *mode));
    }
    cuStreamSynchronize(_stream: Stream) {}
    cuEventCreate(event: *mut Event, _flags: c_uint) {
        put(event, EVENTS.fetch_add(16, Relaxed) as Event);
    }
    cuEventRecord(_event: Event, _stream: Stream) {}
    cuEventQuery(_event: Event) {
        if CLAIMS.reached.load(Relaxed) == 0 {
            return 600;
        }
    }
    cuEventSynchronize(_event: Event) {
        if !is_relaxed() {
            return 900;
        }
        let begun = Instant::now();
        while CLAIMS.reached.load(Relaxed) == 0 {
            if begun.elapsed() > PATIENCE {
                return 702;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    cuStreamWaitEvent(_stream: Stream, _event: Event, _flags: c_uint) {}
    cuStreamCreate(stream: *mut Stream, _flags: c_uint) {
        put(stream, EVENTS.fetch_add(16, Relaxed) as Stream);
    }
    cuStreamDestroy_v2(_stream: Stream) {}
    cuStreamQuery(_stream: Stream) {
        if BUSY.lock().is_ok_and(|busy| busy.iter().any(|thread| !thread.is_finished())) {
            return 600;
        }
    }
    cuLaunchHostFunc(
        _stream: Stream, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void
    ) {
        let Some(function) = function else { return 1 };
        let data = data as usize;
        let thread = std::thread::spawn(move || {
            // SAFETY: the caller's function, with its data.
            unsafe { function(data as *mut c_void) }
        });
        if let Ok(mut busy) = BUSY.lock() {
            busy.push(thread);
        }
    }
    cuModuleLoadData(module: *mut *mut c_void, _image: *const c_void) {
        if !is_relaxed() {
            return 900;
        }
        wait_for_all();
        let new = NEXT_MODULE.fetch_add(16, Relaxed);
        if let Ok(mut modules) = MODULES.lock() {
            modules.push((new, CLAIMS.context_id.load(Relaxed)));
        }
        put(module, new as *mut c_void);
    }
    cuModuleUnload(module: *mut c_void) {
        if !is_relaxed() {
            return 900;
        }
        let known = (module as usize, CLAIMS.context_id.load(Relaxed));
        let Ok(mut modules) = MODULES.lock() else { return 1 };
        match modules.iter().position(|loaded| *loaded == known) {
            Some(at) => modules.swap_remove(at),
            // The real driver dies of a module whose context is gone.
            None => std::process::abort(),
        };
        drop(modules);
        if CLAIMS.unload_waits.load(Relaxed) != 0 {
            wait_for_all();
        }
    }
    cuMemAlloc_v2(pointer: *mut u64, size: usize) {
        if !taken(pointer, size) {
            return 2;
        }
    }
    cuMemFree_v2(pointer: u64) {
        if !is_relaxed() {
            return 900;
        }
        wait_for_all();
        if !freed(pointer) {
            return 1;
        }
    }
    cuMemAllocHost_v2(pointer: *mut *mut c_void, size: usize) {
        if !taken(pointer.cast(), size) {
            return 2;
        }
    }
    cuMemFreeHost(pointer: *mut c_void) {
        if !is_relaxed() {
            return 900;
        }
        wait_for_all();
        if !freed(pointer.expose_provenance() as u64) {
            return 1;
        }
    }
    cuMemAllocAsync(pointer: *mut u64, size: usize, _stream: Stream) {
        if !taken(pointer, size) {
            return 2;
        }
    }
    cuMemFreeAsync(pointer: u64, _stream: Stream) {
        if !freed(pointer) {
            return 1;
        }
    }
    cuMemcpyAsync(_to: u64, _from: u64, _size: usize, _stream: Stream) {}
    cuMemcpyDtoHAsync_v2(_to: *mut c_void, _from: u64, _size: usize, _stream: Stream) {}
    cuMemcpyHtoDAsync_v2(_to: u64, _from: *const c_void, _size: usize, _stream: Stream) {}
    cuMemcpyPeerAsync(
        _to: u64, _tos: Context, _from: u64, _froms: Context, _size: usize, _stream: Stream
    ) {}
    cuMemcpy2DAsync_v2(_copy: *const c_void, _stream: Stream) {}
    cuMemcpy3DAsync_v2(_copy: *const c_void, _stream: Stream) {}
    cuMemcpy3DPeerAsync(_copy: *const c_void, _stream: Stream) {}
}

/// The names that a test's code may have; of others the driver knows nothing, as of a newer one's.
#[allow(missing_docs, clippy::missing_safety_doc)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, name: *mut *const c_char) -> u32 {
    let known = match code {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        3 => c"CUDA_ERROR_NOT_INITIALIZED",
        4 => c"CUDA_ERROR_DEINITIALIZED",
        100 => c"CUDA_ERROR_NO_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        600 => c"CUDA_ERROR_NOT_READY",
        221 => c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        709 => c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        900 => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        906 => c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        _ => {
            // SAFETY: the caller gives a place for the answer.
            unsafe { put(name, std::ptr::null()) };
            return 1;
        }
    };
    // SAFETY: as above.
    unsafe { put(name, known.as_ptr()) };
    0
}
