//! The end of a call that an array was given to: the producer's stream waits for all who work on the memory by it.

use std::iter::successors;
use std::sync::Arc;

use pyo3::prelude::*;

use super::conversion::{Conversion, Member};
use super::end::{End, settle};
use super::holding::{Holding, Owner};
use super::home::Home;
use super::used::{Consumer, Use};
use crate::driver::fork::Process;
use crate::error::Result;
use crate::lease::{Failure, Settlement};
use crate::order;

/// A call's hold on an array that it was given, for the call's end.
#[derive(Debug)]
pub(crate) struct Watch {
    end: End,
    process: Process,
    home: Home,
    conversion: Arc<Conversion>,
    /// The memory.
    _held: Owner,
}

impl Watch {
    /// Makes the producer's stream wait for everybody who works on the memory now. The array is `read` where it
    /// does not say itself who reads it.
    pub(crate) fn settle(self, py: Python<'_>, read: bool) -> Result<(), Failure<PyErr>> {
        let mut uses: Vec<Use> = Vec::new();
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
        for used in uses {
            // Where the memory itself has to stay, those who hold it see to that at their own ends.
            match settle(py, &self.end, &self.home, &used, None, &mut Vec::new()) {
                Ok(Settlement::Until(marks)) => order::forget(&self.end.driver, marks),
                Ok(_) => {}
                // The others are ordered all the same.
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.conversion.close());
    }
}

impl Holding {
    /// Watches who works on the memory by this holder, and by those that are made of it.
    pub(crate) fn watch(&mut self, py: Python<'_>) -> Result<Watch> {
        let watch = Watch {
            end: End { in_call: true, ..self.end() },
            process: self.process,
            home: self.home.clone_ref(py),
            conversion: Arc::default(),
            _held: self.share_owner(py)?,
        };
        let outer = self.conversion.take();
        let member = Member::new(&watch.conversion, self.used.clone_ref(py), outer);
        self.conversion = Some(Box::new(member));
        Ok(watch)
    }

    /// It, in the conversions that it comes from.
    fn members(&self) -> impl Iterator<Item = &Member> {
        successors(self.conversion.as_deref(), |member| member.outer.as_deref())
    }

    /// Notes in these who works on the memory from here on.
    #[inline]
    pub(super) fn note_use(&self, py: Python<'_>) {
        if self.conversion.is_some() {
            self.note_in_all(py);
        }
    }

    #[cold]
    fn note_in_all(&self, py: Python<'_>) {
        for member in self.members() {
            let now = self.used.clone_ref(py);
            drop(member.note(|noted| std::mem::replace(noted, now)));
        }
    }

    /// Notes there where the consumers work.
    #[cold]
    pub(super) fn note_place(&self) {
        for member in self.members() {
            member.note(|noted| noted.at = self.used.at);
        }
    }

    /// Another holder of the same comes from them too.
    #[cold]
    pub(super) fn bring(&self, py: Python<'_>, shared: &mut Self) {
        for member in self.members() {
            let outer = shared.conversion.take();
            shared.conversion = Some(Box::new(member.join(shared.used.clone_ref(py), outer)));
        }
    }
}
