//! The holders of one array that a call was given: who works on its memory by any of them, for the call's end.
//!
//! The array, and all that is made of it, know the conversion that they come from, and others around it where such a
//! call makes another. Each notes there who works on the memory by it, until it ends, which makes an order of its own. At
//! the end of the call the producer's stream waits for those that are left; from then on nothing is noted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::used::Use;

/// What the holders of one array have noted, each by its number. The array itself is 0.
#[derive(Debug, Default)]
pub(super) struct Conversion(Mutex<Uses>);

#[derive(Debug, Default)]
struct Uses {
    noted: Vec<(usize, Use)>,
    next: usize,
    over: bool,
}

impl Conversion {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is noted; nothing is noted any more.
    pub(super) fn close(&self) -> Vec<(usize, Use)> {
        let mut uses = self.uses();
        uses.over = true;
        std::mem::take(&mut uses.noted)
    }
}

/// A holder of the array, as its conversion knows it.
#[derive(Debug)]
pub(super) struct Member {
    conversion: Arc<Conversion>,
    number: usize,
    /// The same in the conversion around this one.
    pub(super) outer: Option<Box<Self>>,
}

impl Member {
    pub(super) fn new(conversion: &Arc<Conversion>, first: Use, outer: Option<Box<Self>>) -> Self {
        let mut uses = conversion.uses();
        let number = uses.next;
        uses.next += 1;
        if !uses.over {
            uses.noted.push((number, first));
        }
        drop(uses);
        Self { conversion: Arc::clone(conversion), number, outer }
    }

    /// Another holder of the same array.
    pub(super) fn join(&self, first: Use, outer: Option<Box<Self>>) -> Self {
        Self::new(&self.conversion, first, outer)
    }

    /// Changes what is noted. What `change` returns is dropped with nothing locked.
    pub(super) fn note<R>(&self, change: impl FnOnce(&mut Use) -> R) -> Option<R> {
        let mut uses = self.conversion.uses();
        uses.noted.iter_mut().find(|(number, _)| *number == self.number).map(|(_, one)| change(one))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let gone = {
            let mut uses = self.conversion.uses();
            let place = uses.noted.iter().position(|(number, _)| *number == self.number);
            place.map(|place| uses.noted.swap_remove(place))
        };
        drop(gone);
    }
}
