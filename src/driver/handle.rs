//! The driver in use: CUDA's, or a simulated one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cuda::Cuda;
use super::fork::Process;
use super::lent::borrowed::BorrowedDevice;
use super::simulated::{Machine, Simulated};
use super::{Driver, PointerAttributes};
use crate::error::{Error, Kind, Result};

/// A call that may block. It runs without the interpreter's lock.
pub type BlockingCall<'a> = &'a mut (dyn FnMut() + Send);

/// The driver that a view or an array was made on. Later calls for the view or the array use the same driver.
#[derive(Debug, Clone)]
pub enum Handle {
    /// The machine's CUDA driver.
    Cuda,
    /// A simulated driver of this library.
    Simulated(Arc<Simulated>),
    /// A simulated driver that another library of this process lends.
    Borrowed(Arc<BorrowedDevice>),
}

impl Handle {
    /// The driver itself. Fails for CUDA's driver if none was found. Fails in a forked child of the process that found
    /// CUDA's driver, made the simulated driver, or borrowed it.
    pub fn get(&self) -> Result<&dyn Driver> {
        match self {
            Self::Cuda => Cuda::get().map(|cuda| cuda as &dyn Driver),
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

    /// CUDA's driver; `None` for a simulated device.
    #[inline]
    pub fn cuda(&self) -> Option<Result<&'static Cuda>> {
        matches!(self, Self::Cuda).then(Cuda::get)
    }

    /// The simulated device, if this is one.
    pub fn machine(&self) -> Option<&dyn Machine> {
        match self {
            Self::Cuda => None,
            Self::Simulated(simulated) => Some(&**simulated),
            Self::Borrowed(borrowed) => Some(&**borrowed),
        }
    }

    /// Whether a stream handle can belong to this driver. This library's simulated device remembers every handle that
    /// it has given out; of the other drivers this is always true.
    pub fn may_have(&self, handle: u64) -> bool {
        match self {
            Self::Simulated(simulated) => simulated.gave_stream(handle),
            Self::Cuda | Self::Borrowed(_) => true,
        }
    }

    /// For CUDA's driver, retains the primary context of a GPU inside `detach`, unless the bridge retains it already.
    /// This may create the context, which takes a while. An error is ignored here, since the call that needs the
    /// context fails with it again. For a simulated driver, does nothing.
    pub fn open(&self, ordinal: i32, detach: impl FnOnce(BlockingCall<'_>)) {
        if let (Self::Cuda, Ok(cuda)) = (self, Cuda::get())
            && !cuda.is_open(ordinal)
        {
            detach(&mut || drop(cuda.primary_context(ordinal)));
        }
    }

    /// What the driver knows about an address. Fails if CUDA does not know the address: it knows device, managed and
    /// pinned memory.
    pub fn locate(&self, pointer: u64) -> Result<PointerAttributes> {
        self.get()?.pointer(pointer)?.ok_or_else(|| {
            Error::new(Kind::HostPointer, format!("{pointer:#x}, which CUDA does not know"))
        })
    }
}

/// The simulated drivers in place of CUDA's.
struct StandIns {
    /// 0 if no simulated driver is installed, else one more than the number of the process that made the installed one.
    /// In a forked child of that process, [`current`] fails by this number before it takes a lock, since the lock may
    /// stay locked for ever.
    simulating: AtomicU64,
    simulated: Mutex<Option<Arc<Simulated>>>,
    /// Whether `borrowed` holds a driver.
    borrowing: AtomicBool,
    borrowed: Mutex<Option<Arc<BorrowedDevice>>>,
}

static STAND_INS: StandIns = StandIns {
    simulating: AtomicU64::new(0),
    simulated: Mutex::new(None),
    borrowing: AtomicBool::new(false),
    borrowed: Mutex::new(None),
};

/// The driver for new views: the installed simulated one, else a borrowed one, else CUDA's.
///
/// For the installed one, fails in a forked child of the process that made it. For CUDA's, fails in a forked child of
/// the process that found it. A borrowed one is returned in a forked child too: there [`Handle::get`] fails.
pub fn current() -> Result<Handle> {
    match STAND_INS
        .simulating
        .load(Ordering::Acquire)
        .checked_sub(1)
        .and_then(|by| u32::try_from(by).ok())
    {
        None if STAND_INS.borrowing.load(Ordering::Acquire) => {
            let borrowed = STAND_INS.borrowed.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(borrowed.as_ref().map_or(Handle::Cuda, |it| Handle::Borrowed(Arc::clone(it))))
        }
        None => Cuda::check_process().map(|()| Handle::Cuda),
        Some(by) => {
            Process::numbered(by).check()?;
            let installed = STAND_INS.simulated.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(installed
                .as_ref()
                .map_or(Handle::Cuda, |simulated| Handle::Simulated(Arc::clone(simulated))))
        }
    }
}

/// Returns the driver for new views, like [`current`]. If that is CUDA's and it was not searched for yet, `detach` runs
/// the search, which may take a second. A failed search is no error here: [`Handle::get`] returns the error.
pub fn prepared(detach: impl FnOnce(BlockingCall<'_>)) -> Result<Handle> {
    let driver = current()?;
    if matches!(driver, Handle::Cuda) && !Cuda::is_probed() {
        detach(&mut || drop(Cuda::get()));
    }
    Ok(driver)
}

/// Installs `simulated` as the driver for new views; `None` removes the installed one. Returns the driver that was
/// installed before.
pub fn install(simulated: Option<Arc<Simulated>>) -> Option<Arc<Simulated>> {
    let mut installed = STAND_INS.simulated.lock().unwrap_or_else(PoisonError::into_inner);
    let by = simulated.as_ref().map_or(0, |machine| u64::from(machine.process().number()) + 1);
    STAND_INS.simulating.store(by, Ordering::Release);
    std::mem::replace(&mut *installed, simulated)
}

/// Makes another library's simulated device the driver for new views while no simulated driver of this library is
/// installed; `None` ends this. If the same device is borrowed already, nothing changes.
pub fn borrow(borrowed: Option<BorrowedDevice>) {
    if borrowed.is_none() && !STAND_INS.borrowing.load(Ordering::Acquire) {
        return;
    }
    let mut place = STAND_INS.borrowed.lock().unwrap_or_else(PoisonError::into_inner);
    match (&*place, &borrowed) {
        (Some(known), Some(found)) if known.is(found) => return,
        _ => {}
    }
    STAND_INS.borrowing.store(borrowed.is_some(), Ordering::Release);
    let before = std::mem::replace(&mut *place, borrowed.map(Arc::new));
    drop(place);
    drop(before);
}
