//! The end of a call with an array argument: the producer's stream waits for all work on the memory that the call
//! started.

use std::iter::successors;
use std::sync::Arc;

use pyo3::prelude::*;

use super::consumer_side::{Consumer, ConsumerSide};
use super::conversion::{Conversion, Member};
use super::end::{EndContext, settle};
use super::held_memory::{HeldMemory, Owner};
use super::producer_side::ProducerSide;
use crate::driver::fork::Process;
use crate::error::Result;
use crate::lease::{Failure, Settlement};
use crate::order;

/// A call's hold on an array argument, until the call ends.
#[derive(Debug)]
pub(crate) struct CallWatch {
    end: EndContext,
    process: Process,
    producer_side: ProducerSide,
    conversion: Arc<Conversion>,
    /// Keeps the memory.
    _held: Owner,
}

impl CallWatch {
    /// Makes the producer's stream wait for all users that work on the memory now. If `read`, an array that cannot tell
    /// who reads it counts as read.
    pub(crate) fn settle(self, py: Python<'_>, read: bool) -> Result<(), Failure<PyErr>> {
        let mut uses: Vec<ConsumerSide> = Vec::new();
        for (number, mut left) in self.conversion.close() {
            if read && number == 0 && matches!(left.consumer, Consumer::Unread) {
                left.consumer = Consumer::Unnamed(Vec::new());
            }
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
            // If the memory itself must stay, its holders keep it at their own ends.
            match settle(py, &self.end, &self.producer_side, &consumer_side, None, &mut Vec::new())
            {
                Ok(Settlement::Until(marks)) => order::forget(&self.end.driver, marks),
                Ok(_) => {}
                // The orders for the remaining users are made nevertheless.
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        drop(self.conversion.close());
    }
}

impl HeldMemory {
    /// Watches the users that work on the memory through this holder, and through holders made from it.
    pub(crate) fn watch(&mut self, py: Python<'_>) -> Result<CallWatch> {
        let watch = CallWatch {
            end: EndContext { in_call: true, ..self.end() },
            process: self.process,
            producer_side: self.producer_side.clone_ref(py),
            conversion: Arc::default(),
            _held: self.share_owner(py)?,
        };
        let outer = self.conversion.take();
        let member = Member::new(&watch.conversion, self.consumer_side.clone_ref(py), outer);
        self.conversion = Some(Box::new(member));
        Ok(watch)
    }

    /// This holder's places in its conversions.
    fn members(&self) -> impl Iterator<Item = &Member> {
        successors(self.conversion.as_deref(), |member| member.outer.as_deref())
    }

    /// Records in the holder's conversions the consumer that works on the memory from now on.
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

    /// Records in the holder's conversions where the consumers work.
    #[cold]
    pub(super) fn note_place(&self) {
        for member in self.members() {
            member.note(|noted| noted.at = self.consumer_side.at);
        }
    }

    /// Makes another holder of the same memory a member of this holder's conversions.
    #[cold]
    pub(super) fn bring(&self, py: Python<'_>, shared: &mut Self) {
        for member in self.members() {
            let outer = shared.conversion.take();
            shared.conversion =
                Some(Box::new(member.join(shared.consumer_side.clone_ref(py), outer)));
        }
    }
}
