//! Finds CUDA's driver, once, on first use.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::OnceLock;

use super::calls::{
    Calls, CopyCalls, IpcCalls, LaunchCalls, ModuleCalls, NumberCalls, Started, start,
};
use crate::driver::Context;
use crate::driver::codes::NOT_INITIALIZED;
use crate::driver::fork::{self, Process};
use crate::error::{Error, Kind, Result};

#[derive(Debug)]
pub struct Cuda {
    pub(super) calls: Calls,
    /// The calls that number contexts and streams, so that a reused handle is noticed. `None` before CUDA 12.
    pub(super) numbers: Option<NumberCalls>,
    pub(super) modules: Option<ModuleCalls>,
    pub(super) copies: Result<CopyCalls>,
    pub(super) launches: Result<LaunchCalls>,
    pub(super) ipc: Result<IpcCalls>,
    /// The retained primary contexts, by the GPU's ordinal. The bridge never releases a context.
    pub(super) primary: Box<[OnceLock<Context>]>,
}

static PROBED: OnceLock<(Process, Result<Cuda>)> = OnceLock::new();

impl Cuda {
    /// Only the first call searches for the driver. Fails in a forked child of the process that searched.
    #[inline]
    pub fn get() -> Result<&'static Self> {
        match PROBED.get() {
            Some((by, Ok(cuda))) if by.is_current() => Ok(cuda),
            _ => Self::get_first(),
        }
    }

    #[cold]
    fn get_first() -> Result<&'static Self> {
        let (by, found) = PROBED.get_or_init(|| {
            fork::watch();
            (Process::current(), Self::probe())
        });
        let cuda = found.as_ref().map_err(Clone::clone)?;
        by.check().map(|()| cuda)
    }

    pub(in crate::driver) fn check_process() -> Result<()> {
        match PROBED.get() {
            Some((by, Ok(_))) => by.check(),
            _ => Ok(()),
        }
    }

    fn probe() -> Result<Self> {
        let Started { library, calls, initialised } = start()?;
        calls.check("cuInit", initialised).map_err(|error| {
            if initialised == NOT_INITIALIZED {
                // Another library had initialised the driver before this process was forked.
                return fork::forked();
            }
            let got = format!("a driver that fails to start: {}", error.got());
            Error::new(Kind::DriverMissing, got)
        })?;
        let mut count: c_int = 0;
        // SAFETY: the driver is initialised; `count` outlives the call.
        unsafe { calls.device_count(&raw mut count) }?;
        if count <= 0 {
            return Err(Error::new(Kind::DriverMissing, "a CUDA driver that finds no device"));
        }
        Ok(Self {
            calls,
            numbers: NumberCalls::load(library).ok(),
            modules: ModuleCalls::load(library).ok(),
            copies: CopyCalls::load(library),
            launches: LaunchCalls::load(library),
            ipc: IpcCalls::load(library),
            primary: (0..count).map(|_| OnceLock::new()).collect(),
        })
    }

    pub(in crate::driver) fn is_probed() -> bool {
        PROBED.get().is_some()
    }

    /// Whether the bridge retains the GPU's primary context. Also true for an ordinal that the machine does not have.
    pub(in crate::driver) fn is_open(&self, ordinal: i32) -> bool {
        let slot = usize::try_from(ordinal).ok().and_then(|at| self.primary.get(at));
        slot.is_none_or(|slot| slot.get().is_some())
    }
}
