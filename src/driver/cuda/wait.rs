//! How the host waits for all work of a context.
//!
//! `cuCtxSynchronize` invalidates every capture in the context. In relaxed mode, `cuModuleUnload` waits for the same
//! work, invalidates no capture and lets other threads queue work (H100, driver 580, 2026-11). Loading a module keeps
//! other threads from launching. So a wait that has unloaded a module loads the module for the next wait.
//!
//! No documentation says that unloading waits, so the bridge checks that before it relies on unloading. If unloading
//! does not wait, the bridge allocates and frees memory instead, which waits as well.
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

/// PTX with one empty kernel, for CUDA 11 or later and compute capability 5.0 or later.
const EMPTY: &CStr =
    c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry cai_bridge_empty() { ret; }\n";

/// If the checking thread is held up for longer than the work, the check wrongly sees a wait. So three checks are made.
const WORK: &[Duration; 3] =
    &[Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

struct HostWait {
    unloading_waits: OnceLock<bool>,
    spare: Mutex<Vec<Arc<SpareModule>>>,
}

static HOST_WAIT: HostWait =
    HostWait { unloading_waits: OnceLock::new(), spare: Mutex::new(Vec::new()) };

/// A loaded module, if any, for the next host wait for `context` to unload. `life` is the context's number.
#[derive(Debug)]
struct SpareModule {
    context: Context,
    life: u64,
    /// A thread holds this lock while it waits, so that no second thread loads another module for the same context.
    module: Mutex<Option<usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the modules of destroyed contexts at the same address: the driver has unloaded these modules.
fn spare(context: Context, life: u64) -> Arc<SpareModule> {
    let mut all = lock(&HOST_WAIT.spare);
    all.retain(|spare| spare.context != context || spare.life == life);
    if let Some(known) = all.iter().find(|spare| spare.context == context) {
        return Arc::clone(known);
    }
    let new = Arc::new(SpareModule { context, life, module: Mutex::new(None) });
    all.push(Arc::clone(&new));
    new
}

/// CUDA runs this function on a stream, so the function must make no CUDA call. `work` points to a `Duration`.
unsafe extern "C" fn sleep(work: *mut c_void) {
    // SAFETY: only `is_seen_to_wait_for` queues this function, and it passes a `&'static Duration` as `work`.
    std::thread::sleep(unsafe { *work.cast::<Duration>() });
}

impl Cuda {
    pub(super) fn wait_for_context(&self) -> Result<()> {
        let current = self.current_context()?;
        let Some(context) = current else {
            return self.calls.check("cuCtxGetCurrent", INVALID_CONTEXT);
        };
        // Without the numbers of contexts, a module could belong to an earlier context at the same address.
        let modules = self.modules.as_ref().filter(|_| self.numbers.is_some());
        let life = self.life(context)?;
        let _relaxed = self.calls.relaxed()?;
        match modules {
            Some(modules) if modules.wait(context, life).unwrap_or(false) => Ok(()),
            _ => self.calls.wait_by_memory(),
        }
    }
}

impl ModuleCalls {
    /// Waits for all work of `context`, which must be current. Returns false if unloading does not wait.
    fn wait(&self, context: Context, life: u64) -> Result<bool> {
        if HOST_WAIT.unloading_waits.get() == Some(&false) {
            return Ok(false);
        }
        let spare = spare(context, life);
        let mut module = lock(&spare.module);
        let unloaded = module.take().map_or_else(|| self.load_empty(), Ok)?;
        match HOST_WAIT.unloading_waits.get() {
            Some(true) => self.unload_empty(unloaded)?,
            Some(false) => {
                *module = Some(unloaded);
                return Ok(false);
            }
            None if !self.is_seen_to_wait(unloaded)? => return Ok(false),
            None => {}
        }
        *module = Some(self.load_empty()?);
        Ok(true)
    }

    fn load_empty(&self) -> Result<usize> {
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: `module` outlives the call; the image is PTX with a NUL at the end, as the driver requires.
        unsafe { self.load_data(&raw mut module, EMPTY.as_ptr().cast()) }?;
        Ok(module as usize)
    }

    fn unload_empty(&self, module: usize) -> Result<()> {
        // SAFETY: `load_empty` loaded the module in the current context, which was not destroyed since: the slot has
        // the context's number. No slot holds the module any more, so it is unloaded once. Nothing in it was ever used.
        unsafe { self.unload(module as CUmodule) }
    }

    /// Whether unloading a module waits for queued work. The answer is kept for the process, but an error is not.
    fn is_seen_to_wait(&self, module: usize) -> Result<bool> {
        let mut next = Some(module);
        for work in WORK {
            let module = next.take().map_or_else(|| self.load_empty(), Ok)?;
            if !self.is_seen_to_wait_for(work, module)? {
                return Ok(*HOST_WAIT.unloading_waits.get_or_init(|| false));
            }
        }
        Ok(*HOST_WAIT.unloading_waits.get_or_init(|| true))
    }

    /// Unloads `module` while a new stream is busy for the time `work`. Returns whether the stream is done afterwards.
    fn is_seen_to_wait_for(&self, work: &'static Duration, module: usize) -> Result<bool> {
        let mut stream: CUstream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` outlives the call.
        unsafe { self.create(&raw mut stream, flags) }?;
        let work = ptr::from_ref(work).cast_mut().cast();
        // SAFETY: the stream was made above. `sleep` only reads `work`, and both exist as long as the process.
        let queued = unsafe { self.launch(stream, Some(sleep), work) };
        let unloaded = self.unload_empty(module);
        // SAFETY: the stream was made above.
        let (asked, code) = ("cuStreamQuery", unsafe { (self.query)(stream) });
        // SAFETY: the stream was made above, and no other code has it. Its work ends by itself.
        let ended = unsafe { self.destroy(stream) };
        queued.and(unloaded).and(ended)?;
        let waited = code != NOT_READY;
        if waited {
            self.check(asked, code)?;
        }
        Ok(waited)
    }
}

impl Calls {
    /// Waits by freeing memory: on the device, or on the host if the device has no memory left.
    fn wait_by_memory(&self) -> Result<()> {
        let mut pointer: CUdeviceptr = 0;
        // SAFETY: `pointer` outlives the call.
        match unsafe { self.allocate(&raw mut pointer, 1) } {
            // SAFETY: the memory was allocated above, and no other code has it.
            Ok(()) => unsafe { self.free(pointer) },
            Err(error)
                if error.driver_code().is_some_and(|failed| failed.code == OUT_OF_MEMORY) =>
            {
                let mut pointer: *mut c_void = ptr::null_mut();
                // SAFETY: `pointer` outlives the call.
                unsafe { self.allocate_host(&raw mut pointer, 1) }?;
                // SAFETY: the memory was allocated above, and no other code has it.
                unsafe { self.free_host(pointer) }
            }
            Err(error) => Err(error),
        }
    }
}
