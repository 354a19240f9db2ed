//! Tells whether this thread holds the interpreter's lock, without taking the lock. `PyGILState_Check` is not in the
//! stable ABI, and is always true once a subinterpreter has existed. So this module compares the two pointers that
//! `PyGILState_Check` compares: this thread's state and the running state.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use libloading::os::unix::Library;
use pyo3::ffi;

type ThreadStateFunction = unsafe extern "C" fn() -> *mut ffi::PyThreadState;

/// CPython's function for the running thread's state; `None` if the lookup finds neither name.
fn running() -> Option<ThreadStateFunction> {
    static FOUND: OnceLock<Option<ThreadStateFunction>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let program = Library::this();
        let names = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"];
        names.into_iter().find_map(|name| {
            // SAFETY: both functions have this signature in CPython, since 3.13 and 3.5. Neither needs the lock.
            unsafe { program.get::<ThreadStateFunction>(name.to_bytes_with_nul()) }
                .ok()
                .map(|found| *found)
        })
    })
}

pub(super) fn is_held() -> bool {
    // SAFETY: `Py_IsInitialized` may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return false;
    }
    let Some(running) = running() else { return false };
    // SAFETY: the interpreter is initialized, as checked above. Both calls only read a pointer, which is compared and
    // never followed.
    let (own, running) = unsafe { (ffi::PyGILState_GetThisThreadState(), running()) };
    !own.is_null() && own == running
}
