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

/// The driver that a view was made on. Later waits for the view use the same driver.
#[derive(Debug, Clone)]
pub enum Handle {
    /// The machine's CUDA driver.
    Cuda,
    /// A simulated driver.
    Simulated(Arc<Simulated>),
    /// A simulated driver that another library of this process lends.
    Borrowed(Arc<BorrowedDevice>),
}

impl Handle {
    /// The driver itself. Fails if the machine has none, or in a forked child of the process that used the driver.
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

    /// For CUDA's driver, retains the primary context of a GPU inside `detach`, unless the bridge did so before. This
    /// may create the context, which takes a while. An error is ignored here, since the call that needs the context
    /// fails with it again.
    pub fn open(&self, ordinal: i32, detach: impl FnOnce(BlockingCall<'_>)) {
        if let (Self::Cuda, Ok(cuda)) = (self, Cuda::get())
            && !cuda.is_open(ordinal)
        {
            detach(&mut || drop(cuda.primary_context(ordinal)));
        }
    }

    /// What the driver knows about an address. Fails if the memory is not CUDA's.
    pub fn locate(&self, pointer: u64) -> Result<PointerAttributes> {
        self.get()?.pointer(pointer)?.ok_or_else(|| {
            Error::new(Kind::HostPointer, format!("{pointer:#x}, which CUDA does not know"))
        })
    }
}

/// The simulated drivers in place of CUDA's.
struct StandIns {
    /// 0, or one more than the number of the process that made the installed simulated driver. In a forked child of
    /// that process, calls fail by this number alone, since the locks may stay locked for ever.
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
/// Fails in a forked child of the process that made the installed driver, or that found CUDA's driver.
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

/// The driver for new views. `detach` runs the search for CUDA's driver, which may take a second on first use.
pub fn prepared(detach: impl FnOnce(BlockingCall<'_>)) -> Result<Handle> {
    let driver = current()?;
    if matches!(driver, Handle::Cuda) && !Cuda::is_probed() {
        detach(&mut || drop(Cuda::get()));
    }
    Ok(driver)
}

/// Makes `simulated` this process's driver, or restores CUDA's. Returns the previous one.
pub fn install(simulated: Option<Arc<Simulated>>) -> Option<Arc<Simulated>> {
    let mut installed = STAND_INS.simulated.lock().unwrap_or_else(PoisonError::into_inner);
    let by = simulated.as_ref().map_or(0, |machine| u64::from(machine.process().number()) + 1);
    STAND_INS.simulating.store(by, Ordering::Release);
    std::mem::replace(&mut *installed, simulated)
}

/// Uses another library's simulated device for new arrays in this library, or stops using it. If the same device is in
/// use already, nothing changes.
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
