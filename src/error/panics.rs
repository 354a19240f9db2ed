//! Catches panics, which must not unwind through a frame of C code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error is the panic's message.
#[inline]
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(over)
}

/// The maximum number of payloads to drop, if each drop panics with another payload.
const MOST: usize = 8;

#[cold]
fn over(panic: Box<dyn Any + Send>) -> String {
    let said = said(&*panic).to_owned();
    let mut carried = Some(panic);
    for _ in 0..MOST {
        let Some(panic) = carried.take() else { return said };
        carried = catch_unwind(AssertUnwindSafe(|| drop(panic))).err();
    }
    // If the last drop has panicked, leak the new payload: its drop may panic as well.
    std::mem::forget(carried);
    said
}

/// "no message" if the panic's payload is not text.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
