//! How a tenant ends, from whatever thread and state.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use super::ends::{self, Next, flat, run};
use super::holding::{Holding, Tenant};
use crate::lease::{Ending, Settlement};
use crate::order::Mark;
use crate::py::interpreter::{ending, enter};
use crate::py::observe::{CallSpan, Outcome};

impl Tenant {
    /// Ends with the object of ours that it is in, where the interpreter's lock is held.
    #[inline(always)]
    pub(crate) fn end(mut self) {
        if let Some(holding) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(holding)), CallSpan::begin());
            ending(|py| ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }

    /// Lets go where the orders are made already.
    pub(crate) fn settled(
        mut self,
        py: Python<'_>,
        settled: Settlement<Vec<Mark>>,
        span: CallSpan,
    ) {
        if let Some(holding) = self.0.take() {
            let next = Next::of(Ending::settled(holding, settled), span);
            flat(py, || run(py, &mut ManuallyDrop::new(Some(next))));
        }
    }
}

impl Drop for Tenant {
    /// Ends with the interpreter's lock, from any thread. If the interpreter has ended, or is ending, nothing
    /// happens: a leak at the end of a process does no harm, a foreign deleter without its interpreter may.
    fn drop(&mut self) {
        if let Some(holding) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(holding)), CallSpan::begin());
            enter(|py| ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }
}

/// What could not be ended stays where it is.
#[inline]
fn tell_lost(left: Option<&Holding>, span: CallSpan) {
    if let Some(holding) = left {
        span.released(holding.tag, Outcome::Lost);
    }
}
