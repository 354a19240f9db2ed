//! Makes the orders of an end while other threads can still reach the holder.

use pyo3::prelude::*;

use super::carry_out::{EndContext, settle};
use crate::driver::fork::Process;
use crate::lease::end_rules::{self, Answers, Next, Plan};
use crate::lease::{Failure, Settlement};
use crate::order::Mark;
use crate::py::lease::consumer_side::ConsumerSide;
use crate::py::lease::held_memory::{HeldMemory, Owner};
use crate::py::lease::producer_side::ProducerSide;
use crate::py::streams::KnownStream;
use crate::stream::Alive;

/// The parts of the holder that an end's orders need, so that the holder stays in place. This keeps the object, not its
/// managed tensor.
#[derive(Debug)]
pub(crate) struct Orders {
    end: EndContext,
    process: Process,
    producer_side: ProducerSide,
    consumer_side: ConsumerSide,
    found: Vec<KnownStream>,
    /// Keeps the object alive, as the holder does.
    _object: Py<PyAny>,
}

impl Orders {
    /// The orders, if any is needed: for the consumer, or for another user (`user`).
    pub(crate) fn of(held: &mut HeldMemory, py: Python<'_>, names_user: bool) -> Option<Self> {
        held.find_users();
        match &held.owner {
            Owner::Array(object, _) if names_user || !has_nothing_to_do(held) => Some(Self {
                end: EndContext { in_call: false, ..held.end() },
                process: held.process,
                producer_side: held.producer_side.clone_ref(py),
                consumer_side: held.consumer_side.clone_ref(py),
                found: Vec::new(),
                _object: object.clone_ref(py),
            }),
            _ => None,
        }
    }

    /// The orders when the garbage collector found the view and only a Python object keeps the memory.
    pub(crate) fn for_collector(held: &mut HeldMemory, py: Python<'_>) -> Option<Self> {
        let mut orders = Self::of(held, py, false)?;
        orders.end.collected = true;
        Some(orders)
    }

    /// Makes the orders, as [`HeldMemory::settle_with`] does.
    pub(crate) fn make(
        &mut self,
        py: Python<'_>,
        user: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        if !self.process.is_current() {
            return Ok(Settlement::Done);
        }
        settle(py, &self.end, &self.producer_side, &self.consumer_side, user, &mut self.found)
    }

    /// If the orders failed, adds the found streams to the holder: its end waits for them, too.
    pub(crate) fn tell(self, py: Python<'_>, held: &mut HeldMemory) {
        for known in self.found {
            drop(held.note(py, known));
        }
    }
}

/// Whether no stream has to wait, by the facts that need no call of Python or the driver.
fn has_nothing_to_do(held: &HeldMemory) -> bool {
    let next = end_rules::next(&held.sides(), &Answers::default());
    matches!(next, Next::Do(Plan::Nothing(_)))
}
