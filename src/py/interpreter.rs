//! The interpreter's lock, for what foreign code calls.
//!
//! A deleter, a capsule's destructor, a function of an exchange table or a `tracing` event can come from any
//! thread, with or without the lock, nested in a call of ours, and with an exception pending: torch lets the
//! lock go inside a tensor's destructor, so that a lock which was taken further up the stack proves nothing.
//! Hence the one rule: *who is called by foreign code takes the lock by CPython's own state* ([`enter`]),
//! never by PyO3's count of attachments.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::stream::Thread;

/// 0, or the number of the thread that ends the interpreter.
static ENDED_BY: AtomicU64 = AtomicU64::new(0);

/// The lock, until dropped.
struct Locked(ffi::PyGILState_STATE);

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: goes with the one call of `PyGILState_Ensure` in `enter`, on this thread.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Runs `call` with the interpreter's lock, whatever the state of this thread is; `None` where there is no
/// interpreter any more, or none that this thread may enter: what would have been done is then left.
///
/// An exception that is pending is put aside, and one that `call` leaves behind is reported as unraisable.
pub(crate) fn enter<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    attached(|py| undisturbed(py, || call(py)))
}

/// The same for what may leave an exception behind, and minds one that is pending itself.
pub(crate) fn attached<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    let ended_by = ENDED_BY.load(Ordering::Acquire);
    if ended_by != 0 && ended_by != Thread::current().number() {
        return None;
    }
    // SAFETY: there is an interpreter, by the line above, and what ends it has told `end` before; should it
    // end in between, this thread stops for good here (pyo3-ffi, "PyGILState_Ensure").
    let locked = Locked(unsafe { ffi::PyGILState_Ensure() });
    let answer = Python::try_attach(call);
    drop(locked);
    answer
}

/// Runs `call` with the lock let go by CPython's own call, as foreign code does: PyO3's count of attachments
/// does not learn of it. For the stand-ins of the simulated device.
pub(super) fn without_lock(call: impl FnOnce()) {
    attached(|_| {
        // SAFETY: `attached` has the lock, and the thread's state is restored before it lets it go itself.
        let state = unsafe { ffi::PyEval_SaveThread() };
        call();
        // SAFETY: the state is this thread's own, from the line above.
        unsafe { ffi::PyEval_RestoreThread(state) };
    });
}

/// Runs `call` with the pending exception put aside: deleters are called while a stack unwinds, too.
fn undisturbed<R>(py: Python<'_>, call: impl FnOnce() -> R) -> R {
    let pending = PyErr::occurred(py).then(|| PyErr::take(py)).flatten();
    let answer = call();
    if PyErr::occurred(py)
        && let Some(left) = PyErr::take(py)
    {
        left.write_unraisable(py, None);
    }
    if let Some(pending) = pending {
        pending.restore(py);
    }
    answer
}

/// Notes that the interpreter is about to end, by this thread, which alone may enter it from here on.
pub(super) fn end() {
    ENDED_BY.store(Thread::current().number(), Ordering::Release);
}

/// What somebody was asked for and has answered; `None` where that failed. An interrupt, an exit or a lack
/// of memory is no answer, and passes through.
pub(crate) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error)
            if error.is_instance_of::<PyException>(py)
                && !error.is_instance_of::<PyMemoryError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
