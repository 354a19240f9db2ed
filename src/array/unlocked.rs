//! Calls that may block, made without the interpreter's lock.
//!
//! A full launch queue blocks a launch, and a host function in that queue may need the lock. So the module `array`
//! queues waits between streams, copies and launches through [`unlocked`]. Through it a thread also waits for its turn
//! and drops an array's owner. The core knows no interpreter: the Python layer sets the function that releases the
//! lock.

#[cfg(feature = "cudarc")]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

/// Like [`unlocked`], for a call of other code, which may panic, and whose result is returned. A panic goes on once this
/// thread holds the interpreter's lock again.
#[cfg(feature = "cudarc")]
pub(crate) fn answered<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    let (mut call, mut answer) = (Some(call), None);
    unlocked(&mut || answer = call.take().map(|call| catch_unwind(AssertUnwindSafe(call))));
    match answer {
        Some(Ok(answer)) => answer,
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("`unlocked` runs its call"),
    }
}
