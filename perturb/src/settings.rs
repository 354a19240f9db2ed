//! What the command asks for, by the environment.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::launch::{Chosen, decimal, list};
use crate::streams::Delay;
use crate::{record, run, sys};

/// What to do with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing.
    Off,
    /// The host waits after each operation.
    Serial,
    /// Some streams' work is late.
    Late,
    /// Nothing is delayed: the program's calls are written down.
    Record,
}

/// What the command asks for.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// None: nothing is late.
    pub(crate) seed: Option<u64>,
    /// The one stream whose work is late, whatever the seed says.
    pub(crate) stream: Option<u64>,
    /// How late, in nanoseconds.
    pub(crate) delay: u64,
    /// By how much later one gate opens than the one before it, in nanoseconds.
    apart: Option<u64>,
    /// The folder for logs.
    pub(crate) folder: Option<&'static [u8]>,
    pub(crate) chosen: Chosen,
    /// Whether each operation is written down.
    pub(crate) trace: bool,
    /// No gate opens before its time, and all that is late has its own: what is late on several streams
    /// runs in the order in which it was queued.
    pub(crate) patient: bool,
    /// Serial mode: the calls are written down as well, with the bytes that some launches change and read. These
    /// launches are lines of this file.
    pub(crate) compared: Option<&'static [u8]>,
    /// Record: what the host does to page-locked memory that copies use is written down.
    pub(crate) host: bool,
    /// The operations whose Python stack is written down.
    pub(crate) stacks: Vec<u64>,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(core::ptr::null_mut());
/// Whether the process has called the driver.
static STARTED: AtomicBool = AtomicBool::new(false);

impl Settings {
    /// Reads the environment. Called once, when the library is loaded: a program may clear its environment before it
    /// calls the driver, and no other thread runs yet.
    pub(crate) fn load() {
        SETTINGS.store(Box::into_raw(Box::new(Self::read())), Ordering::Release);
    }

    /// What the environment said when the library was loaded.
    pub(crate) fn get() -> &'static Self {
        let found = SETTINGS.load(Ordering::Acquire);
        if found.is_null() {
            // A constructor of another library called the driver before this one was loaded.
            Self::load();
            return Self::get();
        }
        // SAFETY: it is never freed, nor written again.
        let settings = unsafe { &*found };
        if !STARTED.load(Ordering::Relaxed) && !STARTED.swap(true, Ordering::Relaxed) {
            start(settings);
        }
        settings
    }

    /// Whether the program's calls are written down.
    pub(crate) fn records(&self) -> bool {
        self.mode == Mode::Record || self.compared.is_some()
    }

    /// How late what is late is.
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

/// Registers what has to happen at forks and at the end. Called at the first call of the driver: what is registered
/// later runs earlier, and the driver ends after the program's own handlers.
fn start(settings: &Settings) {
    if settings.mode == Mode::Off {
        return;
    }
    // SAFETY: both functions are this library's, which is never unloaded: it is preloaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_end);
    }
}

unsafe extern "C" fn in_child() {
    run::renew();
}

extern "C" fn at_end() {
    run::ENDED.store(true, Ordering::Relaxed);
    record::flush();
}
