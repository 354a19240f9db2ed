//! The lease: one state machine for the end of everything that holds a producer's memory.
//!
//! A view holds a [`Lease`], and so does every managed tensor, copy or borrowed tensor that it hands out.
//! Until its end it is leased. From then on it has a [`State`]:
//!
//! ```text
//!            end()            no order is left to make
//! leased ─────────▶ due ──────────────────────────────────────────▶ given back
//!                   ▲ │                                                 ▲
//!                   │ ├─ the producer's stream is unknown ──▶ waiting ──┘ the consumer's work is done
//!                   │ │
//!                   │ └─ the driver failed, or a capture is in the way ─▶ to retry
//!                   └───────────────────────── a later call ────────────────┘
//!
//! due, waiting or to retry ── the context is gone or broken ─▶ abandoned
//! ```
//!
//! Nothing here knows Python, streams or locks: a [`Holder`] has the references, makes the orders
//! ([`Parties::settle`]) and is dropped at the end. The end of a lease takes the holder out under the lock
//! and drops it outside, since a drop may run anything: a foreign deleter, a destructor that calls back here.
//!
//! `release()` makes the orders first, between [`Lease::begin`] and [`Lease::end`]; if one fails, the lease is as
//! before. Until then the holder stays, for threads that release at the same time. They do not wait for each other,
//! since making an order may run anything, too: each makes the orders, and the first to finish ends the lease.

mod decide;
mod ending;
mod parked;
mod parties;
pub mod plan;
mod queue;

#[cfg(all(loom, test))]
mod model;

use std::fmt;

pub use self::ending::Ending;
pub use self::parked::{Most, Parked, Turn, WordHasher};
pub use self::parties::{Parties, Streams};
pub use self::queue::Queue;
use self::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};
use crate::error::Error;

/// What the state is made of: `std`'s, or in the model those whose every interleaving loom tries.
mod sync {
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize};
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::atomic::Ordering;
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize};
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::{PoisonError, TryLockError};
}

/// What holds memory: the references that are dropped at the end, and what only they know.
pub trait Holder: Send {
    /// The proof that the references may be used: the interpreter's lock, if they are Python's.
    type Lock<'l>: Copy;
    /// The consumer's work, if the memory must wait for it.
    type Mark: Send;
    /// Why the holder could not tell: an interrupt.
    type Interrupt;

    /// Makes the orders that the end needs.
    fn settle(
        &mut self,
        lock: Self::Lock<'_>,
    ) -> Result<Settlement<Self::Mark>, Failure<Self::Interrupt>>;

    /// Whether the consumer is done. Does not wait.
    fn is_done(&self, mark: &mut Self::Mark) -> Result<bool, Error>;
}

impl<H: Holder> Holder for Box<H> {
    type Lock<'l> = H::Lock<'l>;
    type Mark = H::Mark;
    type Interrupt = H::Interrupt;

    fn settle(&mut self, lock: H::Lock<'_>) -> Result<Settlement<H::Mark>, Failure<H::Interrupt>> {
        (**self).settle(lock)
    }

    fn is_done(&self, mark: &mut H::Mark) -> Result<bool, Error> {
        (**self).is_done(mark)
    }
}

/// What an end that was settled waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement<M> {
    /// Nothing.
    Done,
    /// The producer's stream is unknown: the references stay until the consumer is done.
    Until(M),
    /// The same, and that cannot be marked just now.
    Later,
}

/// Why an end could not be settled.
#[derive(Debug)]
pub enum Failure<I> {
    /// The driver failed, or a graph capture is in the way.
    Failed(Error),
    /// The one that was asked for a stream raised what is no answer.
    Interrupted(I),
}

impl<I> From<Error> for Failure<I> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Where an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State<M = ()> {
    /// Orders are to be made.
    Due,
    /// They are made; the references stay until the consumer is done.
    Waiting(M),
    /// They could not be made just then.
    ToRetry,
    /// All is done: the references go.
    GivenBack,
    /// No order can be made any more, and the memory is gone with its context: the references go.
    Abandoned,
}

impl<M> From<Settlement<M>> for State<M> {
    fn from(settled: Settlement<M>) -> Self {
        match settled {
            Settlement::Done => Self::GivenBack,
            Settlement::Until(mark) => Self::Waiting(mark),
            Settlement::Later => Self::ToRetry,
        }
    }
}

/// What holds memory until it is ended, once.
pub struct Lease<H> {
    place: Mutex<Place<H>>,
    /// Whether it was ended, or is being ended: what most callers ask, without the lock.
    ended: AtomicBool,
}

struct Place<H> {
    holder: Option<H>,
    /// How many have begun to end it, and are not done.
    enders: usize,
}

impl<H> Lease<H> {
    /// A lease that `holder` holds.
    pub fn new(holder: H) -> Self {
        let place = Place { holder: Some(holder), enders: 0 };
        Self { place: Mutex::new(place), ended: AtomicBool::new(false) }
    }

    fn place(&self) -> MutexGuard<'_, Place<H>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the holder, unless the lease was ended, or is being ended. `look` must not come back to this lease.
    pub fn with<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        let mut place = self.place();
        if place.enders == 0 { place.holder.as_mut().map(look) } else { None }
    }

    /// Looks at the holder where waiting is not allowed, as in a garbage collector's visit: `None` also where
    /// another thread is looking.
    pub fn try_with<R>(&self, look: impl FnOnce(&H) -> R) -> Option<R> {
        match self.place.try_lock() {
            Ok(place) => place.holder.as_ref().map(look),
            Err(TryLockError::Poisoned(place)) => place.into_inner().holder.as_ref().map(look),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether it is still leased.
    pub fn is_leased(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Begins an end, to make its orders: `look` takes from the holder what they need. The holder stays for other
    /// threads that begin to end it; no one else looks at it until [`Self::stop`]. `None` if it was ended.
    pub fn begin<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        let mut place = self.place();
        let taken = place.holder.as_mut().map(look)?;
        place.enders += 1;
        self.ended.store(true, Ordering::Release);
        Some(taken)
    }

    /// Changes the holder between [`Self::begin`] and [`Self::stop`], unless it was ended.
    pub fn amend(&self, change: impl FnOnce(&mut H)) {
        if let Some(holder) = &mut self.place().holder {
            change(holder);
        }
    }

    /// Is done with an end that was begun. If no thread has ended the lease or is about to, it is leased again.
    pub fn stop(&self) {
        let mut place = self.place();
        place.enders = place.enders.saturating_sub(1);
        let is_leased = place.enders == 0 && place.holder.is_some();
        self.ended.store(!is_leased, Ordering::Release);
    }

    /// Ends it where no other thread can reach it any more.
    pub fn end_unshared(&mut self) -> Option<H> {
        self.place.get_mut().unwrap_or_else(PoisonError::into_inner).holder.take()
    }

    /// Ends it: the first call returns the holder, every later one nothing.
    pub fn end(&self) -> Option<H> {
        let mut place = self.place();
        self.ended.store(true, Ordering::Release);
        place.holder.take()
    }
}

impl<H> fmt::Debug for Lease<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_leased() { "Lease(leased)" } else { "Lease(ended)" })
    }
}
