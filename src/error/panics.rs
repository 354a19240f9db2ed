//! Panics that go no further than the call that had them: no frame of C's may be passed by one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `call`. If it panics, the answer is what the panic said. What a panic carries may panic as well where it is
/// dropped: that goes no further either.
#[inline]
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(over)
}

/// How many panics in the drops of what panics carry are dropped.
const MOST: usize = 8;

#[cold]
fn over(panic: Box<dyn Any + Send>) -> String {
    let said = said(&*panic).to_owned();
    let mut carried = Some(panic);
    for _ in 0..MOST {
        let Some(panic) = carried.take() else { return said };
        carried = catch_unwind(AssertUnwindSafe(|| drop(panic))).err();
    }
    // Each has carried another: that may have no end.
    std::mem::forget(carried);
    said
}

/// What a panic says.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
