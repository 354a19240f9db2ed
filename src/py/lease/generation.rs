//! Generations of holders, which bound the chain of ends.
//!
//! A producer may make a view of its own array whenever the bridge calls it. The end of that view calls the producer
//! again, which makes another view, and so on. A holder made during an end is one generation younger than the ending
//! holder. From generation 16 on, an end asks no producer.

use crate::py::streams::unasked;
use crate::py::this_thread::DOING;

/// From this generation on an end asks no producer; if a stream needs a voucher, the host waits for it.
const UNASKED: u32 = 16;

/// The generation of a holder made now.
pub(super) fn now() -> u32 {
    DOING.with(|doing| doing.generation.get()).unwrap_or(0)
}

/// Runs the end of a holder of this generation.
pub(super) fn end<R>(generation: u32, end: impl FnOnce() -> R) -> R {
    /// Restores the thread's generation, also after a panic.
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            DOING.with(|doing| doing.generation.set(self.0));
        }
    }
    let next = generation.saturating_add(1);
    let _restore = DOING.with(|doing| Restore(doing.generation.replace(next)));
    if generation < UNASKED { end() } else { unasked(end) }
}
