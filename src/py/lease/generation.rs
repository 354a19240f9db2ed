//! Generations of holders, so that ends come to an end.
//!
//! A producer may make a view of its own array whenever the bridge asks it something. The end of that view asks the
//! producer again, which makes another view, and so on. A holder that is made during an end is one generation younger
//! than the holder that ends; from some generation on the bridge asks no one.

use std::cell::Cell;

use crate::local::local;
use crate::py::streams::unasked;

/// The first generation whose ends ask no one. The host waits for a stream that needs a voucher.
const UNASKED: u32 = 16;

local! {
    /// The generation of what is made now on this thread.
    static NOW: Cell<u32> = const { Cell::new(0) };
}

/// The generation of what is made now.
pub(super) fn now() -> u32 {
    NOW.get().unwrap_or(0)
}

/// Runs the end of a holder of this generation.
pub(super) fn end<R>(generation: u32, end: impl FnOnce() -> R) -> R {
    NOW.during(generation.saturating_add(1), || {
        if generation < UNASKED { end() } else { unasked(end) }
    })
}
