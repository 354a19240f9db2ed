//! How a tenant ends, from whatever thread and state.

use pyo3::prelude::*;

use super::ends::{Next, flat, is_under_way, look, queued, run};
use super::holding::{Holding, Tenant};
use crate::lease::{Ending, Settlement};
use crate::order::Mark;
use crate::py::interpreter::{ending, enter};
use crate::py::observe::{CallSpan, Outcome};

impl Tenant {
    /// Ends with the object of ours that it is in, where the interpreter's lock is held.
    pub(crate) fn end(mut self) {
        if let Some(holding) = self.0.take() {
            end(holding, |call| ending(call));
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
            let ending = Ending::settled(holding, settled);
            flat(py, || run(py, Next::new(ending, span)));
        }
    }
}

impl Drop for Tenant {
    /// Ends with the interpreter's lock, from any thread. If the interpreter has ended, or is ending, nothing
    /// happens: a leak at the end of a process does no harm, a foreign deleter without its interpreter may.
    fn drop(&mut self) {
        if let Some(holding) = self.0.take() {
            end(holding, |call| enter(call));
        }
    }
}

/// Ends what is held; `enter` takes the interpreter's lock, unless there is no interpreter any more.
fn end(holding: Box<Holding>, enter: impl FnOnce(&mut dyn FnMut(Python<'_>)) -> Option<()>) {
    let span = CallSpan::begin();
    let mut next = Some(Next::new(Ending::new(holding), span));
    enter(&mut |py| {
        if is_under_way() {
            next = next.take().and_then(|next| queued(py, next));
        } else {
            look(py);
        }
        if let Some(first) = next.take() {
            flat(py, || run(py, first));
        }
    });
    if let Some(next) = next {
        next.span.released(next.ending.holder().tag, Outcome::Lost);
        std::mem::forget(next.ending);
    }
}
