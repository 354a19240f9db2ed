//! What cannot end yet: kept until it can, and looked at again by later calls of the bridge.
//!
//! The host never waits, so what has to outlive work on a device is put here. With a real driver a
//! thread sees to it that somebody looks even where no call comes: it asks the interpreter's main
//! thread to ([`Py_AddPendingCall`](https://docs.python.org/3/c-api/init.html#c.Py_AddPendingCall)),
//! since a thread of ours must not be in the interpreter when that ends. What is still here at the end
//! of the process stays.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

/// Something that ends later.
pub(super) trait Parked: Send {
    /// Whether it can end now; it is then dropped. Asked with nothing locked. Must not wait.
    fn is_over(&mut self, py: Python<'_>) -> bool;

    /// Whether time alone can change the answer: somebody has to ask again even where no call comes.
    fn ripens(&self) -> bool;
}

/// In the order in which they were asked last, which is that of their work where nobody was yet.
static PARKED: Mutex<VecDeque<Box<dyn Parked>>> = Mutex::new(VecDeque::new());
/// How many there are: what every call asks, without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many a call asks: more than it parks, so that they become fewer once they can end, and no more,
/// so that a call takes no longer where thousands wait for one piece of work.
const AT_A_CALL: usize = 4;

fn parked() -> MutexGuard<'static, VecDeque<Box<dyn Parked>>> {
    PARKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `what` until it can end.
pub(super) fn park(what: Box<dyn Parked>) {
    let ripens = what.ripens();
    {
        let mut parked = parked();
        parked.push_back(what);
        COUNT.store(parked.len(), Ordering::Release);
    }
    if ripens {
        watch();
    }
}

/// Ends what can end by now of those that were not asked for longest: a few, for every call does.
#[inline]
pub(super) fn look(py: Python<'_>) {
    if COUNT.load(Ordering::Acquire) != 0 {
        look_at(py, AT_A_CALL);
    }
}

/// Ends all that can end by now.
pub(super) fn look_at_all(py: Python<'_>) {
    look_at(py, COUNT.load(Ordering::Acquire));
}

#[cold]
fn look_at(py: Python<'_>, most: usize) {
    // Taken out meanwhile: to ask, and to drop, may run anything, this too.
    let mut all: Vec<_> = {
        let mut parked = parked();
        let most = most.min(parked.len());
        parked.drain(..most).collect()
    };
    let over: Vec<_> = all.extract_if(.., |one| one.is_over(py)).collect();
    {
        let mut parked = parked();
        parked.extend(all);
        COUNT.store(parked.len(), Ordering::Release);
    }
    drop(over);
}

/// What the watching thread is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// There is no such thread yet.
    Unborn,
    Sleep,
    Wake,
    /// The interpreter is about to end.
    Over,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch::Unborn);
static TOLD: Condvar = Condvar::new();

/// How often the main thread is asked to look, at first and at last: a lookup takes about 0.1 us.
const FIRST: Duration = Duration::from_micros(500);
const LAST: Duration = Duration::from_millis(50);

fn watch() {
    let mut state = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    match *state {
        Watch::Over | Watch::Wake => {}
        Watch::Sleep => {
            *state = Watch::Wake;
            TOLD.notify_one();
        }
        Watch::Unborn => {
            let born = std::thread::Builder::new().name("cai_bridge".into()).spawn(keep_asking);
            // Without the thread, the next call of the bridge looks.
            if born.is_ok() {
                *state = Watch::Wake;
            }
        }
    }
}

fn keep_asking() {
    let mut state = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pause = FIRST;
    loop {
        match *state {
            Watch::Over => return,
            Watch::Wake if COUNT.load(Ordering::Acquire) == 0 => *state = Watch::Sleep,
            Watch::Wake => {
                // SAFETY: may be called from any thread, without the interpreter lock, as long as
                // there is an interpreter: `stop` is called before it ends, and waits for the lock
                // that is held here. `asked` stays for good. A full queue (-1) is asked again later.
                let _ = unsafe { pyo3::ffi::Py_AddPendingCall(Some(asked), std::ptr::null_mut()) };
                let waited =
                    TOLD.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                pause = LAST.min(pause * 2);
            }
            Watch::Sleep | Watch::Unborn => {
                state = TOLD.wait(state).unwrap_or_else(PoisonError::into_inner);
                pause = FIRST;
            }
        }
    }
}

/// What the main thread runs, between two instructions of whatever it is at.
extern "C" fn asked(_: *mut c_void) -> c_int {
    Python::try_attach(look_at_all);
    0
}

/// Ends the watching, before the interpreter ends.
#[pyfunction]
pub(crate) fn _stop_watching() {
    *WATCH.lock().unwrap_or_else(PoisonError::into_inner) = Watch::Over;
    TOLD.notify_one();
}
