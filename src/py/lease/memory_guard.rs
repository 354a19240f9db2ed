//! Ends held memory.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use super::held_memory::{HeldMemory, MemoryGuard};
use super::pending_ends::{self, QueuedEnd, flat, run};
use crate::lease::{Ending, Settlement};
use crate::order::Mark;
use crate::py::interpreter::{ending, enter};
use crate::py::observe::{CallSpan, EndOutcome};

impl MemoryGuard {
    /// The caller must hold the interpreter's lock.
    #[inline(always)]
    pub(crate) fn end(mut self) {
        if let Some(held) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(held)), CallSpan::begin());
            ending(|py| pending_ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }

    /// Ends the held memory without making orders: `settled` says which work the end must still wait for.
    pub(crate) fn settled(
        mut self,
        py: Python<'_>,
        settled: Settlement<Vec<Mark>>,
        span: CallSpan,
    ) {
        if let Some(held) = self.0.take() {
            let next = QueuedEnd::of(Ending::settled(held, settled), span);
            flat(py, || run(py, &mut ManuallyDrop::new(Some(next))));
        }
    }
}

impl Drop for MemoryGuard {
    /// If this thread cannot enter the interpreter, the memory leaks: a foreign deleter can need the interpreter.
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(held)), CallSpan::begin());
            enter(|py| pending_ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }
}

#[inline]
fn tell_lost(left: Option<&HeldMemory>, span: CallSpan) {
    if let Some(held) = left {
        span.released(held.tag, EndOutcome::Lost);
    }
}
