//! The host's wait for all work of a context.
//!
//! `cuCtxSynchronize` ends every capture of the context, and the process, beside captures of other threads. What waits
//! for as much and harms no capture is `cuModuleUnload` of a module that was loaded before; other threads launch, copy
//! and record meanwhile, all of it measured on an H100 with driver 580 (2026-11). To load a module waits as well, and
//! keeps others from launching until it is done, so one is loaded right after each wait, for the next.
//!
//! No documentation says that unloading waits, so it is seen once in each process, by work that takes a while. Where it
//! does not, or cannot be had, memory is taken and freed, which waits too but holds up the launches of other threads.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::Cuda;
use super::calls::{Calls, ModuleCalls};
use super::sys::{CUdeviceptr, CUmodule, CUstream, CUstream_flags};
use crate::driver::codes::{INVALID_CONTEXT, NOT_READY, OUT_OF_MEMORY};
use crate::driver::{Context, Driver as _};
use crate::error::Result;

/// A module with one empty kernel, for any GPU and any driver of today.
const EMPTY: &CStr =
    c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry cai_bridge_empty() { ret; }\n";

/// How long the work takes by which unloading is seen to wait.
const A_WHILE: Duration = Duration::from_millis(1);

/// Whether unloading a module waits, once that was seen.
static WAITS: OnceLock<bool> = OnceLock::new();

/// The contexts that the host has waited for, in each life of theirs.
static SPARE: Mutex<Vec<Arc<Spare>>> = Mutex::new(Vec::new());

/// The module that the next wait for a context unloads.
#[derive(Debug)]
struct Spare {
    context: Context,
    life: u64,
    /// `CUmodule`; who waits keeps it locked. Another thread that waits for the same context waits for that first, and
    /// then has a module, too: to load one meanwhile would hold up the launches of all others.
    module: Mutex<Option<usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The spare module of `context` in that life; those of its earlier lives are forgotten, as the driver took them down.
fn spare(context: Context, life: u64) -> Arc<Spare> {
    let mut all = lock(&SPARE);
    all.retain(|spare| spare.context != context || spare.life == life);
    if let Some(known) = all.iter().find(|spare| spare.context == context) {
        return Arc::clone(known);
    }
    let new = Arc::new(Spare { context, life, module: Mutex::new(None) });
    all.push(Arc::clone(&new));
    new
}

/// What a stream runs to be busy for a while. It may call neither CUDA nor Python: the driver's own thread runs it.
unsafe extern "C" fn sleep(_: *mut c_void) {
    std::thread::sleep(A_WHILE);
}

impl Cuda {
    /// The host waits for all work of the current context. See the module's text.
    pub(super) fn wait_for_context(&self) -> Result<()> {
        let current = self.current_context()?;
        let Some(context) = current else {
            return self.calls.check("cuCtxGetCurrent", INVALID_CONTEXT);
        };
        // Without numbers nothing tells a module from one of a context that was at the same address before.
        let modules = self.modules.as_ref().filter(|_| self.numbers.is_some());
        let life = self.life(context)?;
        let _relaxed = self.calls.relaxed()?;
        match modules {
            // If anything fails, freeing memory waits, or says what is wrong with the context.
            Some(modules) if modules.wait(context, life).unwrap_or(false) => Ok(()),
            _ => self.calls.wait_by_memory(),
        }
    }
}

impl ModuleCalls {
    /// Waits by unloading a module of `context`, which is current; false if that does not wait.
    fn wait(&self, context: Context, life: u64) -> Result<bool> {
        if WAITS.get() == Some(&false) {
            return Ok(false);
        }
        let spare = spare(context, life);
        let mut module = lock(&spare.module);
        let unloaded = module.take().map_or_else(|| self.load_empty(), Ok)?;
        if WAITS.get().is_some() {
            self.unload_empty(unloaded)?;
        } else if !self.is_seen_to_wait(unloaded)? {
            return Ok(false);
        }
        *module = Some(self.load_empty()?);
        Ok(true)
    }

    /// A new module in the current context.
    fn load_empty(&self) -> Result<usize> {
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: `module` outlives the call; the image is PTX that ends with NUL, as the driver asks of it.
        unsafe { self.load_data(&raw mut module, EMPTY.as_ptr().cast()) }?;
        Ok(module as usize)
    }

    fn unload_empty(&self, module: usize) -> Result<()> {
        // SAFETY: `load_empty` made it in the context that is current now, in the life that it is in; it was taken
        // out of the place of the spare one, so it is not unloaded again, and nothing of it was ever used.
        unsafe { self.unload(module as CUmodule) }
    }

    /// Unloads `module` while a stream of our own is busy, and says whether that stream is done then.
    fn is_seen_to_wait(&self, module: usize) -> Result<bool> {
        let mut stream: CUstream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` outlives the call.
        unsafe { self.create(&raw mut stream, flags) }?;
        // SAFETY: the stream was made above; the function takes any data, and is there as long as the process is.
        let queued = unsafe { self.launch(stream, Some(sleep), ptr::null_mut()) };
        let unloaded = self.unload_empty(module);
        // SAFETY: the stream was made above.
        let (asked, code) = ("cuStreamQuery", unsafe { (self.query)(stream) });
        // SAFETY: the stream was made above, and no other code has it; what is queued on it ends by itself.
        let ended = unsafe { self.destroy(stream) };
        queued.and(unloaded).and(ended)?;
        let waited = code != NOT_READY;
        if waited {
            self.check(asked, code)?;
        }
        Ok(*WAITS.get_or_init(|| waited))
    }
}

impl Calls {
    /// Waits by freeing memory, of the device's or of the host's.
    fn wait_by_memory(&self) -> Result<()> {
        let mut pointer: CUdeviceptr = 0;
        // SAFETY: `pointer` outlives the call.
        match unsafe { self.allocate(&raw mut pointer, 1) } {
            // SAFETY: the memory was taken above, and no other code has it.
            Ok(()) => unsafe { self.free(pointer) },
            Err(error)
                if error.driver_code().is_some_and(|failed| failed.code == OUT_OF_MEMORY) =>
            {
                let mut pointer: *mut c_void = ptr::null_mut();
                // SAFETY: `pointer` outlives the call.
                unsafe { self.allocate_host(&raw mut pointer, 1) }?;
                // SAFETY: the memory was taken above, and no other code has it.
                unsafe { self.free_host(pointer) }
            }
            Err(error) => Err(error),
        }
    }
}
