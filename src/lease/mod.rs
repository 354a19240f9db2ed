//! Leases: one state machine for giving a producer's memory back, whatever held it.
//!
//! A view has a [`Lease`], and so has an array that Rust or C code imports. The memory is leased until the lease ends.
//! A managed tensor has no [`Lease`]: its deleter ends its holder. Every end has an [`EndState`]:
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
//! due, waiting or to retry ── a retry is useless ─▶ abandoned
//! ```
//!
//! The lease knows nothing of Python or streams. A [`Holder`] keeps the references and makes the streams wait
//! ([`Parties::settle`]). Ending a lease takes the holder out under the lease's lock. The caller drops the holder after
//! the lock is released: a drop may run arbitrary code, such as a foreign deleter, or a destructor that uses this
//! lease.
//!
//! `release()` makes the streams wait first, between [`Lease::begin`] and [`Lease::end`]. If a wait cannot be made,
//! the memory stays leased. Meanwhile the holder stays in the lease, for other threads that release at the same time.
//! Threads do not wait for each other, since making streams wait may run arbitrary code too. Each thread makes the
//! streams wait, and the first thread to finish ends the lease.

pub mod end_rules;
mod end_state;
mod end_streams;
mod parked;
mod parties;
mod queue;

#[cfg(all(loom, test))]
mod model;

use std::fmt;

pub use self::end_state::Ending;
pub use self::parked::{Most, Parked, Turn, WordHasher};
pub use self::parties::{Parties, Streams};
pub use self::queue::Queue;
use self::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};
use crate::error::Error;

/// Mutexes and atomics: from `std`, or in the model from loom, which tries every interleaving.
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

/// Keeps memory alive. It has the references that are dropped at the end of the lease, and makes the waits of that end.
pub trait Holder: Send {
    /// What a caller must hold to use the references: for Python objects, the interpreter's lock.
    type Lock<'l>: Copy;
    /// What tells later whether the consumer's work is done.
    type Mark: Send;
    /// The exception that stops an end, such as `KeyboardInterrupt` from an object that was asked for its stream.
    type Interrupt;

    /// Makes the streams wait that must wait when the lease ends, and returns whether the memory must be kept for
    /// longer.
    fn settle(
        &mut self,
        lock: Self::Lock<'_>,
    ) -> Result<Settlement<Self::Mark>, Failure<Self::Interrupt>>;

    /// Whether the consumer's work, which `mark` marks, is done. Does not wait.
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

/// What the memory must still wait for once the orders of an end are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement<M> {
    /// Nothing.
    Done,
    /// The consumer's work: the producer's stream is unknown, so the references stay until that work is done.
    Until(M),
    /// The consumer's work, but a capture forbids a mark now. The end is tried again, with its orders.
    Later,
}

impl<M> Settlement<M> {
    /// Whether the orders of the end are made, so that a holder may free memory of its own. If not, the end is tried
    /// again, and work that is still to come may use the memory.
    pub const fn is_made(&self) -> bool {
        !matches!(self, Self::Later)
    }
}

/// Why an end, or another call that asks objects for their streams, failed.
#[derive(Debug)]
pub enum Failure<I> {
    /// An error, such as a failed driver call or a graph capture that is in the way.
    Failed(Error),
    /// An interrupt was raised, for instance by an object that was asked for its stream.
    Interrupted(I),
}

impl<I> From<Error> for Failure<I> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The state of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndState<M = ()> {
    /// The orders are still to be made.
    Due,
    /// The orders are made. The references stay until the consumer's work is done.
    Waiting(M),
    /// The orders, or the mark, could not be made. They are tried again.
    ToRetry,
    /// The memory is given back. The references may be dropped.
    GivenBack,
    /// A retry is useless ([`crate::driver::codes::is_final`]): for instance, the context is destroyed or broken, or
    /// there is no driver. No order is possible, and the references may be dropped.
    Abandoned,
}

impl<M> From<Settlement<M>> for EndState<M> {
    fn from(settled: Settlement<M>) -> Self {
        match settled {
            Settlement::Done => Self::GivenBack,
            Settlement::Until(mark) => Self::Waiting(mark),
            Settlement::Later => Self::ToRetry,
        }
    }
}

/// Keeps a holder of memory until the lease is ended. Only the first call that ends it gets the holder.
pub struct Lease<H> {
    place: Mutex<HolderPlace<H>>,
    /// Whether the lease has ended or is ending, so that [`Lease::is_leased`] need not take the lock. [`Lease::stop`]
    /// clears the flag if the lease has not ended and no other thread is ending it. [`Lease::end_unshared`] does not
    /// set it.
    ended: AtomicBool,
}

struct HolderPlace<H> {
    holder: Option<H>,
    /// How many threads are between [`Lease::begin`] and [`Lease::stop`].
    enders: usize,
}

impl<H> Lease<H> {
    /// A lease of the memory that `holder` holds.
    pub fn new(holder: H) -> Self {
        let place = HolderPlace { holder: Some(holder), enders: 0 };
        Self { place: Mutex::new(place), ended: AtomicBool::new(false) }
    }

    fn place(&self) -> MutexGuard<'_, HolderPlace<H>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `look` on the holder; `None` if the lease has ended or is ending. `look` must not use this lease.
    pub fn with<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        let mut place = self.place();
        if place.enders == 0 { place.holder.as_mut().map(look) } else { None }
    }

    /// Runs `look` on the holder, also while the lease is ending. Does not wait for the lock, since the garbage
    /// collector visits objects with this. `None` if the lease has ended or the lock is taken.
    pub fn try_with<R>(&self, look: impl FnOnce(&H) -> R) -> Option<R> {
        match self.place.try_lock() {
            Ok(place) => place.holder.as_ref().map(look),
            Err(TryLockError::Poisoned(place)) => place.into_inner().holder.as_ref().map(look),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether the lease has not ended and no thread is ending it.
    pub fn is_leased(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Begins to end the lease, and runs `look`, which copies from the holder what the orders need. `None` if the lease
    /// has ended. Several threads may begin. Until each of them has called [`Self::stop`], [`Self::with`] returns
    /// `None`.
    pub fn begin<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        let mut place = self.place();
        let taken = place.holder.as_mut().map(look)?;
        place.enders += 1;
        self.ended.store(true, Ordering::Release);
        Some(taken)
    }

    /// Runs `change` on the holder, if the lease has not ended. For a thread that is between [`Self::begin`] and
    /// [`Self::stop`], where [`Self::with`] returns `None`.
    pub fn amend(&self, change: impl FnOnce(&mut H)) {
        if let Some(holder) = &mut self.place().holder {
            change(holder);
        }
    }

    /// Call this after [`Self::begin`], whether or not [`Self::end`] was called. If the lease has not ended and no
    /// other thread is ending it, it counts as leased again.
    pub fn stop(&self) {
        let mut place = self.place();
        place.enders = place.enders.saturating_sub(1);
        let is_leased = place.enders == 0 && place.holder.is_some();
        self.ended.store(!is_leased, Ordering::Release);
    }

    /// Ends a lease that no other thread can reach, and returns its holder. `None` if the lease has ended already. For
    /// a lease that is about to be dropped: [`Self::is_leased`] does not see this end.
    pub fn end_unshared(&mut self) -> Option<H> {
        self.place.get_mut().unwrap_or_else(PoisonError::into_inner).holder.take()
    }

    /// Ends the lease. Only the first call returns the holder.
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
