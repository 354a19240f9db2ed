//! Makes the orders of an end while other threads can still reach the holder.

use pyo3::prelude::*;

use super::carry_out::{EndContext, UnsettledEnd, in_own_process};
use crate::driver::fork::Process;
use crate::lease::end_rules::{self, Answers, Next, Plan};
use crate::lease::{Failure, Settlement};
use crate::order::Mark;
use crate::py::lease::consumer_side::ConsumerSide;
use crate::py::lease::held_memory::{HeldMemory, MemoryOwner};
use crate::py::lease::producer_side::ProducerSide;
use crate::py::streams::KnownStream;
use crate::stream::Alive;

/// A copy of what [`Self::make`] needs at a lease's end. The [`HeldMemory`] itself stays in the lease.
#[derive(Debug)]
pub(crate) struct Orders {
    end: EndContext,
    process: Process,
    producer_side: ProducerSide,
    consumer_side: ConsumerSide,
    found: Vec<KnownStream>,
    _object: Py<PyAny>,
}

impl Orders {
    /// `None` for a copy. `None` also if `names_user` is false and recorded facts show that no order is needed.
    pub(crate) fn of(held: &mut HeldMemory, py: Python<'_>, names_user: bool) -> Option<Self> {
        held.find_users();
        match &held.owner {
            MemoryOwner::Array(object, _) if names_user || !has_nothing_to_do(held) => Some(Self {
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

    pub(crate) fn for_collector(held: &mut HeldMemory, py: Python<'_>) -> Option<Self> {
        let mut orders = Self::of(held, py, false)?;
        orders.end.collected = true;
        Some(orders)
    }

    /// In a forked child, makes no order.
    pub(crate) fn make(
        &mut self,
        py: Python<'_>,
        user: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        let unsettled = UnsettledEnd {
            end: &self.end,
            producer_side: &self.producer_side,
            consumer_side: &self.consumer_side,
            user,
        };
        in_own_process(self.process, || unsettled.settle(py, &mut self.found))
    }

    /// Call this if [`Self::make`] failed. For a consumer that named no stream, records the streams that `make` found.
    pub(crate) fn tell(self, py: Python<'_>, held: &mut HeldMemory) {
        for known in self.found {
            drop(held.note(py, known));
        }
    }
}

fn has_nothing_to_do(held: &HeldMemory) -> bool {
    let next = end_rules::next(&held.sides(), &Answers::default());
    matches!(next, Next::Do(Plan::Nothing(_)))
}
