//! The orders of an end that others may make at the same time.

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

/// What the orders of a holder's end need of it, while the holder stays where others find it. The memory is not
/// held by this.
#[derive(Debug)]
pub(crate) struct Orders {
    end: End,
    process: Process,
    home: Home,
    used: Use,
    found: Vec<KnownStream>,
    /// The owner of the memory asks it, as the holder does.
    _object: Py<PyAny>,
}

impl Orders {
    /// What they need where there is one to be made: for the consumer, or for the user of `also`.
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

    /// The same for the garbage collector, which found the view, of memory that nothing but a Python object keeps.
    pub(crate) fn for_collector(holding: &mut Holding, py: Python<'_>) -> Option<Self> {
        let mut orders = Self::of(holding, py, false)?;
        orders.end.collected = true;
        Some(orders)
    }

    /// Makes them, as [`Holding::settle_with`] does.
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

    /// Tells the holder of the streams that were found where the orders failed: those are waited for at its end, too.
    pub(crate) fn tell(self, py: Python<'_>, holding: &mut Holding) {
        for known in self.found {
            drop(holding.note(py, known));
        }
    }
}

/// Whether no stream waits at the end of `holding`, as is known without a question.
fn has_nothing_to_do(holding: &Holding) -> bool {
    let next = plan::next(&holding.sides(), &Answers::default());
    matches!(next, Next::Do(Plan::Nothing(_)))
}
