//! Panics are caught here, since they must not unwind through a frame of C's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `call`. If it panics, the answer is the panic's message. A panic in the drop of the panic's payload is caught as
/// well.
#[inline]
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(over)
}

/// The most payloads of panics that are dropped, each of the last one's drop.
const MOST: usize = 8;

#[cold]
fn over(panic: Box<dyn Any + Send>) -> String {
    let said = said(&*panic).to_owned();
    let mut carried = Some(panic);
    for _ in 0..MOST {
        let Some(panic) = carried.take() else { return said };
        carried = catch_unwind(AssertUnwindSafe(|| drop(panic))).err();
    }
    // Each drop has panicked with another payload, which may have no end.
    std::mem::forget(carried);
    said
}

/// A panic's message.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
