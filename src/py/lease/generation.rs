//! Generations of holders. They bound how many ends can cause one another.
//!
//! A producer may make a view of its own array whenever the bridge asks it for its stream. The end of that view asks
//! the producer again, which makes another view, and so on. So a holder made while a dropped holder's orders are made
//! is one generation younger than the dropped holder. From generation 16 on, such an end asks no producer.

use crate::py::streams::unasked;
use crate::py::this_thread::DOING;

/// From this generation on, [`end`] lets no producer, stream object or library's Python function be asked for a stream.
/// A stream that only such an answer could prove alive counts as not kept.
const UNASKED: u32 = 16;

/// The generation that a holder made now on this thread gets.
pub(super) fn now() -> u32 {
    DOING.with(|doing| doing.generation.get()).unwrap_or(0)
}

/// Runs `end`, a step of the end of a holder of the generation `generation`. Holders that this thread makes meanwhile
/// are one generation younger.
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
