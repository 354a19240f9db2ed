//! A conversion: the holders of an array argument, and the users that work on its memory through each holder.
//!
//! The array and every holder made from it belong to its conversion; in nested calls also to the outer conversions.
//! Each holder records here which users work on the memory through that holder. A holder that ends makes the producer's
//! stream wait for its own users, and removes its record. At the call's end the conversion closes, and the producer's
//! stream waits for the remaining users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::consumer_side::ConsumerSide;

/// Each holder's users, by the holder's number. The array itself is holder 0.
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

    /// Closes the conversion, and returns the users of each holder that has not ended, with the holder's number. What
    /// holders record later is ignored.
    pub(super) fn close(&self) -> Vec<(usize, ConsumerSide)> {
        let mut uses = self.uses();
        uses.over = true;
        std::mem::take(&mut uses.noted)
    }
}

/// One holder's entry in a conversion: the conversion, and the holder's number there, under which its users are noted.
#[derive(Debug)]
pub(super) struct ConversionMember {
    conversion: Arc<Conversion>,
    number: usize,
    /// The same holder's entry in the conversion of another call, if calls nest: the outer or the inner call.
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

    /// Adds another holder of the same array.
    pub(super) fn join(&self, first: ConsumerSide, outer: Option<Box<Self>>) -> Self {
        Self::new(&self.conversion, first, outer)
    }

    /// Runs `change` on this holder's record; `None` if the conversion is closed. The lock is released when this
    /// returns, so the caller can drop the result safely.
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
