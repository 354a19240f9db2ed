//! Calls that may block, made without the interpreter's lock.
//!
//! A full launch queue blocks a launch, and a host function in that queue may need the lock. So the waits, copies and
//! launches of this module, its waits for other threads and its drops of owners run through [`unlocked`]. The core
//! knows no interpreter: the Python layer sets the function that releases the lock.

use std::sync::OnceLock;

use crate::driver::BlockingCall;

static DETACH: OnceLock<fn(BlockingCall<'_>)> = OnceLock::new();

/// Makes [`unlocked`] run its calls through `detach`, which releases the interpreter's lock if this thread holds it.
/// Only the first call has an effect.
#[cfg(feature = "python")]
pub(crate) fn set_detach(detach: fn(BlockingCall<'_>)) {
    let _ = DETACH.set(detach);
}

/// Runs `call` once, without the interpreter's lock if `set_detach` was called, else directly.
pub(crate) fn unlocked(call: BlockingCall<'_>) {
    match DETACH.get() {
        Some(detach) => detach(call),
        None => call(),
    }
}
