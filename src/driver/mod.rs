//! The door to CUDA's driver: what the bridge asks of it, and which one answers.
//!
//! [`Driver`] is the short list of driver calls that the bridge makes; every method is one call, so
//! that each can be counted, made to fail, and dropped in a test. [`cuda`] makes them on a real
//! driver, [`simulated`] on a device that needs no GPU; those that make copies are in [`copies`].
//! Nothing here decides: [`crate::stream::plan`] says which stream waits for which, and [`crate::order`]
//! makes the waits.

pub mod codes;
pub mod copies;
pub mod cuda;
pub mod fork;
pub mod host;
pub mod lent;
pub mod simulated;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::copies::Copies;
use crate::capture::Part;
pub use crate::device::{Context, Pointer};
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

use fork::Process;

/// An event of the driver, `CUevent`, in whatever context it was made.
///
/// Contexts end, and their addresses are used again (`cuDevicePrimaryCtxReset`, `cuCtxDestroy`), so an
/// event notes which life of its context it belongs to: to touch one of an earlier life ends the process
/// (SIGSEGV on `cuEventQuery`, H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `CUevent`.
    pub handle: usize,
    /// The context that it was made in.
    pub context: Context,
    /// The context's number then, which no other context of the process has.
    pub life: u64,
}

/// The calls that the bridge makes. Each is one call of the CUDA driver API, named in its text.
///
/// A failed call is an error of kind [`crate::error::Kind::DriverCall`] that names the call and CUDA's code. None of
/// them panics. Those marked *may block* are made with the interpreter lock released: a full launch
/// queue blocks them, and a host callback in that queue may need the lock.
pub trait Driver: Copies + Send + Sync + fmt::Debug {
    /// `cuPointerGetAttributes`: what `pointer` is; `None` where CUDA does not know it. Legal during
    /// any graph capture.
    fn pointer(&self, pointer: u64) -> Result<Option<Pointer>>;

    /// `cuDevicePrimaryCtxRetain`, once a device: its primary context.
    fn primary_context(&self, ordinal: i32) -> Result<Context>;

    /// `cuCtxGetCurrent`: the calling thread's context.
    fn current_context(&self) -> Result<Option<Context>>;

    /// `cuCtxGetDevice`: the ordinal of the calling thread's current context.
    fn current_ordinal(&self) -> Result<i32>;

    /// `cuCtxPushCurrent`.
    fn push_context(&self, context: Context) -> Result<()>;

    /// `cuCtxPopCurrent`.
    fn pop_context(&self) -> Result<()>;

    /// `cuCtxGetId`: the number of a context, which no other context of the process, and no other life of
    /// this one, has. 10 ns (H200, driver 580, 2026-11).
    fn life(&self, context: Context) -> Result<u64>;

    /// `cuEventCreate`, unless one is to spare: an event of `context`, which must be current, that is the
    /// caller's alone until [`Driver::spare_event`] takes it back. Timing is disabled.
    fn take_event(&self, context: Context) -> Result<Event>;

    /// Takes an event back, which is used again: it may be recorded anew as soon as the wait on it is
    /// queued. No driver call.
    fn spare_event(&self, event: Event);

    /// `cuEventQuery`, in the relaxed mode of `cuThreadExchangeStreamCaptureMode`, so that no capture
    /// minds: whether the work before the event is done. Does not block. Fails where the event's context is
    /// gone.
    fn is_reached(&self, event: Event) -> Result<bool>;

    /// `cuStreamIsCapturing`, and `cuStreamGetCaptureInfo` where it is: the stream's part in a graph
    /// capture. Legal at any time.
    fn part(&self, stream: Alive<'_>) -> Result<Part>;

    /// `cuStreamGetFlags`: whether the stream is a blocking one, which the legacy default stream of its
    /// context is ordered with. Not to be asked of a stream that is being captured, whose capture it
    /// ends.
    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool>;

    /// `cuStreamGetCtx`: the context of a stream, where it is a handle's; a default stream's is the
    /// current one.
    fn stream_context(&self, stream: Alive<'_>) -> Result<Context>;

    /// `cuEventRecord`. May block.
    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamWaitEvent`. May block.
    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, on a stream that is being captured: a node of
    /// the graph that waits, whenever the graph runs, for what was recorded last. So the event is never
    /// to be recorded again, nor destroyed: it is not given back. May block.
    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()>;

    /// `cuCtxSynchronize`: the host waits for all work of the current context. Blocks.
    ///
    /// It ends every capture of the context's streams, in every mode of the calling thread, and none of
    /// another context's.
    fn synchronize_context(&self) -> Result<()>;
}

/// What may block, for whoever is to run it with whatever lock its caller must not hold meanwhile given up.
pub type Call<'a> = &'a mut (dyn FnMut() + Send);

/// The driver that a view was made on, which is the one that it is ordered on later.
#[derive(Debug, Clone)]
pub enum Handle {
    /// The machine's own.
    Cuda,
    /// A simulated one.
    Simulated(Arc<simulated::Simulated>),
    /// A simulated one of another library of this process.
    Borrowed(Arc<lent::borrowed::Borrowed>),
}

impl Handle {
    /// The driver itself. Fails where the machine has none, and in a fork of the process that used it.
    pub fn get(&self) -> Result<&dyn Driver> {
        match self {
            Self::Cuda => cuda::Cuda::get().map(|cuda| cuda as &dyn Driver),
            Self::Simulated(simulated) => {
                simulated.process().check()?;
                Ok(&**simulated)
            }
            Self::Borrowed(borrowed) => {
                borrowed.process().check()?;
                Ok(&**borrowed)
            }
        }
    }

    /// The simulated device, where it is one.
    pub fn machine(&self) -> Option<&dyn simulated::Machine> {
        match self {
            Self::Cuda => None,
            Self::Simulated(simulated) => Some(&**simulated),
            Self::Borrowed(borrowed) => Some(&**borrowed),
        }
    }

    /// Has the primary context of a GPU made, where it is not yet, as [`prepared`] does. What fails then fails
    /// again where the context is needed.
    pub fn open(&self, ordinal: i32, detach: impl FnOnce(Call<'_>)) {
        if let (Self::Cuda, Ok(cuda)) = (self, cuda::Cuda::get())
            && !cuda.is_open(ordinal)
        {
            detach(&mut || drop(cuda.primary_context(ordinal)));
        }
    }

    /// What the driver knows of an address. Refuses memory that is not CUDA's.
    pub fn locate(&self, pointer: u64) -> Result<Pointer> {
        self.get()?.pointer(pointer)?.ok_or_else(|| {
            Error::new(Kind::HostPointer, format!("{pointer:#x}, which CUDA does not know"))
        })
    }
}

/// 0, or one more than the number of the process that installed a simulated driver: a fork of it is
/// refused without a look behind the lock, which may be held for good there.
static SIMULATING: AtomicU64 = AtomicU64::new(0);
static SIMULATED: Mutex<Option<Arc<simulated::Simulated>>> = Mutex::new(None);

/// Whether [`BORROWED`] has one.
static BORROWING: AtomicBool = AtomicBool::new(false);
static BORROWED: Mutex<Option<Arc<lent::borrowed::Borrowed>>> = Mutex::new(None);

/// The driver that new views are made on: a simulated one while one is installed, else CUDA's.
///
/// Fails in a fork of the process that used it.
pub fn current() -> Result<Handle> {
    match SIMULATING.load(Ordering::Acquire).checked_sub(1).and_then(|by| u32::try_from(by).ok()) {
        None if BORROWING.load(Ordering::Acquire) => {
            let borrowed = BORROWED.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(borrowed.as_ref().map_or(Handle::Cuda, |it| Handle::Borrowed(Arc::clone(it))))
        }
        None => cuda::Cuda::check_process().map(|()| Handle::Cuda),
        Some(by) => {
            Process::numbered(by).check()?;
            let installed = SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(installed
                .as_ref()
                .map_or(Handle::Cuda, |simulated| Handle::Simulated(Arc::clone(simulated))))
        }
    }
}

/// The same. Where nobody has asked for CUDA's yet, which may take a second, `detach` runs that.
pub fn prepared(detach: impl FnOnce(Call<'_>)) -> Result<Handle> {
    let driver = current()?;
    if matches!(driver, Handle::Cuda) && !cuda::Cuda::is_probed() {
        detach(&mut || drop(cuda::Cuda::get()));
    }
    Ok(driver)
}

/// Makes `simulated` the driver of this process, or gives CUDA's back. Returns the one before.
pub fn install(simulated: Option<Arc<simulated::Simulated>>) -> Option<Arc<simulated::Simulated>> {
    let mut installed = SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
    let by = simulated.as_ref().map_or(0, |machine| u64::from(machine.process().number()) + 1);
    SIMULATING.store(by, Ordering::Release);
    std::mem::replace(&mut *installed, simulated)
}

/// Makes the simulated device of another library the driver that new arrays are made on in this one, or gives
/// it up. One that is here already stays.
pub fn borrow(borrowed: Option<lent::borrowed::Borrowed>) {
    if borrowed.is_none() && !BORROWING.load(Ordering::Acquire) {
        return;
    }
    let mut place = BORROWED.lock().unwrap_or_else(PoisonError::into_inner);
    match (&*place, &borrowed) {
        (Some(known), Some(found)) if known.is(found) => return,
        _ => {}
    }
    BORROWING.store(borrowed.is_some(), Ordering::Release);
    let before = std::mem::replace(&mut *place, borrowed.map(Arc::new));
    drop(place);
    drop(before);
}
