//! The driver in use: CUDA's, or a simulated one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cuda::Cuda;
use super::fork::Process;
use super::lent::borrowed::BorrowedDevice;
use super::simulated::{Machine, Simulated};
use super::{Driver, PointerAttributes};
use crate::error::{Error, Kind, Result};

/// A call that may block, to be run without Python's interpreter lock.
pub type BlockingCall<'a> = &'a mut (dyn FnMut() + Send);

/// The driver that a view or an array uses.
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

    /// Whether both are one driver: one address means the same memory in both.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cuda, Self::Cuda) => true,
            (Self::Simulated(one), Self::Simulated(other)) => Arc::ptr_eq(one, other),
            (Self::Borrowed(one), Self::Borrowed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub fn machine(&self) -> Option<&dyn Machine> {
        match self {
            Self::Cuda => None,
            Self::Simulated(simulated) => Some(&**simulated),
            Self::Borrowed(borrowed) => Some(&**borrowed),
        }
    }

    /// False if this is this library's simulated device, and none of its streams, live or destroyed, has or had
    /// `handle`.
    pub fn may_have(&self, handle: u64) -> bool {
        match self {
            Self::Simulated(simulated) => simulated.gave_stream(handle),
            Self::Cuda | Self::Borrowed(_) => true,
        }
    }

    /// With CUDA's driver, retains the GPU's primary context inside `detach`, if not yet retained. Ignores an error.
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
    /// this number [`current`] refuses a forked child before it locks `simulated`, which can stay locked for ever.
    simulating: AtomicU64,
    simulated: Mutex<Option<Arc<Simulated>>>,
    /// Like `simulating`, for the borrowed device.
    borrowing: AtomicU64,
    borrowed: Mutex<Option<Arc<BorrowedDevice>>>,
}

static STAND_INS: StandIns = StandIns {
    simulating: AtomicU64::new(0),
    simulated: Mutex::new(None),
    borrowing: AtomicU64::new(0),
    borrowed: Mutex::new(None),
};

/// The driver for new views: the installed simulated device, else a borrowed one, else CUDA's driver.
pub fn current() -> Result<Handle> {
    if let Some(by) = process_of(&STAND_INS.simulating) {
        by.check()?;
        let installed = STAND_INS.simulated.lock().unwrap_or_else(PoisonError::into_inner);
        return Ok(installed
            .as_ref()
            .map_or(Handle::Cuda, |simulated| Handle::Simulated(Arc::clone(simulated))));
    }
    match process_of(&STAND_INS.borrowing) {
        Some(by) => {
            by.check()?;
            let borrowed = STAND_INS.borrowed.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(borrowed.as_ref().map_or(Handle::Cuda, |it| Handle::Borrowed(Arc::clone(it))))
        }
        None => Cuda::check_process().map(|()| Handle::Cuda),
    }
}

fn number_of(process: Option<Process>) -> u64 {
    process.map_or(0, |by| u64::from(by.number()) + 1)
}

fn process_of(number: &AtomicU64) -> Option<Process> {
    let by = number.load(Ordering::Acquire).checked_sub(1)?;
    u32::try_from(by).ok().map(Process::numbered)
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
    let by = number_of(simulated.as_ref().map(|machine| machine.process()));
    STAND_INS.simulating.store(by, Ordering::Release);
    std::mem::replace(&mut *installed, simulated)
}

/// Makes another library's simulated device the driver for new views, while no simulated device of this library is
/// installed. `None` ends the loan.
pub fn borrow(borrowed: Option<BorrowedDevice>) {
    if borrowed.is_none() && STAND_INS.borrowing.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut place = STAND_INS.borrowed.lock().unwrap_or_else(PoisonError::into_inner);
    match (&*place, &borrowed) {
        (Some(known), Some(found)) if known.is(found) => return,
        _ => {}
    }
    let by = number_of(borrowed.as_ref().map(BorrowedDevice::process));
    STAND_INS.borrowing.store(by, Ordering::Release);
    let before = std::mem::replace(&mut *place, borrowed.map(Arc::new));
    drop(place);
    drop(before);
}
