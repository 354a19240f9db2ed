//! A conversion: the holders of an array argument's memory during a call, each with its users. When a holder ends, the
//! producer's stream waits for that holder's users. At the call's end, the producer's stream waits for the users of the
//! remaining holders.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::consumer_side::ConsumerSide;

/// Each holder's users, by the holder's number. The converted array is holder 0.
#[derive(Debug, Default)]
pub(super) struct Conversion(Mutex<Uses>);

#[derive(Debug, Default)]
struct Uses {
    noted: Vec<(usize, ConsumerSide)>,
    next: usize,
    over: bool,
}

impl Conversion {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the record of users, and returns the users of each holder that has not ended. A second call returns
    /// nothing.
    pub(super) fn close(&self) -> Vec<(usize, ConsumerSide)> {
        let mut uses = self.uses();
        uses.over = true;
        std::mem::take(&mut uses.noted)
    }
}

#[derive(Debug)]
pub(super) struct ConversionMember {
    conversion: Arc<Conversion>,
    number: usize,
    pub(super) outer: Option<Box<Self>>,
}

impl ConversionMember {
    pub(super) fn new(
        conversion: &Arc<Conversion>,
        first: ConsumerSide,
        outer: Option<Box<Self>>,
    ) -> Self {
        let mut uses = conversion.uses();
        let number = uses.next;
        uses.next += 1;
        if !uses.over {
            uses.noted.push((number, first));
        }
        drop(uses);
        Self { conversion: Arc::clone(conversion), number, outer }
    }

    pub(super) fn join(&self, first: ConsumerSide, outer: Option<Box<Self>>) -> Self {
        Self::new(&self.conversion, first, outer)
    }

    /// `None` if the conversion is closed.
    pub(super) fn note<R>(&self, change: impl FnOnce(&mut ConsumerSide) -> R) -> Option<R> {
        let mut uses = self.conversion.uses();
        uses.noted.iter_mut().find(|(number, _)| *number == self.number).map(|(_, one)| change(one))
    }
}

impl Drop for ConversionMember {
    fn drop(&mut self) {
        let gone = {
            let mut uses = self.conversion.uses();
            let place = uses.noted.iter().position(|(number, _)| *number == self.number);
            place.map(|place| uses.noted.swap_remove(place))
        };
        drop(gone);
    }
}
