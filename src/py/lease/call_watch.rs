//! When a call with an array argument returns, the producer's stream waits for the recorded streams that used the
//! memory during the call.

use std::iter::successors;
use std::sync::Arc;

use pyo3::prelude::*;

use super::consumer_side::{Consumer, ConsumerSide};
use super::conversion::{Conversion, ConversionMember, any_in_progress, in_progress};
use super::end::{EndContext, UnsettledEnd};
use super::held_memory::{HeldMemory, MemoryOwner};
use super::producer_side::ProducerSide;
use crate::descriptor::Descriptor;
use crate::driver::fork::Process;
use crate::error::Result;
use crate::lease::{Failure, Settlement};
use crate::order;
use crate::py::streams::{WaitReason, wait_for_all};

#[derive(Debug)]
pub(crate) struct CallWatch {
    end: EndContext,
    process: Process,
    producer_side: ProducerSide,
    conversion: Arc<Conversion>,
    _held: MemoryOwner,
}

impl CallWatch {
    /// Makes the producer's stream wait for the recorded users. In a forked child no stream waits.
    pub(crate) fn settle(self, py: Python<'_>, read: bool) -> Result<(), Failure<PyErr>> {
        let mut uses: Vec<ConsumerSide> = Vec::new();
        for (number, mut left) in self.conversion.close() {
            left.consumer = match left.consumer {
                Consumer::Unread if read && number == 0 => Consumer::Unnamed(Vec::new()),
                // Only the holder knows the stream: the producer named it after this watch began.
                Consumer::OnProducer(Some(known)) if self.producer_side.unnamed.is_some() => {
                    Consumer::On(known)
                }
                consumer => consumer,
            };
            let mut left = Some(left);
            for known in &mut uses {
                left = left.and_then(|left| known.merge(left));
            }
            uses.extend(left);
        }
        if !self.process.is_current() {
            return Ok(());
        }
        let mut failed = Ok(());
        for consumer_side in uses {
            let unsettled = UnsettledEnd {
                end: &self.end,
                producer_side: &self.producer_side,
                consumer_side: &consumer_side,
                user: None,
            };
            match unsettled.settle(py, &mut Vec::new()) {
                Ok(Settlement::Until(marks)) => order::forget(&self.end.driver, marks),
                Ok(_) => {}
                // Go on after an error: the orders of the remaining users must still be made.
                Err(error) => {
                    if matches!(error, Failure::Interrupted(_)) {
                        // Nobody tries again after a call, so the host waits, which asks nobody.
                        self.wait_for(py, &consumer_side);
                    }
                    failed = failed.and(Err(error));
                }
            }
        }
        failed
    }
}

impl CallWatch {
    /// Makes the host wait wherever `consumer_side` may work. Ignores an error: the interrupt is raised.
    #[cold]
    fn wait_for(&self, py: Python<'_>, consumer_side: &ConsumerSide) {
        let mut places = vec![consumer_side.at];
        for place in consumer_side.known().filter_map(|known| known.stream().1) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        for place in places {
            let _ = wait_for_all(py, "release", &self.end.driver, place, WaitReason::Interrupted);
        }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.conversion.end();
        drop(self.conversion.close());
    }
}

impl HeldMemory {
    /// Begins to record the users of the memory. Fails for a copy, and in a forked child.
    pub(crate) fn watch(&mut self, py: Python<'_>) -> Result<CallWatch> {
        let watch = CallWatch {
            end: EndContext { in_call: true, ..self.end() },
            process: self.process,
            producer_side: self.producer_side.clone_ref(py),
            conversion: Conversion::begin(&self.driver, &self.array),
            _held: self.share_owner(py)?,
        };
        let outer = self.conversion.take();
        let member =
            ConversionMember::new(&watch.conversion, self.consumer_side.clone_ref(py), outer);
        self.conversion = Some(Box::new(member));
        Ok(watch)
    }

    /// If the memory is an argument of a call in progress, records the holder's users for that call too: the function
    /// may have imported its own library's array of the memory. `exported` is a view's array; `None` for
    /// the holder's own.
    #[inline]
    pub(crate) fn join_calls(&mut self, py: Python<'_>, exported: Option<&Descriptor>) {
        if any_in_progress() {
            self.join_each(py, exported);
        }
    }

    #[cold]
    fn join_each(&mut self, py: Python<'_>, exported: Option<&Descriptor>) {
        for conversion in in_progress(&self.driver, exported.unwrap_or(&self.array)) {
            if !self.members().any(|member| member.is_of(&conversion)) {
                let outer = self.conversion.take();
                let first = self.consumer_side.clone_ref(py);
                self.conversion = Some(Box::new(ConversionMember::new(&conversion, first, outer)));
            }
        }
    }

    fn members(&self) -> impl Iterator<Item = &ConversionMember> {
        successors(self.conversion.as_deref(), |member| member.outer.as_deref())
    }

    /// Call this after the consumer has changed.
    #[inline]
    pub(super) fn note_use(&self, py: Python<'_>) {
        if self.conversion.is_some() {
            self.note_in_all(py);
        }
    }

    #[cold]
    fn note_in_all(&self, py: Python<'_>) {
        for member in self.members() {
            let now = self.consumer_side.clone_ref(py);
            drop(member.note(|noted| std::mem::replace(noted, now)));
        }
    }

    #[cold]
    pub(super) fn note_place(&self) {
        for member in self.members() {
            member.note(|noted| noted.at = self.consumer_side.at);
        }
    }

    #[cold]
    pub(super) fn bring(&self, py: Python<'_>, shared: &mut Self) {
        for member in self.members() {
            let outer = shared.conversion.take();
            shared.conversion =
                Some(Box::new(member.join(shared.consumer_side.clone_ref(py), outer)));
        }
    }
}
