//! The command's settings, from the environment.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::numbers::{Chosen, decimal, list};
use crate::streams::Delay;
use crate::sys;

/// How long the host waits at most where the library makes it wait, in nanoseconds.
pub(crate) const PATIENCE: u64 = 1_000_000_000;

/// The mode of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The library does nothing.
    Off,
    /// The host waits after each operation.
    Serial,
    /// Delays the work of some streams.
    Late,
    /// Delays no work, and records the program's calls.
    Record,
}

/// The command's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// The seed; None: no stream is late.
    pub(crate) seed: Option<u64>,
    /// The index of the only late stream, whatever the seed says. None: the seed decides.
    pub(crate) stream: Option<u64>,
    /// The delay of late work, in nanoseconds.
    pub(crate) delay: u64,
    /// The least time between the openings of two gates, in nanoseconds. None: an eighth of the delay.
    apart: Option<u64>,
    /// The folder for logs and records; None: there are none.
    pub(crate) folder: Option<&'static [u8]>,
    pub(crate) chosen: Chosen,
    /// Whether each operation is logged.
    pub(crate) trace: bool,
    /// The host opens no gate before its time, and each late operation has its own gate. So late work on
    /// several streams runs in the order in which it was queued.
    pub(crate) patient: bool,
    /// For the serial mode: a file that lists launches, one a line. If set, the calls are recorded too, with
    /// the bytes that these launches change and read.
    pub(crate) compared: Option<&'static [u8]>,
    /// For the record mode: whether to record the host's accesses to page-locked memory that copies use.
    pub(crate) host: bool,
    /// The operations whose Python stack is logged.
    pub(crate) stacks: Vec<u64>,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(core::ptr::null_mut());

impl Settings {
    /// Reads the environment, when the library is loaded: no other thread runs yet, and later the program may
    /// clear its environment.
    pub(crate) fn load() {
        SETTINGS.store(Box::into_raw(Box::new(Self::read())), Ordering::Release);
    }

    /// The settings from the environment. Reads them if [`Self::load`] has not run yet.
    pub(crate) fn get() -> &'static Self {
        let found = SETTINGS.load(Ordering::Acquire);
        if found.is_null() {
            // Another library's constructor called the driver before this library's own ran.
            Self::load();
            return Self::get();
        }
        // SAFETY: the pointer came from a box, and settings are never freed or changed.
        unsafe { &*found }
    }

    /// Whether the program's calls are recorded.
    pub(crate) fn records(&self) -> bool {
        self.mode == Mode::Record || self.compared.is_some()
    }

    /// The delays of late work. A patient run shares no gate, and has no bound.
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
