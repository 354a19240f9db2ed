//! Calls that may block, made without the interpreter's lock.
//!
//! A full launch queue blocks a launch, and a host function in that queue may need the lock. So whatever reaches the
//! driver, waits for another thread or runs an owner's destructor goes through here. The core knows no interpreter: the
//! Python layer sets what gives the lock up.

use std::sync::OnceLock;

use crate::driver::Call;

static DETACH: OnceLock<fn(Call<'_>)> = OnceLock::new();

/// Has calls run by `detach` from now on, which gives up the lock if this thread has it.
#[cfg(feature = "python")]
pub(crate) fn set_detach(detach: fn(Call<'_>)) {
    let _ = DETACH.set(detach);
}

/// Runs `call` once, with no lock held that another thread's Python code needs.
pub(crate) fn unlocked(call: Call<'_>) {
    match DETACH.get() {
        Some(detach) => detach(call),
        None => call(),
    }
}
