//! Calls that may block, made without the interpreter's lock.
//!
//! A full launch queue blocks a launch, and a host function in that queue may need the lock. So every call that uses
//! the driver, waits for another thread or drops an owner goes through here. The core knows no interpreter: the
//! Python layer sets the function that releases the lock.

use std::sync::OnceLock;

use crate::driver::Call;

static DETACH: OnceLock<fn(Call<'_>)> = OnceLock::new();

/// Makes all calls from now on run through `detach`, which releases the interpreter's lock if this thread holds it.
#[cfg(feature = "python")]
pub(crate) fn set_detach(detach: fn(Call<'_>)) {
    let _ = DETACH.set(detach);
}

/// Runs `call` once, without any lock that Python code of another thread needs.
pub(crate) fn unlocked(call: Call<'_>) {
    match DETACH.get() {
        Some(detach) => detach(call),
        None => call(),
    }
}
