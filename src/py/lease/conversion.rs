//! A conversion: the holders of an array argument's memory during a call, each with its users. When a holder ends, the
//! producer's stream waits for that holder's users. At the call's end, the producer's stream waits for the users of the
//! remaining holders. An import of the same memory during the call joins as a further holder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::consumer_side::ConsumerSide;
use crate::descriptor::Descriptor;
use crate::driver::Handle;

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

/// An array argument of a call in progress.
struct Argument {
    conversion: Arc<Conversion>,
    driver: Handle,
    start: u64,
    length: u64,
}

struct InProgress {
    arguments: Mutex<Vec<Argument>>,
    count: AtomicUsize,
}

static IN_PROGRESS: InProgress =
    InProgress { arguments: Mutex::new(Vec::new()), count: AtomicUsize::new(0) };

fn arguments() -> MutexGuard<'static, Vec<Argument>> {
    IN_PROGRESS.arguments.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether any call with an array argument is in progress.
#[inline]
pub(super) fn any_in_progress() -> bool {
    IN_PROGRESS.count.load(Ordering::Acquire) != 0
}

/// The conversions in progress whose memory overlaps with that of `array`.
#[cold]
pub(super) fn in_progress(driver: &Handle, array: &Descriptor) -> SmallVec<[Arc<Conversion>; 2]> {
    let is_of = |argument: &&Argument| {
        array.overlaps(argument.start, argument.length) && argument.driver.is_same(driver)
    };
    arguments().iter().filter(is_of).map(|argument| Arc::clone(&argument.conversion)).collect()
}

impl Conversion {
    pub(super) fn begin(driver: &Handle, array: &Descriptor) -> Arc<Self> {
        let (conversion, driver, (start, length)) =
            (Arc::<Self>::default(), driver.clone(), array.span());
        let argument = Argument { conversion: Arc::clone(&conversion), driver, start, length };
        arguments().push(argument);
        IN_PROGRESS.count.fetch_add(1, Ordering::Release);
        conversion
    }

    /// A second call does nothing.
    pub(super) fn end(&self) {
        let mut arguments = arguments();
        let is_own = |one: &Argument| std::ptr::eq(Arc::as_ptr(&one.conversion), self);
        let place = arguments.iter().position(is_own);
        let gone = place.map(|place| arguments.swap_remove(place));
        drop(arguments);
        if gone.is_some() {
            IN_PROGRESS.count.fetch_sub(1, Ordering::Release);
        }
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

    pub(super) fn is_of(&self, conversion: &Arc<Conversion>) -> bool {
        Arc::ptr_eq(&self.conversion, conversion)
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
