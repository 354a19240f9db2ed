//! The lease: one state machine for the end of everything that holds a producer's memory.
//!
//! A view holds a [`Lease`], and so does every managed tensor, copy or borrowed tensor that it hands out.
//! Until its end it is leased. From then on it has a [`State`]:
//!
//! ```text
//!            end()            no order is left to make
//! leased ─────────▶ due ──────────────────────────────────────────▶ given back
//!    ▲              │ ▲ │                                               ▲
//!    └── refused ───┘ │ ├─ the producer's stream is unknown ─▶ waiting ─┘ the consumer's work is done
//!  (release() alone)  │ │
//!                     │ └─ the driver failed, or a capture is in the way ─▶ to retry
//!                     └───────────────────────── a later call ──────────────────┘
//!
//! due, waiting or to retry ── the context is gone or broken ─▶ abandoned
//! ```
//!
//! Nothing here knows Python, streams or locks: a [`Holder`] has the references, makes the orders
//! ([`Parties::settle`]) and is dropped at the end. Whoever ends a lease takes the holder out under the lock
//! and drops it outside, since that may run anything: a foreign deleter, a destructor that comes back here.

mod parties;
mod queue;

#[cfg(all(loom, test))]
mod model;

use std::fmt;

pub use self::parties::Parties;
pub use self::queue::Queue;
use self::sync::{AtomicBool, Mutex, Ordering, PoisonError, TryLockError};
use crate::driver::codes::is_final;
use crate::error::Error;

/// What the state is made of: `std`'s, or in the model those whose every interleaving loom tries.
mod sync {
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::Mutex;
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize};
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::Ordering;
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize};
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
    /// Whoever was asked for a stream raised what is no answer.
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

/// A lease that ends.
#[derive(Debug)]
pub struct Ending<H: Holder> {
    holder: H,
    state: State<H::Mark>,
    told: bool,
}

impl<H: Holder> Ending<H> {
    /// The end of what `holder` holds.
    pub const fn new(holder: H) -> Self {
        Self { holder, state: State::Due, told: false }
    }

    /// The end where [`Holder::settle`] was called already.
    pub fn settled(holder: H, settled: Settlement<H::Mark>) -> Self {
        Self { holder, state: settled.into(), told: false }
    }

    /// The holder.
    pub const fn holder(&self) -> &H {
        &self.holder
    }

    /// Where it is.
    pub const fn state(&self) -> State {
        match self.state {
            State::Due => State::Due,
            State::Waiting(_) => State::Waiting(()),
            State::ToRetry => State::ToRetry,
            State::GivenBack => State::GivenBack,
            State::Abandoned => State::Abandoned,
        }
    }

    /// Whether the references may go.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::GivenBack | State::Abandoned)
    }

    /// Goes on as far as that can be now. An interrupt leaves it to be tried again.
    pub fn advance(&mut self, lock: H::Lock<'_>) -> Result<(), H::Interrupt> {
        if matches!(self.state, State::Due | State::ToRetry) {
            self.state = match self.holder.settle(lock) {
                Ok(settled) => settled.into(),
                Err(Failure::Failed(error)) => self.failed(&error),
                Err(Failure::Interrupted(interrupt)) => {
                    self.state = State::ToRetry;
                    return Err(interrupt);
                }
            };
        }
        if let State::Waiting(mark) = &mut self.state {
            match self.holder.is_done(mark) {
                Ok(true) => self.state = State::GivenBack,
                Ok(false) => {}
                Err(error) if is_final(&error) => self.state = self.failed(&error),
                Err(error) => self.tell(&error, "kept"),
            }
        }
        Ok(())
    }

    fn failed(&mut self, error: &Error) -> State<H::Mark> {
        if is_final(error) {
            self.told = false;
            self.tell(error, "let go");
            State::Abandoned
        } else {
            self.tell(error, "kept");
            State::ToRetry
        }
    }

    fn tell(&mut self, error: &Error, producer: &'static str) {
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                target: "cai_bridge", door = "release", %error, order = "failed", producer,
                "the memory could not be given back in order"
            );
        }
    }
}

/// What holds memory until it is ended, once.
pub struct Lease<H> {
    holder: Mutex<Option<H>>,
    /// Whether it was ended: what most callers ask, without the lock.
    ended: AtomicBool,
}

impl<H> Lease<H> {
    /// A lease that `holder` holds.
    pub fn new(holder: H) -> Self {
        Self { holder: Mutex::new(Some(holder)), ended: AtomicBool::new(false) }
    }

    /// Looks at the holder, unless the lease was ended. `look` must not come back to this lease.
    pub fn with<R>(&self, look: impl FnOnce(&mut H) -> R) -> Option<R> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    /// The same where waiting is not allowed, as in a garbage collector's visit: `None` also where
    /// somebody else is looking.
    pub fn try_with<R>(&self, look: impl FnOnce(&H) -> R) -> Option<R> {
        match self.holder.try_lock() {
            Ok(holder) => holder.as_ref().map(look),
            Err(TryLockError::Poisoned(holder)) => holder.into_inner().as_ref().map(look),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether it is still leased.
    pub fn is_leased(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Ends it: the first call returns the holder, every later one nothing.
    pub fn end(&self) -> Option<H> {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::Release);
        holder.take()
    }

    /// Takes back an end that was refused: everything is as before.
    pub fn resume(&self, holder: H) {
        let mut place = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(holder);
        self.ended.store(false, Ordering::Release);
    }
}

impl<H> fmt::Debug for Lease<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_leased() { "Lease(leased)" } else { "Lease(ended)" })
    }
}
