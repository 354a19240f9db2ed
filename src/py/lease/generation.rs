//! Generations of holders, which bound the chain of ends.
//!
//! A producer may make a view of its own array whenever the bridge asks it something. The end of that view asks the
//! producer again, which makes another view, and so on. A holder made during an end is one generation younger than the
//! ending holder. From generation 16 on, an end asks no producer.

use std::cell::Cell;

use crate::local::local;
use crate::py::streams::unasked;

/// From this generation on an end asks no producer; if a stream needs a voucher, the host waits for it.
const UNASKED: u32 = 16;

local! {
    /// The generation of holders that this thread makes now.
    static NOW: Cell<u32> = const { Cell::new(0) };
}

/// The generation of a holder made now.
pub(super) fn now() -> u32 {
    NOW.get().unwrap_or(0)
}

/// Runs the end of a holder of this generation.
pub(super) fn end<R>(generation: u32, end: impl FnOnce() -> R) -> R {
    NOW.during(generation.saturating_add(1), || {
        if generation < UNASKED { end() } else { unasked(end) }
    })
}
