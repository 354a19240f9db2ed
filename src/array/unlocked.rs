//! Makes calls that can block without the interpreter's lock. A full launch queue blocks a launch, and a host function
//! in the queue can need the lock.

#[cfg(feature = "cudarc")]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use crate::driver::BlockingCall;

static DETACH: OnceLock<fn(BlockingCall<'_>)> = OnceLock::new();

/// `detach` must run its argument once, with the interpreter's lock released. Later calls of `set_detach` do nothing.
#[cfg(feature = "python")]
pub(crate) fn set_detach(detach: fn(BlockingCall<'_>)) {
    let _ = DETACH.set(detach);
}

/// Runs `call` once, without the interpreter's lock if `set_detach` was called.
pub(crate) fn unlocked(call: BlockingCall<'_>) {
    match DETACH.get() {
        Some(detach) => detach(call),
        None => call(),
    }
}

/// Runs `call` by [`unlocked`]. If `call` panics, the panic resumes after `unlocked` has returned.
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
