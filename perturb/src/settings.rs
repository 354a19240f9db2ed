//! The command's settings, from the environment.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::launch::{Chosen, decimal, list};
use crate::streams::Delay;
use crate::sys;

/// How long the host waits for the device on the library's behalf, in nanoseconds.
pub(crate) const PATIENCE: u64 = 1_000_000_000;

/// The mode of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Does nothing.
    Off,
    /// The host waits after each operation.
    Serial,
    /// Delays the work of some streams.
    Late,
    /// Delays nothing, and records the program's calls.
    Record,
}

/// The command's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// The seed; None: no stream is late.
    pub(crate) seed: Option<u64>,
    /// The index of the only late stream, whatever the seed says.
    pub(crate) stream: Option<u64>,
    /// The delay of late work, in nanoseconds.
    pub(crate) delay: u64,
    /// The least time between the openings of two gates, in nanoseconds.
    apart: Option<u64>,
    /// The folder for logs.
    pub(crate) folder: Option<&'static [u8]>,
    pub(crate) chosen: Chosen,
    /// Whether each operation is logged.
    pub(crate) trace: bool,
    /// No gate opens before its time, and each late operation has its own gate. So late work on several
    /// streams runs in the order in which it was queued.
    pub(crate) patient: bool,
    /// Serial mode: also records the calls, with the bytes that some launches change and read. The file lists
    /// these launches, one a line.
    pub(crate) compared: Option<&'static [u8]>,
    /// Record mode: also records the host's accesses to page-locked memory that copies use.
    pub(crate) host: bool,
    /// The operations whose Python stack is logged.
    pub(crate) stacks: Vec<u64>,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(core::ptr::null_mut());

impl Settings {
    /// Reads the environment. Called once, when the library is loaded. No other thread runs yet. Later the
    /// program may clear its environment.
    pub(crate) fn load() {
        SETTINGS.store(Box::into_raw(Box::new(Self::read())), Ordering::Release);
    }

    /// The settings that were read when the library was loaded.
    pub(crate) fn get() -> &'static Self {
        let found = SETTINGS.load(Ordering::Acquire);
        if found.is_null() {
            // Another library's constructor called the driver before this library's own ran.
            Self::load();
            return Self::get();
        }
        // SAFETY: the settings are never freed or changed.
        unsafe { &*found }
    }

    /// Whether the program's calls are recorded.
    pub(crate) fn records(&self) -> bool {
        self.mode == Mode::Record || self.compared.is_some()
    }

    /// The delays of late work.
    pub(crate) fn late(&self) -> Delay {
        let each = self.delay;
        let (shared, most) =
            if self.patient { (0, u64::MAX) } else { (each / 16, each.saturating_mul(2)) };
        Delay { each, apart: self.apart.unwrap_or(each / 8), shared, most }
    }

    pub(crate) fn read() -> Self {
        let mode = match sys::variable(c"CAI_BRIDGE_PERTURB_MODE") {
            Some(b"serial") => Mode::Serial,
            Some(b"late") => Mode::Late,
            Some(b"record") => Mode::Record,
            _ => Mode::Off,
        };
        let text = |name| sys::variable(name).unwrap_or_default();
        let number = |name| decimal(text(name));
        Self {
            mode,
            seed: number(c"CAI_BRIDGE_PERTURB_SEED"),
            delay: number(c"CAI_BRIDGE_PERTURB_DELAY_US").unwrap_or(50_000).saturating_mul(1000),
            apart: number(c"CAI_BRIDGE_PERTURB_APART_US").map(|apart| apart.saturating_mul(1000)),
            folder: sys::variable(c"CAI_BRIDGE_PERTURB_LOG"),
            stream: number(c"CAI_BRIDGE_PERTURB_STREAM"),
            chosen: Chosen::read(
                sys::variable(c"CAI_BRIDGE_PERTURB_FREE"),
                text(c"CAI_BRIDGE_PERTURB_SETTLED"),
            ),
            trace: sys::variable(c"CAI_BRIDGE_PERTURB_TRACE").is_some(),
            patient: sys::variable(c"CAI_BRIDGE_PERTURB_PATIENT").is_some(),
            compared: sys::variable(c"CAI_BRIDGE_PERTURB_COMPARED"),
            host: sys::variable(c"CAI_BRIDGE_PERTURB_HOST").is_some(),
            stacks: list(text(c"CAI_BRIDGE_PERTURB_STACKS")),
        }
    }
}
