//! Generations bound how many ends can cause one another: when the bridge asks a producer for its stream at the end of
//! a view, the producer may make a new view, whose end asks the producer again. A holder that is made during an end has
//! the ending holder's generation plus one.

use crate::py::streams::unasked;
use crate::py::this_thread::DOING;

/// From this generation on, [`end`] runs the end inside [`unasked`].
const UNASKED: u32 = 16;

pub(super) fn now() -> u32 {
    DOING.with(|doing| doing.generation.get()).unwrap_or(0)
}

pub(super) fn end<R>(generation: u32, end: impl FnOnce() -> R) -> R {
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
