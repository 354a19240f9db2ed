//! How calls enter the bridge: from Python, with the interpreter's lock held ([`entry`]), and from foreign code, such
//! as deleters, with or without the lock ([`enter`], [`attached`]).
//!
//! Functions that foreign code calls must take the lock by CPython's own functions, not by PyO3's count of attachments:
//! PyTorch releases the lock inside a tensor's destructor. No panic may leave such functions.
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

use crate::driver::BlockingCall;
use crate::error::caught;

pub(super) use end::end;
pub(crate) use end::is_over;
use end::{CallGuard, DetachGuard, EntryGuard, is_ending};
pub(crate) use line::program_line;

pub(crate) type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// If another thread is ending the interpreter, raises `SystemExit` instead of running `call`.
#[inline]
pub(crate) fn entry<'py, R>(py: Python<'py>, call: impl FnOnce() -> PyResult<R>) -> Answer<'py>
where
    R: IntoPyObjectExt<'py>,
{
    let left = PUT_OFF.left.load(Ordering::Relaxed);
    inside(|| {
        // Make the exception object here, where `inside` catches a lack of memory. Else PyO3 makes the object later.
        let answer = call().and_then(|answer| answer.into_bound_py_any(py));
        let answer = answer.map_err(|error| raised(py, error));
        if PUT_OFF.left.load(Ordering::Relaxed) != left {
            finish_left(py);
        }
        answer
    })
}

struct PutOff {
    left: AtomicUsize,
    finish: OnceLock<fn(Python<'_>)>,
}

static PUT_OFF: PutOff = PutOff { left: AtomicUsize::new(0), finish: OnceLock::new() };

/// Each [`entry`] that is running now calls `finish` when its call has returned. Pass the same function every time.
pub(crate) fn left_for_later(finish: fn(Python<'_>)) {
    PUT_OFF.finish.get_or_init(|| finish);
    PUT_OFF.left.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn finish_left(py: Python<'_>) {
    if let Some(finish) = PUT_OFF.finish.get() {
        finish(py);
    }
}

/// Makes the exception object now: PyO3 would make the object later, and panics if the thread is exiting.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: PyErr) -> PyErr {
    error.restore(py);
    PyErr::fetch(py)
}

/// For a caller that holds the lock. If another thread is ending the interpreter, returns `SystemExit`.
#[inline]
pub(crate) fn inside<R>(call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    if is_ending() {
        return Err(PySystemExit::new_err(()));
    }
    let _inside = CallGuard::now();
    or_no_memory(call)
}

/// If PyO3 panics in `call` because CPython could not allocate an object, returns `MemoryError`.
#[inline]
pub(crate) fn or_no_memory<R>(call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
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

/// Lets a signal, such as Ctrl-C, interrupt a long loop that runs no Python code.
#[derive(Default)]
pub(crate) struct Signals(u32);

impl Signals {
    const ROUNDS: u32 = 256;

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

#[inline]
pub(crate) fn act(py: Python<'_>, call: impl FnOnce() -> PyResult<()>) -> Answer<'_> {
    entry(py, || call().map(|()| py.None()))
}

/// Runs `call` with the interpreter's lock held. `None` if the thread may not enter, or if `call` panics.
pub(crate) fn enter<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    locked(|py| undisturbed(py, || caught(|| call(py)).ok()))
}

/// Like [`enter`], for a `Drop` inside CPython's `tp_dealloc`, where this thread already holds the lock.
#[inline]
pub(crate) fn ending<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // SAFETY: `Py_IsInitialized` may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 || (is_over() && is_ending()) {
        return None;
    }
    // SAFETY: this is called only from the `Drop` of a value inside a Python object, where the lock is held.
    let py = unsafe { Python::assume_attached() };
    let _inside = CallGuard::now();
    undisturbed(py, || caught(|| call(py)).ok())
}

/// Like [`enter`], but neither saves nor clears a pending exception.
pub(crate) fn attached<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    locked(|py| caught(|| call(py)).ok())
}

struct LockGuard(ffi::PyGILState_STATE);

impl Drop for LockGuard {
    fn drop(&mut self) {
        // SAFETY: `locked` called `PyGILState_Ensure` once for this value, on the same thread.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

fn locked<R>(call: impl FnOnce(Python<'_>) -> Option<R>) -> Option<R> {
    // SAFETY: `Py_IsInitialized` may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    let coming = EntryGuard::now()?;
    // SAFETY: the interpreter is initialized, as checked above. `end` waits for `coming`, up to its time limit.
    let locked = LockGuard(unsafe { ffi::PyGILState_Ensure() });
    let inside = CallGuard::now();
    drop(coming);
    let answer = Python::try_attach(call).flatten();
    drop(inside);
    drop(locked);
    answer
}

/// Sleeps forever: an exiting thread cannot be parked.
fn stay_outside() -> ! {
    loop {
        std::thread::sleep(Duration::MAX);
    }
}

/// Runs `call` without the interpreter's lock. The caller must hold a [`CallGuard`].
pub(crate) fn detach<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    let _outside = DetachGuard::now();
    let (answer, _coming) = py.detach(|| {
        let answer = call();
        let coming = EntryGuard::now().unwrap_or_else(|| stay_outside());
        (answer, coming)
    });
    answer
}

/// Runs `call`. If this thread holds the interpreter's lock, releases the lock during `call`.
pub(crate) fn unlocked(call: BlockingCall<'_>) {
    if !held::is_held() {
        return call();
    }
    // SAFETY: this thread holds the lock, as checked above.
    let py = unsafe { Python::assume_attached() };
    let _coming = py.detach(|| {
        call();
        EntryGuard::now().unwrap_or_else(|| stay_outside())
    });
}

/// Runs `call` between `PyEval_SaveThread` and `PyEval_RestoreThread`, as a C library does. For the simulated device.
pub(super) fn without_lock(call: impl FnOnce()) {
    attached(|_| {
        // SAFETY: `attached` took the lock. The guard restores the thread's state before `attached` releases the lock,
        // even if `call` panics.
        let _saved = SavedThread(unsafe { ffi::PyEval_SaveThread() });
        call();
    });
}

struct SavedThread(*mut ffi::PyThreadState);

impl Drop for SavedThread {
    fn drop(&mut self) {
        // SAFETY: `without_lock` saved the state on this thread, once for this value.
        unsafe { ffi::PyEval_RestoreThread(self.0) };
    }
}

/// Tries to make this thread raise `error`, or a new exception of the same class, when it next runs Python code.
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(error: *mut c_void) -> c_int {
        // SAFETY: CPython calls this with the interpreter's lock held.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: `error` comes from `Box::into_raw` below, and CPython passes it to at most one call.
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
            // SAFETY: `Py_AddPendingCall` may be called at any time. `raise` receives the box made above.
            if unsafe { ffi::Py_AddPendingCall(Some(raise), kept.cast()) } != 0 {
                // SAFETY: the call failed, so `raise` will not get the box.
                unsafe { Box::from_raw(kept) }.write_unraisable(py, None);
            }
        }
        Ok((own, false)) => {
            let class = error.get_type(py);
            // SAFETY: this thread holds the lock, and CPython takes its own reference to the class.
            unsafe { ffi::PyThreadState_SetAsyncExc(own, class.as_ptr()) };
        }
        Err(_) => error.write_unraisable(py, None),
    }
}

/// Saves the pending exception and restores it after `call`: a deleter may run while an exception propagates.
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
/// The message with which PyO3 panics when CPython fails to allocate an object.
const NO_OBJECT: &str = "PyObject pointer is null";

/// Silences the panics that [`or_no_memory`] catches. Only in the wheel: a panic hook belongs to the whole program.
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

/// `None` for an ordinary exception. Passes on an exception for which [`is_interrupt`] is true.
pub(crate) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            let error = raised(py, error);
            if is_interrupt(py, &error) { Err(error) } else { Ok(None) }
        }
    }
}

/// The first error of several questions, each of which is asked whatever the others raise.
#[derive(Default)]
pub(crate) struct FirstInterrupt(Option<PyErr>);

impl FirstInterrupt {
    /// The answer, or `None` for an error.
    #[inline]
    pub(crate) fn pass<T>(&mut self, answer: PyResult<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn raise(self) -> PyResult<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// True for `MemoryError`, for `RecursionError`, and for an exception that is not an `Exception`.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
        || error.is_instance_of::<PyMemoryError>(py)
        || error.is_instance_of::<PyRecursionError>(py)
}
