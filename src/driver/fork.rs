//! Detects a forked child.
//!
//! A driver does not survive `fork`: the child cannot use what the parent has initialised. Only the forking thread
//! continues in the child, and any lock may stay locked. So everything that belongs to a driver records the [`Process`]
//! that made it, and fails in every other process. A child whose parent used no driver works like any process. A
//! `Process` is a number that each fork increases in the child, once [`watch`] was called. So a comparison costs one
//! load.
//!
//! CUDA's rule: the child of a process that has initialised CUDA may make no CUDA call ([CUDA C++ Programming Guide],
//! "Initialization" and "Multi-process").
//!
//! [CUDA C++ Programming Guide]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, distinguished from the processes that it was forked from. Two children of one process may compare
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The current process.
    pub fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the current process.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Fails unless this is the current process.
    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(forked()) }
    }

    /// The number of forks that [`watch`] has seen between the first process and this one.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The process with this number.
    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

#[cold]
pub(super) fn forked() -> Error {
    Error::new(Kind::Forked, "a fork of the process that uses the device")
}

/// From now on, each fork increases the number of the child's [`Process`]. Further calls change nothing.
#[cfg(unix)]
pub fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();

    extern "C" fn in_child() {
        // Do nothing else here: the child has only this thread, and any lock may be locked for ever.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    WATCHED.call_once(|| {
        // SAFETY: the handler is a static function that changes one atomic number, which is safe in the child of a
        // process with threads. If memory is short, the call fails and forks go unseen.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Does nothing on systems without `fork`.
#[cfg(not(unix))]
pub fn watch() {}
