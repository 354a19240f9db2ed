//! When the interpreter ends, CPython stops every other thread that takes the interpreter's lock. Up to 3.13, CPython
//! unwinds such a thread's stack, which Rust code does not survive. So [`end`] first waits for the calls inside the
//! bridge.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::driver::fork::Process;
use crate::stream::Thread;

struct InterpreterEnd {
    /// The number of the thread that ends the interpreter; 0 until [`end`] sets it.
    ended_by: AtomicU64,
    over: AtomicBool,
    /// Indexed by the number of forks that led to this process, at most 63, so that a forked child counts from zero.
    calls: [RunningCalls; 64],
}

static STATE: InterpreterEnd = InterpreterEnd {
    ended_by: AtomicU64::new(0),
    over: AtomicBool::new(false),
    calls: [const { RunningCalls { inside: AtomicUsize::new(0), coming: AtomicUsize::new(0) } };
        64],
};

const PATIENCE: Duration = Duration::from_secs(1);

struct RunningCalls {
    /// The number of calls inside the bridge, except those in [`super::detach`]. Changed only with the lock held. Stays
    /// 0 in builds without a GIL.
    inside: AtomicUsize,
    coming: AtomicUsize,
}

fn calls() -> &'static RunningCalls {
    let number = usize::try_from(Process::current().number()).unwrap_or(usize::MAX);
    &STATE.calls[number.min(STATE.calls.len() - 1)]
}

/// Whether another thread is ending the interpreter.
pub(super) fn is_ending() -> bool {
    let by = STATE.ended_by.load(Ordering::Relaxed);
    by != 0 && by != Thread::current().number()
}

/// Waits, up to a time limit, for `is_done` and the calls inside the bridge. Afterwards no other thread can enter the
/// bridge.
pub(in crate::py) fn end(py: Python<'_>, is_done: impl Fn() -> bool) {
    let (began, calls) = (Instant::now(), calls());
    let pause = || py.detach(|| std::thread::sleep(Duration::from_micros(100)));
    while !is_done() && began.elapsed() < PATIENCE / 2 {
        pause();
    }
    STATE.ended_by.store(Thread::current().number(), Ordering::SeqCst);
    let is_quiet = || {
        let inside = calls.inside.load(Ordering::SeqCst) + calls.coming.load(Ordering::SeqCst);
        inside == 0 && is_done()
    };
    while began.elapsed() < PATIENCE {
        if is_quiet() {
            STATE.over.store(true, Ordering::SeqCst);
            if is_quiet() {
                return;
            }
        }
        pause();
    }
    STATE.over.store(true, Ordering::SeqCst);
}

/// Whether only the thread that ends the interpreter may still enter the bridge.
pub(crate) fn is_over() -> bool {
    STATE.over.load(Ordering::Relaxed)
}

pub(super) struct CallGuard(&'static RunningCalls);

impl CallGuard {
    #[inline]
    pub(super) fn now() -> Self {
        let calls = calls();
        count(&calls.inside, 1);
        Self(calls)
    }
}

impl Drop for CallGuard {
    #[inline]
    fn drop(&mut self) {
        count(&self.0.inside, usize::MAX);
    }
}

/// The caller must hold the interpreter's lock. Does nothing in builds without a GIL.
#[inline]
fn count(number: &AtomicUsize, by: usize) {
    if cfg!(not(Py_GIL_DISABLED)) {
        number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// While this guard exists, the thread's call does not count as inside the bridge.
pub(super) struct DetachGuard(&'static RunningCalls);

impl DetachGuard {
    pub(super) fn now() -> Self {
        let calls = calls();
        debug_assert!(
            calls.inside.load(Ordering::Relaxed) != 0
                || cfg!(Py_GIL_DISABLED)
                || Process::current().number() != 0,
            "a call gives up the lock that did not come in by `entry`, `act`, `inside` or `enter`"
        );
        count(&calls.inside, usize::MAX);
        Self(calls)
    }
}

impl Drop for DetachGuard {
    fn drop(&mut self) {
        count(&self.0.inside, 1);
    }
}

pub(super) struct EntryGuard(&'static RunningCalls);

impl EntryGuard {
    /// `None` if this thread may no longer enter the interpreter.
    pub(super) fn now() -> Option<Self> {
        let calls = calls();
        calls.coming.fetch_add(1, Ordering::SeqCst);
        let coming = Self(calls);
        (!STATE.over.load(Ordering::SeqCst) || !is_ending()).then_some(coming)
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::SeqCst);
    }
}
