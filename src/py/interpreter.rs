//! The interpreter's lock: how calls come in from Python and from foreign code, and how that ends.
//!
//! *From Python* ([`entry`]) the lock is held. *From foreign code* ([`enter`], [`attached`]) nothing is known:
//! a deleter, a capsule's destructor, a function of an exchange table or a `tracing` event can come from any
//! thread, with or without the lock, nested in a call of ours, and with an exception pending. torch lets the
//! lock go inside a tensor's destructor, so that a lock which was taken further up the stack proves nothing.
//! Hence the one rule: *who is called by foreign code takes the lock by CPython's own state*, never by PyO3's
//! count of attachments. Neither way lets a panic out.
//!
//! *At its end* ([`end`]) the interpreter stops every thread that takes its lock, up to CPython 3.13 by an unwind
//! that no Rust frame survives. So the end waits for threads that are inside, lets no other thread in, and keeps
//! a thread that returns from a driver call later outside. On builds without a global lock, which exist from
//! 3.14 on, CPython puts such a thread to sleep, and nothing must be counted.
#![allow(unsafe_code)]

use std::panic::{
    AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyMemoryError, PyRecursionError, PySystemExit};
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, ffi};

use crate::driver::fork::Process;
use crate::stream::Thread;

/// What an entry answers.
pub(crate) type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// A call of ours from Python: runs `call` and makes its answer an object. While another thread ends the
/// interpreter, this thread ends as by `sys.exit()`, so that it can release what it holds.
#[inline]
pub(crate) fn entry<'py, R>(py: Python<'py>, call: impl FnOnce() -> PyResult<R>) -> Answer<'py>
where
    R: IntoPyObjectExt<'py>,
{
    if is_ending() {
        return Err(PySystemExit::new_err(()));
    }
    let _inside = Inside::now();
    or_no_memory(|| {
        // An error that PyO3 has yet to make an object of would lack memory outside.
        call().and_then(|answer| answer.into_bound_py_any(py)).inspect_err(|error| {
            error.value(py);
        })
    })
}

/// Runs `call`; a panic for lack of memory, which PyO3 has where an object cannot be made, is the
/// `MemoryError` that it was.
#[inline]
pub(crate) fn or_no_memory<R>(call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        match panic.downcast_ref::<&str>() {
            Some(&NO_OBJECT) => Err(PyMemoryError::new_err(())),
            _ => resume_unwind(panic),
        }
    })
}

/// The same for a call that answers nothing, which is None.
#[inline]
pub(crate) fn act(py: Python<'_>, call: impl FnOnce() -> PyResult<()>) -> Answer<'_> {
    entry(py, || call().map(|()| py.None()))
}

/// Runs `call` with the interpreter's lock, whatever the state of this thread is; `None` where there is no
/// interpreter any more, or none that this thread may enter: what would have been done is then left.
///
/// An exception that is pending is put aside, and one that `call` leaves behind is reported as unraisable.
pub(crate) fn enter<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    locked(|py| undisturbed(py, || catch_unwind(AssertUnwindSafe(|| call(py))).ok()))
}

/// Runs `call` at the end of an object of ours; as [`enter`] does it, but for the lock.
///
/// CPython calls a type's `tp_dealloc` with the interpreter's lock held, since it changes the object's reference
/// count before; PyO3's own frame around this relies on it, too.
#[inline]
pub(crate) fn ending<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 || (is_over() && is_ending()) {
        return None;
    }
    // SAFETY: called by `Drop` of what a Python object holds, which has the lock by the above.
    let py = unsafe { Python::assume_attached() };
    let _inside = Inside::now();
    undisturbed(py, || catch_unwind(AssertUnwindSafe(|| call(py))).ok())
}

/// The same for what may leave an exception behind, and minds one that is pending itself.
pub(crate) fn attached<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    locked(|py| catch_unwind(AssertUnwindSafe(|| call(py))).ok())
}

/// The lock, until dropped.
struct Locked(ffi::PyGILState_STATE);

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: goes with the one call of `PyGILState_Ensure` in `locked`, on this thread.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

fn locked<R>(call: impl FnOnce(Python<'_>) -> Option<R>) -> Option<R> {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    let coming = Coming::now()?;
    // SAFETY: there is an interpreter, by the line above, which does not end while somebody is coming.
    let locked = Locked(unsafe { ffi::PyGILState_Ensure() });
    let inside = Inside::now();
    drop(coming);
    let answer = Python::try_attach(call).flatten();
    drop(inside);
    drop(locked);
    answer
}

/// Runs `call`, which may block, with the lock released.
pub(crate) fn detach<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    let _outside = Outside::now();
    let (answer, _coming) = py.detach(|| {
        let answer = call();
        let Some(coming) = Coming::now() else {
            loop {
                std::thread::park();
            }
        };
        (answer, coming)
    });
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

/// 0, or the number of the thread that ends the interpreter: no other comes in any more.
static ENDED_BY: AtomicU64 = AtomicU64::new(0);
/// Whether that thread has waited for the others.
static OVER: AtomicBool = AtomicBool::new(false);
/// How many calls are inside, and how many threads are about to take the lock, in each process: of those that a
/// fork's parent had none come back.
static CALLS: [Calls; 64] =
    [const { Calls { inside: AtomicUsize::new(0), coming: AtomicUsize::new(0) } }; 64];
/// How long they are waited for.
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
fn is_ending() -> bool {
    let by = ENDED_BY.load(Ordering::Relaxed);
    by != 0 && by != Thread::current().number()
}

/// The interpreter is about to end, by this thread: waits for the calls that are inside, and lets no others in.
pub(super) fn end(py: Python<'_>) {
    ENDED_BY.store(Thread::current().number(), Ordering::SeqCst);
    let (began, calls) = (Instant::now(), calls());
    let is_quiet =
        || calls.inside.load(Ordering::SeqCst) + calls.coming.load(Ordering::SeqCst) == 0;
    while began.elapsed() < PATIENCE {
        if is_quiet() {
            OVER.store(true, Ordering::SeqCst);
            if is_quiet() {
                return;
            }
        }
        py.detach(|| std::thread::sleep(Duration::from_micros(100)));
    }
    OVER.store(true, Ordering::SeqCst);
}

/// Whether the interpreter has ended for all but one thread.
pub(crate) fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

/// A call that is inside.
struct Inside(&'static Calls);

impl Inside {
    #[inline]
    fn now() -> Self {
        let calls = calls();
        count(&calls.inside, 1);
        Self(calls)
    }
}

impl Drop for Inside {
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
struct Outside(&'static Calls);

impl Outside {
    fn now() -> Self {
        let calls = calls();
        count(&calls.inside, usize::MAX);
        Self(calls)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        count(&self.0.inside, 1);
    }
}

/// A thread that is about to take the lock; the end waits for it.
struct Coming(&'static Calls);

impl Coming {
    /// `None` where it is too late.
    fn now() -> Option<Self> {
        let calls = calls();
        calls.coming.fetch_add(1, Ordering::SeqCst);
        let coming = Self(calls);
        (!OVER.load(Ordering::SeqCst) || !is_ending()).then_some(coming)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What PyO3 panics with where CPython could not make an object, for lack of memory.
const NO_OBJECT: &str = "PyObject pointer is null";

/// Keeps panics quiet that [`or_no_memory`] makes exceptions of. The hook is this library's own.
pub(super) fn quiet() {
    let before = take_hook();
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if panic.payload().downcast_ref::<&str>() != Some(&NO_OBJECT) {
            before(panic);
        }
    }));
}

/// What somebody was asked for and has answered; `None` where that failed. An interrupt is no answer, and
/// passes through.
pub(crate) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_interrupt(py, &error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether an exception says nothing of who was asked: whatever is no `Exception`, such as an interrupt or
/// an exit, and the lack of memory or stack.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
        || error.is_instance_of::<PyMemoryError>(py)
        || error.is_instance_of::<PyRecursionError>(py)
}
