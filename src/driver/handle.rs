//! The driver in use: CUDA's, or a simulated one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cuda::Cuda;
use super::fork::Process;
use super::lent::borrowed::BorrowedDevice;
use super::simulated::{Machine, Simulated};
use super::{Driver, PointerAttributes};
use crate::error::{Error, Kind, Result};

/// A call that may block, to be run without Python's interpreter lock.
pub type BlockingCall<'a> = &'a mut (dyn FnMut() + Send);

/// The driver that a view or an array uses for all its calls.
#[derive(Debug, Clone)]
pub enum Handle {
    Cuda,
    Simulated(Arc<Simulated>),
    Borrowed(Arc<BorrowedDevice>),
}

impl Handle {
    /// Fails in a forked child of the process that found, made or borrowed the driver. [`Self::Cuda`] also fails if no
    /// CUDA driver was found.
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

    #[inline]
    pub fn cuda(&self) -> Option<Result<&'static Cuda>> {
        matches!(self, Self::Cuda).then(Cuda::get)
    }

    pub fn machine(&self) -> Option<&dyn Machine> {
        match self {
            Self::Cuda => None,
            Self::Simulated(simulated) => Some(&**simulated),
            Self::Borrowed(borrowed) => Some(&**borrowed),
        }
    }

    /// Whether `handle` may be a stream of this driver. Only this library's simulated device ever answers false.
    pub fn may_have(&self, handle: u64) -> bool {
        match self {
            Self::Simulated(simulated) => simulated.gave_stream(handle),
            Self::Cuda | Self::Borrowed(_) => true,
        }
    }

    /// Retains the GPU's primary context in advance, inside `detach`. Ignores an error: a later call returns it.
    pub fn open(&self, ordinal: i32, detach: impl FnOnce(BlockingCall<'_>)) {
        if let (Self::Cuda, Ok(cuda)) = (self, Cuda::get())
            && !cuda.is_open(ordinal)
        {
            detach(&mut || drop(cuda.primary_context(ordinal)));
        }
    }

    pub fn locate(&self, pointer: u64) -> Result<PointerAttributes> {
        self.get()?.pointer(pointer)?.ok_or_else(|| {
            Error::new(Kind::HostPointer, format!("{pointer:#x}, which CUDA does not know"))
        })
    }
}

struct StandIns {
    /// One more than the number of the process that made the installed simulated device; 0 if none is installed. By
    /// this number [`current`] refuses a forked child before it takes a lock, which may stay locked for ever.
    simulating: AtomicU64,
    simulated: Mutex<Option<Arc<Simulated>>>,
    borrowing: AtomicBool,
    borrowed: Mutex<Option<Arc<BorrowedDevice>>>,
}

static STAND_INS: StandIns = StandIns {
    simulating: AtomicU64::new(0),
    simulated: Mutex::new(None),
    borrowing: AtomicBool::new(false),
    borrowed: Mutex::new(None),
};

/// The driver for new views: the installed simulated device, else a borrowed one, else CUDA's driver.
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

/// Like [`current`], but searches for CUDA's driver inside `detach` if needed. If none is found, [`Handle::get`] fails.
pub fn prepared(detach: impl FnOnce(BlockingCall<'_>)) -> Result<Handle> {
    let driver = current()?;
    if matches!(driver, Handle::Cuda) && !Cuda::is_probed() {
        detach(&mut || drop(Cuda::get()));
    }
    Ok(driver)
}

pub fn install(simulated: Option<Arc<Simulated>>) -> Option<Arc<Simulated>> {
    let mut installed = STAND_INS.simulated.lock().unwrap_or_else(PoisonError::into_inner);
    let by = simulated.as_ref().map_or(0, |machine| u64::from(machine.process().number()) + 1);
    STAND_INS.simulating.store(by, Ordering::Release);
    std::mem::replace(&mut *installed, simulated)
}

/// Makes another library's simulated device the driver for new views, unless one of this library is installed. `None`
/// ends the loan.
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
