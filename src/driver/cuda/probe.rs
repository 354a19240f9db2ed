//! Where the driver is: it is looked for once, on first use.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::OnceLock;

use super::calls::{Calls, CopyCalls, IpcCalls, LaunchCalls, ModuleCalls, NumberCalls, start};
use crate::driver::Context;
use crate::driver::codes::NOT_INITIALIZED;
use crate::driver::fork::{self, Process};
use crate::error::{Error, Kind, Result};

/// The driver of the machine.
#[derive(Debug)]
pub struct Cuda {
    pub(super) calls: Calls,
    /// What tells contexts and streams from later ones of the same address, since CUDA 12.
    pub(super) numbers: Option<NumberCalls>,
    /// What the host waits by, unless it is missing.
    pub(super) modules: Option<ModuleCalls>,
    pub(super) copies: Result<CopyCalls>,
    pub(super) launches: Result<LaunchCalls>,
    pub(super) ipc: Result<IpcCalls>,
    /// Primary contexts by ordinal. They are retained once and kept: a context that this crate has
    /// recorded events in must not go while the process can still order work in it.
    pub(super) primary: Box<[OnceLock<Context>]>,
}

/// The driver and the process that found it.
static PROBED: OnceLock<(Process, Result<Cuda>)> = OnceLock::new();

impl Cuda {
    /// The driver, probed on first use. The answer is kept: a machine does not grow a driver.
    ///
    /// Fails in a fork of the process that found it.
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

    /// Refuses a fork of the process that found the driver.
    pub(in crate::driver) fn check_process() -> Result<()> {
        match PROBED.get() {
            Some((by, Ok(_))) => by.check(),
            _ => Ok(()),
        }
    }

    fn probe() -> Result<Self> {
        let (library, calls, initialised) = start()?;
        calls.check("cuInit", initialised).map_err(|error| {
            if initialised == NOT_INITIALIZED {
                // Another library had initialised it in the process that this one was forked from.
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

    /// Whether [`Cuda::get`] has an answer already.
    pub(in crate::driver) fn is_probed() -> bool {
        PROBED.get().is_some()
    }

    /// Whether the primary context of a device is known.
    pub(in crate::driver) fn is_open(&self, ordinal: i32) -> bool {
        let slot = usize::try_from(ordinal).ok().and_then(|at| self.primary.get(at));
        slot.is_none_or(|slot| slot.get().is_some())
    }
}
