//! cudarc's streams, memory and kernels.
//!
//! cudarc panics where the driver's library is missing, so [`Cuda::get`] comes before its first call.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUfunction;
use cudarc::driver::{CudaContext, CudaStream};

use super::argument::Slot;
use super::kernel::{Grid, Kernel, Loaded};
use super::stream::{Backend, WorkStream};
use super::unlocked::unlocked;
use crate::device::{Context, Place};
use crate::driver::cuda::Cuda;
use crate::driver::{Handle, codes};
use crate::error::{Error, Kind, Result};
use crate::order::within;
use crate::stream::Thread;

impl From<DriverError> for Error {
    fn from(DriverError(code): DriverError) -> Self {
        codes::failed("cudarc", code as u32)
    }
}

// SAFETY: cudarc destroys a stream with its last `Arc`, and the default ones never.
unsafe impl WorkStream for Arc<CudaStream> {
    fn handle(&self) -> u64 {
        self.cu_stream() as u64
    }

    fn place(&self) -> Place {
        let context = self.context();
        let ordinal = i32::try_from(context.ordinal()).unwrap_or(i32::MAX);
        if context.is_primary() {
            return Place::gpu(ordinal);
        }
        let raw = NonZeroUsize::new(context.cu_ctx() as usize);
        Place { ordinal, context: raw.map(Context) }
    }

    fn driver(&self) -> Result<Handle> {
        Ok(Handle::Cuda)
    }

    fn backend(&self) -> Backend<'_> {
        Backend::Cuda(self)
    }
}

/// How many streams each GPU has of the crate's own.
const POOLED: u64 = 16;

/// A GPU's context in that life of it, and the streams there that were made so far.
struct Pool {
    ordinal: i32,
    life: u64,
    context: Arc<CudaContext>,
    streams: Vec<(u64, Arc<CudaStream>)>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

/// The calling thread's stream of a GPU. It is never destroyed.
pub(super) fn pooled(ordinal: i32) -> Result<Arc<CudaStream>> {
    Cuda::get()?;
    let slot = Thread::current().number() % POOLED;
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = pools.iter().position(|pool| pool.ordinal == ordinal);
    let at = match at {
        // A reset of the device took the streams with it: their owners have handles of nothing, and to destroy one
        // ends the process.
        Some(at) if life(pools[at].context.cu_ctx() as usize)? != pools[at].life => {
            std::mem::forget(pools.swap_remove(at));
            new_pool(&mut pools, ordinal)?
        }
        Some(at) => at,
        None => new_pool(&mut pools, ordinal)?,
    };
    let pool = &mut pools[at];
    if let Some((_, stream)) = pool.streams.iter().find(|(taken, _)| *taken == slot) {
        return Ok(Arc::clone(stream));
    }
    let stream = within(Handle::Cuda.get()?, Place::gpu(ordinal), |_| {
        if !pool.streams.is_empty() {
            return Ok::<_, Error>(pool.context.new_stream()?);
        }
        // With the first one cudarc begins to order slices between streams, and has the host wait for the device,
        // unless it tracks no events.
        // SAFETY: the context is this pool's own, and has no slice yet.
        unsafe { pool.context.disable_event_tracking() };
        let stream = pool.context.new_stream();
        // SAFETY: as above.
        unsafe { pool.context.enable_event_tracking() };
        Ok(stream?)
    })?;
    pool.streams.push((slot, Arc::clone(&stream)));
    Ok(stream)
}

fn new_pool(pools: &mut Vec<Pool>, ordinal: i32) -> Result<usize> {
    let number = usize::try_from(ordinal)
        .map_err(|_| Error::new(Kind::DeviceOrdinal, ordinal.to_string()))?;
    let context = within(Handle::Cuda.get()?, Place::gpu(ordinal), |_| {
        Ok::<_, Error>(CudaContext::new(number)?)
    })?;
    let life = life(context.cu_ctx() as usize)?;
    pools.push(Pool { ordinal, life, context, streams: Vec::new() });
    Ok(pools.len() - 1)
}

/// Copies `bytes` to `ptr` in the order of `stream`.
pub(super) fn fill(stream: &Arc<CudaStream>, ptr: u64, bytes: &[u8]) -> Result<()> {
    let mut filled = Ok(());
    unlocked(&mut || {
        filled = Handle::Cuda.get().and_then(|driver| {
            within(driver, stream.place(), |_| {
                // SAFETY: the caller has just taken as much memory at `ptr` on this stream. The driver has staged
                // pageable memory when the call returns (CUDA driver API, "API synchronization behavior").
                Ok(unsafe { result::memcpy_htod_async(ptr, bytes, stream.cu_stream()) }?)
            })
        });
    });
    filled
}

/// Queues `kernel`.
///
/// # Safety
///
/// It takes these arguments, and touches no other memory.
pub(super) unsafe fn launch(
    stream: &Arc<CudaStream>,
    kernel: &'static Kernel,
    grid: Grid,
    slots: &[Slot],
) -> Result<()> {
    let mut launched = Ok(());
    unlocked(&mut || {
        // SAFETY: the caller's.
        launched = unsafe { launch_unlocked(stream, kernel, grid, slots) };
    });
    launched
}

/// The same with no lock of the interpreter's: a full queue blocks it, and the driver may have to compile the kernel.
///
/// # Safety
///
/// As above.
unsafe fn launch_unlocked(
    stream: &Arc<CudaStream>,
    kernel: &'static Kernel,
    grid: Grid,
    slots: &[Slot],
) -> Result<()> {
    let numbers: Vec<[u8; 8]> = slots.iter().map(bytes).collect();
    // As many bytes are read of each as the kernel's parameter has. None is written.
    let place = |(slot, number): (&Slot, &[u8; 8])| match slot {
        Slot::Value(value) => Arc::as_ptr(value).cast::<c_void>().cast_mut(),
        _ => number.as_ptr().cast::<c_void>().cast_mut(),
    };
    let mut places: Vec<*mut c_void> = slots.iter().zip(&numbers).map(place).collect();
    within(Handle::Cuda.get()?, stream.place(), |_| {
        let function = function(stream, kernel)?;
        let triple = |[x, y, z]: [u32; 3]| (x, y, z);
        let (blocks, threads) = (triple(grid.blocks), triple(grid.threads));
        let (shared, on) = (grid.shared, stream.cu_stream());
        // SAFETY: the caller's for the arguments, which outlive the call; the function is of this context, and
        // never unloaded.
        Ok(unsafe { result::launch_kernel(function, blocks, threads, shared, on, &mut places) }?)
    })
}

/// A number or an address as the driver reads it.
fn bytes(slot: &Slot) -> [u8; 8] {
    match slot {
        Slot::Number(number, _) => *number,
        Slot::Memory(array, _) => array.ptr().to_le_bytes(),
        Slot::Value(_) => [0; 8],
    }
}

/// The kernel's function in the context of `stream`, which is current. It stays loaded, as the kernel does.
fn function(stream: &Arc<CudaStream>, kernel: &'static Kernel) -> Result<CUfunction> {
    let context = stream.context().cu_ctx() as usize;
    let life = life(context)?;
    let known = |loaded: &[Loaded]| {
        let found = loaded.iter().find(|known| (known.context, known.life) == (context, life));
        found.map(|known| known.function as CUfunction)
    };
    let loaded = || kernel.loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(function) = known(&loaded()) {
        return Ok(function);
    }
    // The driver compiles without the lock: other threads launch in other contexts meanwhile.
    let refused = |_| Error::new(Kind::NoBackend, format!("a NUL in {kernel:?}"));
    let ptx = CString::new(kernel.ptx()).map_err(refused)?;
    let name = CString::new(kernel.name()).map_err(refused)?;
    // SAFETY: the text ends with a NUL, which is how the driver tells PTX from a binary.
    let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) }?;
    // SAFETY: the module was loaded by the line above.
    let function = unsafe { result::module::get_function(module, name) }?;
    let mut loaded = loaded();
    if let Some(sooner) = known(&loaded) {
        // Another thread was sooner, and this module is not needed.
        // SAFETY: loaded above, in this context, and its function is not launched.
        let _ = unsafe { result::module::unload(module) };
        return Ok(sooner);
    }
    // What was loaded in an earlier context of the address went with it.
    loaded.retain(|known| known.context != context);
    loaded.push(Loaded { context, life, function: function as usize });
    Ok(function)
}

/// The number of a context, which a later one of the same address does not have.
fn life(context: usize) -> Result<u64> {
    let context = NonZeroUsize::new(context).map(Context);
    let none = || Error::new(Kind::DriverMissing, "a stream without a context");
    Handle::Cuda.get()?.life(context.ok_or_else(none)?)
}
