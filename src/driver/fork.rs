//! Which side of a fork this is.
//!
//! A driver does not survive `fork`: what the parent has initialised is unusable in the child, where
//! only the thread that forked goes on and any lock may be held for good. So whatever belongs to a
//! driver notes the [`Process`] that made it, and is refused in every other; a child whose parent had
//! not begun to use one works as any process does. The note is a number that a fork adds one to in
//! the child, so to compare it is one load.
//!
//! The rule is CUDA's: no call of it is supported in the child of a process that has initialised it
//! ([CUDA C++ Programming Guide], "Initialization" and "Multi-process").
//!
//! [CUDA C++ Programming Guide]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, told apart from those that it is forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    pub fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this one.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Refuses what belongs to another process, of which this one is a fork.
    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(forked()) }
    }

    /// Its number: how many forks lie between it and the first that counted.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The process of that number.
    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

#[cold]
pub(super) fn forked() -> Error {
    Error::new(Kind::Forked, "a fork of the process that uses the device")
}

/// Counts the forks of this process from here on, however often it is called.
#[cfg(unix)]
pub fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();

    extern "C" fn in_child() {
        // Nothing else may be done here: the child has one thread, and any lock may be held.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    WATCHED.call_once(|| {
        // SAFETY: the handler is a static function that changes one atomic number, which is safe in
        // the child of a process with threads. Where memory is short the call fails, and forks are
        // not seen.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Where there is no `fork` nothing is counted.
#[cfg(not(unix))]
pub fn watch() {}
