//! Detects a forked child.
//!
//! A driver does not survive `fork`: the child of a process that has initialised CUDA may make no CUDA call ([CUDA C++
//! Programming Guide], "Initialization" and "Multi-process"). Only the forking thread continues in the child, and any
//! lock may stay locked. So everything that belongs to a driver records the [`Process`] that made it, and fails in
//! every other process. A child whose parent used no driver works like any process.
//!
//! [CUDA C++ Programming Guide]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the first process and a process, counted since [`watch`]. Two children of one process
/// may compare equal.
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

/// From now on, each fork gives the child another [`Process`]. Further calls change nothing.
#[cfg(unix)]
pub fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();

    extern "C" fn in_child() {
        // Do nothing else here: the child has only this thread, and any lock may be locked for ever.
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
