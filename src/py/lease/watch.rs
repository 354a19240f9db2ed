//! The end of a call that an array was given to: the producer's stream waits for all who work on the memory by it.

use std::iter::successors;
use std::sync::Arc;

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::conversion::{Conversion, Member, Use};
use super::holding::Holding;
use crate::error::Result;
use crate::lease::{Failure, Settlement};
use crate::order;
use crate::stream::Alive;

/// A call's hold on an array that it was given, for the call's end.
#[derive(Debug)]
pub(crate) struct Watch {
    holding: Box<Holding>,
    conversion: Arc<Conversion>,
}

impl Watch {
    /// Makes the producer's stream wait for everybody who works on the memory now. The array is `read` where it
    /// does not say itself who reads it.
    pub(crate) fn settle(mut self, py: Python<'_>, read: bool) -> Result<(), Failure<PyErr>> {
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
        let mut failed = Ok(());
        for Use { at, lent, consumer } in uses {
            let holding = &mut *self.holding;
            (holding.at, holding.lent, holding.consumer) = (at, lent, consumer);
            // Whoever read it may be on any blocking stream, and whoever is given the memory next on another.
            let anywhere = matches!(holding.consumer, Consumer::Unnamed(_))
                && holding.is_producer(Alive::standing_in(at));
            // Where the memory itself has to stay, those who hold it see to that at their own ends.
            match holding.settle_with(py, anywhere.then(|| Alive::standing_in(at))) {
                Ok(Settlement::Until(marks)) => order::forget(&holding.driver, marks),
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
        let holding = self.share_with_consumer(py)?;
        let conversion = Arc::default();
        let outer = self.conversion.take();
        let member = Member::new(&conversion, self.in_use(py), outer);
        self.conversion = Some(Box::new(member));
        Ok(Watch { holding, conversion })
    }

    /// Who works on the memory by this holder.
    fn in_use(&self, py: Python<'_>) -> Use {
        Use { at: self.at, lent: self.lent, consumer: self.consumer.clone_ref(py) }
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
            let now = self.in_use(py);
            drop(member.note(|noted| std::mem::replace(noted, now)));
        }
    }

    /// Notes there where the consumers work.
    #[cold]
    pub(super) fn note_place(&self) {
        for member in self.members() {
            member.note(|noted| noted.at = self.at);
        }
    }

    /// Another holder of the same comes from them too.
    #[cold]
    pub(super) fn bring(&self, py: Python<'_>, shared: &mut Self) {
        for member in self.members() {
            let outer = shared.conversion.take();
            shared.conversion = Some(Box::new(member.join(shared.in_use(py), outer)));
        }
    }
}
