//! Whether this thread has the interpreter's lock, asked without taking it.
//!
//! `PyGILState_Check` says yes to everybody once there was a subinterpreter, and is not in the stable ABI. What it
//! compares is: the thread's state, and the one that runs. The latter's function has two names, by version.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use libloading::os::unix::Library;
use pyo3::ffi;

type Running = unsafe extern "C" fn() -> *mut ffi::PyThreadState;

/// The state that runs: this thread's; up to CPython 3.11 any thread's.
fn running() -> Option<Running> {
    static FOUND: OnceLock<Option<Running>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let program = Library::this();
        let names = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"];
        names.into_iter().find_map(|name| {
            // SAFETY: CPython has both under this type, since 3.13 and 3.5; they need no lock.
            unsafe { program.get::<Running>(name.to_bytes_with_nul()) }.ok().map(|found| *found)
        })
    })
}

/// Whether this thread has the lock. Where the interpreter does not tell, it is taken to have none.
pub(super) fn is_held() -> bool {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return false;
    }
    let Some(running) = running() else { return false };
    // SAFETY: there is an interpreter; both only read a pointer, which is compared and not followed.
    let (own, running) = unsafe { (ffi::PyGILState_GetThisThreadState(), running()) };
    !own.is_null() && own == running
}
