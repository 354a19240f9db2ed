//! cudarc's streams, memory and kernels. cudarc panics if the driver's library is missing. So before this module calls
//! the driver through cudarc, it calls [`Cuda::get`], which then returns an error.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CString, c_void};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute_enum};
use cudarc::driver::{CudaContext, CudaStream};

use super::argument::Slot;
use super::kernel::{Grid, Kernel, Loaded};
use super::stream::{Backend, RustStream, WorkStream};
use super::unlocked::unlocked;
use crate::buffer;
use crate::device::{Context, Place};
use crate::driver::cuda::{Cuda, Launch};
use crate::driver::{Driver, Handle, codes};
use crate::error::{Error, Kind, Result};
use crate::order::within;
use crate::stream::Thread;

impl From<DriverError> for Error {
    fn from(DriverError(code): DriverError) -> Self {
        codes::failed("cudarc", code as u32)
    }
}

// SAFETY: cudarc destroys a stream with the last `Arc` of it, and never destroys a default stream. Who calls
// `wrap_borrowed_stream` promises to keep the wrapped stream alive. Each stream belongs to its `context()`.
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

/// The most streams in the pool of one GPU.
const POOLED: u64 = 16;

struct PrimaryContext {
    ordinal: i32,
    life: u64,
    context: Arc<CudaContext>,
    streams: Vec<(u64, Arc<CudaStream>)>,
}

static POOLS: Mutex<Vec<PrimaryContext>> = Mutex::new(Vec::new());

/// Returns the calling thread's stream on the GPU `ordinal`. Other threads may share the stream, and the crate never
/// destroys the stream.
pub(super) fn pooled(ordinal: i32) -> Result<Arc<CudaStream>> {
    Cuda::get()?;
    let slot = Thread::current().number() % POOLED;
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = pools.iter().position(|pool| pool.ordinal == ordinal);
    let at = match at {
        // The context was destroyed, and its streams with it. Destroying a stream twice kills the process, so forget
        // the pool.
        Some(at) if !is_alive(&pools[at])? => {
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
        // When cudarc makes a context's first stream, the host waits for the context's work, unless event tracking is
        // off.
        // SAFETY: nothing else has this `CudaContext` yet, so no slice is made while event tracking is off.
        unsafe { pool.context.disable_event_tracking() };
        let stream = pool.context.new_stream();
        // SAFETY: event tracking is on by default, and no slice was made while event tracking was off.
        unsafe { pool.context.enable_event_tracking() };
        Ok(stream?)
    })?;
    pool.streams.push((slot, Arc::clone(&stream)));
    Ok(stream)
}

fn is_alive(pool: &PrimaryContext) -> Result<bool> {
    match life(pool.context.cu_ctx() as usize) {
        Ok(life) => Ok(life == pool.life),
        Err(error) if codes::is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn new_pool(pools: &mut Vec<PrimaryContext>, ordinal: i32) -> Result<usize> {
    let number = usize::try_from(ordinal)
        .map_err(|_| Error::new(Kind::DeviceOrdinal, ordinal.to_string()))?;
    let context = within(Handle::Cuda.get()?, Place::gpu(ordinal), |_| {
        Ok::<_, Error>(CudaContext::new(number)?)
    })?;
    let life = life(context.cu_ctx() as usize)?;
    pools.push(PrimaryContext { ordinal, life, context, streams: Vec::new() });
    Ok(pools.len() - 1)
}

pub(super) fn fill(stream: &Arc<CudaStream>, ptr: u64, bytes: &[u8]) -> Result<()> {
    let mut filled = Ok(());
    unlocked(&mut || {
        filled = Handle::Cuda.get().and_then(|driver| {
            within(driver, stream.place(), |_| {
                let bytes = pageable(driver, bytes)?;
                // SAFETY: the caller has just allocated that much memory at `ptr` on this stream. The driver has staged
                // pageable memory when the call returns (CUDA driver API, "API synchronization behavior").
                Ok(unsafe { result::memcpy_htod_async(ptr, &bytes, stream.cu_stream()) }?)
            })
        });
    });
    filled
}

/// If CUDA knows the first or the last byte, for instance as pinned memory, returns a copy of `bytes`: CUDA can still
/// read such memory after the call that queues a copy has returned.
fn pageable<'b>(driver: &dyn Driver, bytes: &'b [u8]) -> Result<Cow<'b, [u8]>> {
    let length = bytes.len();
    if buffer::is_pageable(driver, bytes.as_ptr().addr() as u64, length as u64)? {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut copy = Vec::new();
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    copy.try_reserve_exact(bytes.len()).map_err(|_| buffer::no_host_memory(length))?;
    copy.extend_from_slice(bytes);
    Ok(Cow::Owned(copy))
}

/// Compiles the kernel, unless that was done before. Call this outside a turn: `compile` is the caller's code, and may
/// wait for another thread's launch.
pub(super) fn compile(stream: &Arc<CudaStream>, kernel: &'static Kernel) -> Result<()> {
    let mut compiled = Ok(());
    if !kernel.has_code() {
        unlocked(&mut || {
            let code = |_| kernel.code().map(drop);
            compiled = Handle::Cuda.get().and_then(|driver| within(driver, stream.place(), code));
        });
    }
    compiled
}

/// # Safety
///
/// The kernel's code is complete. The kernel takes these arguments, and touches only the memory of these arguments.
pub(super) unsafe fn launch(
    stream: &Arc<CudaStream>,
    kernel: &'static Kernel,
    grid: Grid,
    slots: &[Slot],
) -> Result<()> {
    let mut launched = Ok(());
    unlocked(&mut || {
        // SAFETY: the caller promises what `launch_unlocked` requires.
        launched = unsafe { launch_unlocked(stream, kernel, grid, slots) };
    });
    launched
}

/// Call this without the interpreter's lock: the launch blocks while the launch queue is full, and the first launch can
/// compile the kernel.
unsafe fn launch_unlocked(
    stream: &Arc<CudaStream>,
    kernel: &'static Kernel,
    grid: Grid,
    slots: &[Slot],
) -> Result<()> {
    let numbers: Vec<[u8; 8]> = slots.iter().map(bytes).collect();
    // The driver reads only as many bytes of an argument as the kernel's parameter has, and writes none.
    let place = |(slot, number): (&Slot, &[u8; 8])| match slot {
        Slot::Value(value, _) => Arc::as_ptr(value).cast::<c_void>().cast_mut(),
        _ => number.as_ptr().cast::<c_void>().cast_mut(),
    };
    let mut places: Vec<*mut c_void> = slots.iter().zip(&numbers).map(place).collect();
    within(Handle::Cuda.get()?, stream.place(), |_| {
        let function = function(stream, kernel, grid.shared)?;
        if grid.cluster.is_some() || grid.cooperative {
            let Grid { blocks, threads, shared, cluster, cooperative } = grid;
            let (function, arguments) = (function as usize, &mut places[..]);
            let launch =
                Launch { function, blocks, threads, shared, cluster, cooperative, arguments };
            // SAFETY: the caller promises that the kernel takes these arguments, which outlive the call. The function
            // belongs to this context and is never unloaded. The scope's stream waits for the memory of each view.
            return unsafe { Cuda::get()?.launch(launch, RustStream::of(stream).alive()) };
        }
        let triple = |[x, y, z]: [u32; 3]| (x, y, z);
        let (blocks, threads) = (triple(grid.blocks), triple(grid.threads));
        let (shared, on) = (grid.shared, stream.cu_stream());
        // SAFETY: the caller promises that the kernel takes these arguments, which outlive the call. The function
        // belongs to this context and is never unloaded.
        Ok(unsafe { result::launch_kernel(function, blocks, threads, shared, on, &mut places) }?)
    })
}

fn bytes(slot: &Slot) -> [u8; 8] {
    match slot {
        Slot::Number(number, _) => *number,
        Slot::Memory(array, _) => array.ptr().to_le_bytes(),
        Slot::Value(..) => [0; 8],
    }
}

/// The kernel's code for `cuModuleLoadData`: a cubin or a fatbin as it is; any other code, such as PTX text, with a NUL
/// at its end.
fn image(kernel: &Kernel) -> Result<Cow<'_, [u8]>> {
    const CUBIN: &[u8] = b"\x7fELF";
    const FATBIN: &[u8] = &0xBA55_ED50_u32.to_le_bytes();
    let code = kernel.code()?;
    if code.starts_with(CUBIN) || code.starts_with(FATBIN) {
        return Ok(Cow::Borrowed(code));
    }
    Ok(Cow::Owned(CString::new(code).map_err(|_| with_nul(kernel))?.into_bytes_with_nul()))
}

#[cold]
fn with_nul(kernel: &Kernel) -> Error {
    Error::kernel_code(kernel.name(), format!("a NUL in {kernel:?}"))
}

/// The context of `stream` must be current.
fn function(stream: &Arc<CudaStream>, kernel: &'static Kernel, shared: u32) -> Result<CUfunction> {
    let context = stream.context().cu_ctx() as usize;
    let life = life(context)?;
    let known = |loaded: &mut [Loaded]| {
        let mut all = loaded.iter_mut();
        let found = all.find(|known| (known.context, known.life) == (context, life));
        found.map(|known| with_shared(known, shared))
    };
    let loaded = || kernel.loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(function) = known(&mut loaded()) {
        return function;
    }
    // Do not lock `kernel.loaded` while the code is made and loaded, so that other threads can launch the kernel.
    let image = image(kernel)?;
    let name = CString::new(kernel.name()).map_err(|_| with_nul(kernel))?;
    // SAFETY: text ends with a NUL, and a binary states its length. The caller of the launch promises that the binary
    // is complete.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }?;
    // SAFETY: the line above loaded the module.
    let function = unsafe { result::module::get_function(module, name) }?;
    let mut loaded = loaded();
    if let Some(sooner) = known(&mut loaded) {
        // SAFETY: the module was loaded above, in this context, and its function has not been launched.
        let _ = unsafe { result::module::unload(module) };
        return sooner;
    }
    // Remove the entries of earlier contexts at this address: they are destroyed, and their modules unloaded.
    loaded.retain(|known| known.context != context);
    let mut new = Loaded { context, life, function: function as usize, shared: 0 };
    let function = with_shared(&mut new, shared);
    loaded.push(new);
    function
}

/// Never lowers the function's limit of shared memory: another thread may be about to launch with more.
fn with_shared(loaded: &mut Loaded, shared: u32) -> Result<CUfunction> {
    let function = loaded.function as CUfunction;
    if shared > loaded.shared {
        let most = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(shared).unwrap_or(i32::MAX);
        // SAFETY: the function was loaded in the current context, whose number is still the same.
        unsafe { result::function::set_function_attribute(function, most, bytes) }?;
        loaded.shared = shared;
    }
    Ok(function)
}

/// The context's number (`cuCtxGetId`), which a later context at the same address does not have. 0 before CUDA 12.
fn life(context: usize) -> Result<u64> {
    let context = NonZeroUsize::new(context).map(Context);
    let none = || Error::new(Kind::DriverMissing, "a stream without a context");
    Handle::Cuda.get()?.life(context.ok_or_else(none)?)
}
