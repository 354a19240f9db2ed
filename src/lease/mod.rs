//! Leases: one state machine for giving a producer's memory back, whatever held it. A view has a [`Lease`], and so has
//! an array that Rust or C code imports. An end goes through the states of [`EndState`]:
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
//! A [`Holder`] keeps the references to the memory. [`Lease::end`] returns the holder, and the caller drops it outside
//! the lease's lock: a drop may run arbitrary code, even code that uses this lease.
//!
//! `release()` makes the waits between [`Lease::begin`] and [`Lease::end`]. If a wait fails, the memory stays leased.
//! Of several threads that release at the same time, the first to finish ends the lease.

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

/// Keeps a lease's memory alive. At the lease's end, makes streams or the host wait for the memory's users.
pub trait Holder: Send {
    type Lock<'l>: Copy;
    type Mark: Send;
    type Interrupt;

    /// Makes the waits of the lease's end, and returns what the memory must still wait for.
    fn settle(
        &mut self,
        lock: Self::Lock<'_>,
    ) -> Result<Settlement<Self::Mark>, Failure<Self::Interrupt>>;

    /// Whether the consumer's work before `mark` is done. Does not wait.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement<M> {
    Done,
    /// The memory must be kept until the work before this mark is done.
    Until(M),
    /// A graph capture forbids the mark now. The end is tried again.
    Later,
}

impl<M> Settlement<M> {
    pub const fn is_made(&self) -> bool {
        !matches!(self, Self::Later)
    }
}

#[derive(Debug)]
pub enum Failure<I> {
    Failed(Error),
    Interrupted(I),
}

impl<I> From<Error> for Failure<I> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndState<M = ()> {
    Due,
    Waiting(M),
    /// The waits or the mark could not be made. The end is tried again.
    ToRetry,
    GivenBack,
    /// Retrying is useless, for instance because the context is destroyed.
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

/// Only the first call that ends the lease gets the holder.
pub struct Lease<H> {
    place: Mutex<HolderPlace<H>>,
    /// True also while the lease is ending.
    ended: AtomicBool,
}

struct HolderPlace<H> {
    holder: Option<H>,
    /// How many calls of [`Lease::begin`] have not been followed by [`Lease::stop`]. A `begin` that returned `None`
    /// does not count.
    enders: usize,
}

impl<H> Lease<H> {
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

    /// Runs `look` on the holder, also while the lease is ending. `None` if the lease has ended or its lock is taken.
    pub fn try_with<R>(&self, look: impl FnOnce(&H) -> R) -> Option<R> {
        match self.place.try_lock() {
            Ok(place) => place.holder.as_ref().map(look),
            Err(TryLockError::Poisoned(place)) => place.into_inner().holder.as_ref().map(look),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn is_leased(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Begins to end the lease, and runs `look` on the holder. Call [`Self::stop`] afterwards, unless the result is
    /// `None`.
    pub fn begin<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        let mut place = self.place();
        let taken = place.holder.as_mut().map(look)?;
        place.enders += 1;
        self.ended.store(true, Ordering::Release);
        Some(taken)
    }

    /// Runs `change` on the holder, unless the lease has ended.
    pub fn amend(&self, change: impl FnOnce(&mut H)) {
        if let Some(holder) = &mut self.place().holder {
            change(holder);
        }
    }

    /// Call this once after each [`Self::begin`] that returned `Some`. After the last call, a lease that has not ended
    /// is leased again.
    pub fn stop(&self) {
        let mut place = self.place();
        place.enders = place.enders.saturating_sub(1);
        let is_leased = place.enders == 0 && place.holder.is_some();
        self.ended.store(!is_leased, Ordering::Release);
    }

    /// Like [`Self::end`], without the lock. [`Self::is_leased`] does not see this end.
    pub fn end_unshared(&mut self) -> Option<H> {
        self.place.get_mut().unwrap_or_else(PoisonError::into_inner).holder.take()
    }

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
