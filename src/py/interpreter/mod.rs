//! The interpreter's lock: how calls come in from Python and from foreign code, and how that ends.
//!
//! *From Python* ([`entry`]) the lock is held. *From foreign code* ([`enter`], [`attached`]) nothing is known:
//! a deleter, a capsule's destructor, a function of an exchange table or a `tracing` event can come from any
//! thread, with or without the lock, nested in a call of ours, and with an exception pending. torch lets the
//! lock go inside a tensor's destructor, so that a lock which was taken further up the stack proves nothing.
//! Hence the one rule: *who is called by foreign code takes the lock by CPython's own state*, never by PyO3's
//! count of attachments. Neither way lets a panic out.
//!
//! *At its end* ([`end`]) no other thread comes in.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_long, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

mod end;
mod held;
mod line;

use pyo3::exceptions::{PyException, PyMemoryError, PyRecursionError, PySystemExit};
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, ffi};

use crate::driver::Call;
use crate::error::caught;

pub(super) use end::end;
pub(crate) use end::is_over;
use end::{CallGuard, DetachGuard, EntryGuard, is_ending};
pub(crate) use line::program_line;

/// What an entry answers.
pub(crate) type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// A call of ours from Python: runs `call` and makes its answer an object. While another thread ends the
/// interpreter, this thread ends as by `sys.exit()`, so that it can release what it holds.
#[inline]
pub(crate) fn entry<'py, R>(py: Python<'py>, call: impl FnOnce() -> PyResult<R>) -> Answer<'py>
where
    R: IntoPyObjectExt<'py>,
{
    let left = LEFT.load(Ordering::Relaxed);
    inside(|| {
        // An error that PyO3 has yet to make an object of would lack memory outside.
        let answer = call().and_then(|answer| answer.into_bound_py_any(py));
        let answer = answer.map_err(|error| raised(py, error));
        if LEFT.load(Ordering::Relaxed) != left {
            finish_left(py);
        }
        answer
    })
}

/// How many ends were left for later so far.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// What finishes those that can be finished by now.
static FINISH: OnceLock<fn(Python<'_>)> = OnceLock::new();

/// An end is left for later; `finish` is the same each time. It is called at the end of each call from Python in which
/// one was left: in a call, any foreign code may run, so it is asked there and not after each such code.
pub(crate) fn left_for_later(finish: fn(Python<'_>)) {
    FINISH.get_or_init(|| finish);
    LEFT.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn finish_left(py: Python<'_>) {
    if let Some(finish) = FINISH.get() {
        finish(py);
    }
}

/// An error as the exception that it is, before it is looked at. PyO3 makes the object of its own errors when somebody
/// does so, and asks the standard library which thread that is, which panics on one that is ending. To raise it and
/// fetch it again asks nobody.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: PyErr) -> PyErr {
    error.restore(py);
    PyErr::fetch(py)
}

/// The same of a call whose answer is for Rust.
#[inline]
pub(crate) fn inside<R>(call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    if is_ending() {
        return Err(PySystemExit::new_err(()));
    }
    let _inside = CallGuard::now();
    or_no_memory(call)
}

/// Runs `call`; a panic for lack of memory, which PyO3 has where an object cannot be made, is the
/// `MemoryError` that it was.
#[inline]
pub(crate) fn or_no_memory<R>(call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    // Beside the answer, which is a pointer mostly: what is caught is moved.
    let mut refused = None;
    let answer =
        catch_unwind(AssertUnwindSafe(|| call().map_err(|error| refused = Some(error)).ok()));
    match (answer, refused) {
        (Ok(Some(answer)), _) => Ok(answer),
        (Ok(None), Some(error)) => Err(error),
        (Ok(None), None) => Err(PyMemoryError::new_err(())),
        (Err(panic), _) => no_memory(panic),
    }
}

#[cold]
fn no_memory<R>(panic: Box<dyn Any + Send>) -> PyResult<R> {
    match panic.downcast_ref::<&str>() {
        Some(&NO_OBJECT) => Err(PyMemoryError::new_err(())),
        _ => resume_unwind(panic),
    }
}

/// Ends a long loop of ours as soon as a signal's handler raises: nothing of Python's runs in it, where CPython would
/// look for signals itself.
#[derive(Default)]
pub(crate) struct Signals(u32);

impl Signals {
    /// How many rounds pass from one look to the next.
    const ROUNDS: u32 = 256;

    /// Counts a round.
    #[inline(always)]
    pub(crate) fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0 += 1;
        if self.0 < Self::ROUNDS {
            return Ok(());
        }
        self.0 = 0;
        py.check_signals()
    }
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
    locked(|py| undisturbed(py, || caught(|| call(py)).ok()))
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
    let _inside = CallGuard::now();
    undisturbed(py, || caught(|| call(py)).ok())
}

/// The same for what may leave an exception behind, and minds one that is pending itself.
pub(crate) fn attached<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    locked(|py| caught(|| call(py)).ok())
}

/// The lock, until dropped.
struct LockGuard(ffi::PyGILState_STATE);

impl Drop for LockGuard {
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
    let coming = EntryGuard::now()?;
    // SAFETY: there is an interpreter, by the line above, which does not end while a thread is coming in.
    let locked = LockGuard(unsafe { ffi::PyGILState_Ensure() });
    let inside = CallGuard::now();
    drop(coming);
    let answer = Python::try_attach(call).flatten();
    drop(inside);
    drop(locked);
    answer
}

/// Where a thread stays that came too late to take the lock. It is not parked, which a thread that is ending cannot be.
fn stay_outside() -> ! {
    loop {
        std::thread::sleep(Duration::MAX);
    }
}

/// Runs `call`, which may block, with the lock released.
pub(crate) fn detach<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    let _outside = DetachGuard::now();
    let (answer, _coming) = py.detach(|| {
        let answer = call();
        let coming = EntryGuard::now().unwrap_or_else(|| stay_outside());
        (answer, coming)
    });
    answer
}

/// Runs `call`, which may block, with the lock released if this thread has it, by CPython's own state. For Rust's arrays,
/// which are worked on and end with the lock and without.
pub(crate) fn unlocked(call: Call<'_>) {
    if !held::is_held() {
        return call();
    }
    // SAFETY: this thread has the lock, by the line above.
    let py = unsafe { Python::assume_attached() };
    let _coming = py.detach(|| {
        call();
        EntryGuard::now().unwrap_or_else(|| stay_outside())
    });
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

/// Has this thread raise `error` where it next runs Python's code: what came in the midst of a call that cannot raise it.
/// A thread other than the main one raises its class alone.
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(error: *mut c_void) -> c_int {
        // SAFETY: CPython calls this with the interpreter's lock held.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: made below by `Box::into_raw`, and passed on to one call of this.
        unsafe { Box::from_raw(error.cast::<PyErr>()) }.restore(py);
        -1
    }
    let thread = || -> PyResult<(c_long, bool)> {
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        let own = threading.call_method0("get_ident")?;
        Ok((own.extract()?, own.eq(main)?))
    };
    match thread() {
        Ok((_, true)) => {
            let kept = Box::into_raw(Box::new(error));
            // SAFETY: may be called at any time; what it takes is the box above.
            if unsafe { ffi::Py_AddPendingCall(Some(raise), kept.cast()) } != 0 {
                // SAFETY: it was not taken, so that the box is still ours.
                unsafe { Box::from_raw(kept) }.write_unraisable(py, None);
            }
        }
        Ok((own, false)) => {
            let class = error.get_type(py);
            // SAFETY: the lock is held, and CPython takes a reference of its own to the class.
            unsafe { ffi::PyThreadState_SetAsyncExc(own, class.as_ptr()) };
        }
        Err(_) => error.write_unraisable(py, None),
    }
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
/// What PyO3 panics with where CPython could not make an object, for lack of memory.
const NO_OBJECT: &str = "PyObject pointer is null";

/// Keeps panics quiet that [`or_no_memory`] makes exceptions of. The hook is the whole library's: in another crate's
/// it would be the crate's, which is not ours to set.
#[cfg(feature = "wheel")]
pub(super) fn quiet() {
    use std::panic::{PanicHookInfo, set_hook, take_hook};
    let before = take_hook();
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if panic.payload().downcast_ref::<&str>() != Some(&NO_OBJECT) {
            before(panic);
        }
    }));
}

/// The answer to a question; `None` where it failed. An interrupt is no answer, and
/// passes through.
pub(crate) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            let error = raised(py, error);
            if is_interrupt(py, &error) { Err(error) } else { Ok(None) }
        }
    }
}

/// Whether an exception says nothing of who was asked: whatever is no `Exception`, such as an interrupt or
/// an exit, and the lack of memory or stack.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
        || error.is_instance_of::<PyMemoryError>(py)
        || error.is_instance_of::<PyRecursionError>(py)
}
