//! Makes the orders of an end while other threads can still reach the holder.

use pyo3::prelude::*;

use super::settle::{End, settle};
use crate::driver::fork::Process;
use crate::lease::plan::{self, Answers, Next, Plan};
use crate::lease::{Failure, Settlement};
use crate::order::Mark;
use crate::py::lease::holding::{Holding, Owner};
use crate::py::lease::home::Home;
use crate::py::lease::used::Use;
use crate::py::streams::KnownStream;
use crate::stream::Alive;

/// What an end's orders need of the holder, so that the holder stays in place. This keeps the object, not its managed
/// tensor.
#[derive(Debug)]
pub(crate) struct Orders {
    end: End,
    process: Process,
    home: Home,
    used: Use,
    found: Vec<KnownStream>,
    /// Keeps the object alive, as the holder does.
    _object: Py<PyAny>,
}

impl Orders {
    /// The orders, if any is needed: for the consumer, or for another user (`also`).
    pub(crate) fn of(holding: &mut Holding, py: Python<'_>, also: bool) -> Option<Self> {
        holding.find_users();
        match &holding.held {
            Owner::Array(object, _) if also || !has_nothing_to_do(holding) => Some(Self {
                end: End { in_call: false, ..holding.end() },
                process: holding.process,
                home: holding.home.clone_ref(py),
                used: holding.used.clone_ref(py),
                found: Vec::new(),
                _object: object.clone_ref(py),
            }),
            _ => None,
        }
    }

    /// The orders when the garbage collector found the view and only a Python object keeps the memory.
    pub(crate) fn for_collector(holding: &mut Holding, py: Python<'_>) -> Option<Self> {
        let mut orders = Self::of(holding, py, false)?;
        orders.end.collected = true;
        Some(orders)
    }

    /// Makes the orders, as [`Holding::settle_with`] does.
    pub(crate) fn make(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        if !self.process.is_current() {
            return Ok(Settlement::Done);
        }
        settle(py, &self.end, &self.home, &self.used, also, &mut self.found)
    }

    /// If the orders failed, tells the holder which streams were found: its end waits for them, too.
    pub(crate) fn tell(self, py: Python<'_>, holding: &mut Holding) {
        for known in self.found {
            drop(holding.note(py, known));
        }
    }
}

/// Whether no stream has to wait, as far as is known without a question.
fn has_nothing_to_do(holding: &Holding) -> bool {
    let next = plan::next(&holding.sides(), &Answers::default());
    matches!(next, Next::Do(Plan::Nothing(_)))
}
