//! The end of the interpreter. It stops each thread that takes its lock: up to CPython 3.13 by an unwind that no Rust
//! frame survives.
//!
//! So the bridge waits for the threads that are inside by then and lets no other in. A thread that returns from a
//! driver call later stays outside for good. Builds without a global lock, from 3.14 on, put such a thread to sleep
//! where it stands, so nothing is counted there.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::driver::fork::Process;
use crate::stream::Thread;

/// 0, or the number of the thread that ends the interpreter: no other comes in any more.
static ENDED_BY: AtomicU64 = AtomicU64::new(0);

/// Whether that thread has waited for the others.
static OVER: AtomicBool = AtomicBool::new(false);

/// How many calls are inside, and how many threads are about to take the lock, in each process: of those that a
/// fork's parent had none come back.
static CALLS: [Calls; 64] =
    [const { Calls { inside: AtomicUsize::new(0), coming: AtomicUsize::new(0) } }; 64];

/// How long all of them are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

struct Calls {
    /// Changed with the lock held.
    inside: AtomicUsize,
    coming: AtomicUsize,
}

fn calls() -> &'static Calls {
    let number = usize::try_from(Process::current().number()).unwrap_or(usize::MAX);
    &CALLS[number.min(CALLS.len() - 1)]
}

/// Whether another thread is ending the interpreter.
pub(super) fn is_ending() -> bool {
    let by = ENDED_BY.load(Ordering::Relaxed);
    by != 0 && by != Thread::current().number()
}

/// The interpreter is about to end, by this thread: waits for our own thread, and for the calls that are inside, and
/// lets no others in. `is_done` tells of our own, which may come in for half of that time.
pub(in crate::py) fn end(py: Python<'_>, is_done: impl Fn() -> bool) {
    let (began, calls) = (Instant::now(), calls());
    let pause = || py.detach(|| std::thread::sleep(Duration::from_micros(100)));
    while !is_done() && began.elapsed() < PATIENCE / 2 {
        pause();
    }
    ENDED_BY.store(Thread::current().number(), Ordering::SeqCst);
    let is_quiet = || {
        let inside = calls.inside.load(Ordering::SeqCst) + calls.coming.load(Ordering::SeqCst);
        inside == 0 && is_done()
    };
    while began.elapsed() < PATIENCE {
        if is_quiet() {
            OVER.store(true, Ordering::SeqCst);
            if is_quiet() {
                return;
            }
        }
        pause();
    }
    OVER.store(true, Ordering::SeqCst);
}

/// Whether the interpreter has ended for all but one thread.
pub(crate) fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

/// A call that is inside.
pub(super) struct CallGuard(&'static Calls);

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

/// Adds to a number that is changed with the lock held alone. Nothing is counted where there is no such lock.
#[inline]
fn count(number: &AtomicUsize, by: usize) {
    if cfg!(not(Py_GIL_DISABLED)) {
        number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// A call that is not inside for a while.
pub(super) struct DetachGuard(&'static Calls);

impl DetachGuard {
    pub(super) fn now() -> Self {
        let calls = calls();
        count(&calls.inside, usize::MAX);
        Self(calls)
    }
}

impl Drop for DetachGuard {
    fn drop(&mut self) {
        count(&self.0.inside, 1);
    }
}

/// A thread that is about to take the lock; the end waits for it.
pub(super) struct EntryGuard(&'static Calls);

impl EntryGuard {
    /// `None` where it is too late.
    pub(super) fn now() -> Option<Self> {
        let calls = calls();
        calls.coming.fetch_add(1, Ordering::SeqCst);
        let coming = Self(calls);
        (!OVER.load(Ordering::SeqCst) || !is_ending()).then_some(coming)
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::SeqCst);
    }
}
