//! Writes a thread's Python stack to a file, by the interpreter.

use alloc::string::String;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;

use crate::settings::Settings;
use crate::{log, symbols};

/// Adds the thread's Python stack, with the operation's number, to the process's file of stacks, if the thread
/// runs Python. Takes the interpreter's lock.
pub(crate) fn write(operation: u64) {
    let Some(folder) = Settings::get().folder else { return };
    let find = |name: &CStr| symbols::of_the_program(name);
    let (
        Some(initialized),
        Some(state),
        Some(ensure),
        Some(release),
        Some(run),
        Some(fetch),
        Some(restore),
    ) = (
        find(c"Py_IsInitialized"),
        find(c"PyGILState_GetThisThreadState"),
        find(c"PyGILState_Ensure"),
        find(c"PyGILState_Release"),
        find(c"PyRun_SimpleString"),
        find(c"PyErr_Fetch"),
        find(c"PyErr_Restore"),
    )
    else {
        return;
    };
    // SAFETY: Python exports functions of these names, with the signatures of its C API.
    let (initialized, state, ensure, release, run, fetch, restore) = unsafe {
        (
            core::mem::transmute::<*mut _, unsafe extern "C" fn() -> c_int>(initialized),
            core::mem::transmute::<*mut _, unsafe extern "C" fn() -> usize>(state),
            core::mem::transmute::<*mut _, unsafe extern "C" fn() -> c_int>(ensure),
            core::mem::transmute::<*mut _, unsafe extern "C" fn(c_int)>(release),
            core::mem::transmute::<*mut _, unsafe extern "C" fn(*const c_char) -> c_int>(run),
            core::mem::transmute::<*mut _, unsafe extern "C" fn(*mut usize, *mut usize, *mut usize)>(
                fetch,
            ),
            core::mem::transmute::<*mut _, unsafe extern "C" fn(usize, usize, usize)>(restore),
        )
    };
    // The code runs in a namespace of its own, and does not touch the program's module.
    let (mut code, mut text) = (String::new(), String::new());
    let folder = String::from_utf8_lossy(folder);
    let name = log::name("stacks");
    let _ = write!(
        code,
        "import json, sys, traceback\nf = sys._getframe(2) if sys._getframe(1).f_back else None\n\
         s = [[x.filename, x.lineno, x.name, x.line] for x in traceback.extract_stack(f)] if f else []\n\
         open({folder:?} + '/{name}', 'a').write(json.dumps([{operation}, s]) + '\\n')"
    );
    let _ = write!(text, "exec({code:?}, {{}})\0");
    let Ok(program) = CStr::from_bytes_until_nul(text.as_bytes()) else { return };
    // SAFETY: the interpreter is initialised. `ensure` takes its lock if this thread does not have it, and
    // `release` gives back what was taken. The program text ends with a zero. A thread without a state has no
    // Python frame. Such a thread does not take the lock: the lock's holder may wait for it.
    unsafe {
        if initialized() != 0 && state() != 0 {
            let taken = ensure();
            // This thread may have a pending exception.
            let (mut kind, mut value, mut trace) = (0, 0, 0);
            fetch(&raw mut kind, &raw mut value, &raw mut trace);
            run(program.as_ptr());
            restore(kind, value, trace);
            release(taken);
        }
    }
}
