//! Detects a forked child.
//!
//! The forked child of a process that has initialised CUDA must make no CUDA call ([CUDA C++ Programming Guide],
//! "Initialization" and "Multi-process"), and any lock can stay locked in the child for ever. So a driver records the
//! [`Process`] that found, made or borrowed it, and its use fails in a forked child.
//!
//! [CUDA C++ Programming Guide]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, by the number of forks since [`watch`] that led to it. Two children of one process can compare equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    pub fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(forked()) }
    }

    pub const fn number(self) -> u32 {
        self.0
    }

    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

#[cold]
pub(super) fn forked() -> Error {
    Error::new(Kind::Forked, "a fork of the process that uses the device")
}

/// After this call, a forked child has a different [`Process`] from its parent's, if there was enough memory to
/// register the handler.
#[cfg(unix)]
pub fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();

    extern "C" fn in_child() {
        // Do nothing else here: any lock may stay locked in the child forever.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    WATCHED.call_once(|| {
        // SAFETY: the handler only changes an atomic number, which is safe in the child of a process with threads. If
        // memory is short, the call fails and forks go unseen.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(not(unix))]
pub fn watch() {}
