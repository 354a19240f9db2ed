//! How a tenant ends, from any thread and in any state of the interpreter.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use super::ends::{self, Next, flat, run};
use super::holding::{Holding, Tenant};
use crate::lease::{Ending, Settlement};
use crate::order::Mark;
use crate::py::interpreter::{ending, enter};
use crate::py::observe::{CallSpan, Outcome};

impl Tenant {
    /// Ends the tenant together with the bridge's object that holds it. The caller has the interpreter's lock.
    #[inline(always)]
    pub(crate) fn end(mut self) {
        if let Some(holding) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(holding)), CallSpan::begin());
            ending(|py| ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }

    /// Ends a tenant whose orders are already made.
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
    /// Takes the interpreter's lock and ends the tenant, from any thread. If the interpreter has ended, or is ending,
    /// the memory leaks: a leak at the end of a process is harmless, a foreign deleter without its interpreter may not
    /// be.
    fn drop(&mut self) {
        if let Some(holding) = self.0.take() {
            let (mut place, span) = (ManuallyDrop::new(Some(holding)), CallSpan::begin());
            enter(|py| ends::end(py, &mut place, span));
            tell_lost(place.as_deref(), span);
        }
    }
}

/// Reports a holder whose end failed: it stays where it is.
#[inline]
fn tell_lost(left: Option<&Holding>, span: CallSpan) {
    if let Some(holding) = left {
        span.released(holding.tag, Outcome::Lost);
    }
}
