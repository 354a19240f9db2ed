//! The scopes that use an array's memory at the same time: one inside the other, or in several threads.
//!
//! The array's producer learns of a scope's work when the scope ends. So work that is queued before that waits for the
//! others' by itself. Scopes that only read do not wait for each other.
//!
//! A scope waits and queues its work in one *turn*: no other scope queues work on the memory in between. A thread waits
//! for its turn without the interpreter's lock, which the thread that has the turn may need.

use std::fmt;
use std::sync::Arc;

use self::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};
use super::stream::RustStream;
use super::unlocked::unlocked;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

/// What the users are made of: `std`'s, or in the model those whose every interleaving loom tries.
mod sync {
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::atomic::AtomicU64;
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::{Mutex, MutexGuard};
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::atomic::AtomicU64;
    pub(super) use std::sync::atomic::Ordering;
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::{PoisonError, TryLockError};

    /// The calling thread's number.
    #[cfg(not(all(loom, test)))]
    pub(super) fn thread() -> u64 {
        crate::stream::Thread::current().number()
    }

    #[cfg(all(loom, test))]
    pub(super) use super::super::model::thread;
}

/// The scopes of an array's memory that have not ended.
#[derive(Default)]
pub(crate) struct Users {
    live: Mutex<Vec<User>>,
    turn: Mutex<()>,
    /// 0, or the number of the thread whose turn it is.
    holder: AtomicU64,
}

struct User {
    /// The scope's stream, and, by its address, the scope.
    stream: Arc<RustStream>,
    writes: bool,
    /// Whether the scope has to wait for the producer before its next work.
    behind: bool,
    /// Whether Python has been given the memory: whatever it does ends on the producer's stream, and nobody says when.
    shown: bool,
    /// The memory that it has lent and does not have back yet.
    lent: Vec<Arc<dyn Lent>>,
}

/// Memory that is lent for work that the crate does not see, on whatever streams.
pub(super) trait Lent: Send + Sync {
    /// The memory, and whether that work may write.
    fn work(&self) -> Span;

    /// Makes the stream of the scope that has lent it wait for that work.
    fn take_back(&self) -> Result<()>;
}

/// A part of an array's memory, and whether work there writes or only reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    bytes: (u64, u64),
    pub(super) writes: bool,
}

impl Span {
    /// Work on `array`.
    pub(super) fn of(array: &Descriptor, writes: bool) -> Self {
        Self { bytes: array.span(), writes }
    }

    /// Whether work on both must be in order.
    const fn meets(self, other: Self) -> bool {
        let ((start, length), (other_start, other_length)) = (self.bytes, other.bytes);
        let apart = start.saturating_add(length) <= other_start
            || other_start.saturating_add(other_length) <= start;
        !apart && (self.writes || other.writes)
    }
}

/// What a scope's work has to wait for.
pub(super) struct Others {
    pub(super) scopes: Vec<Arc<RustStream>>,
    pub(super) producer: bool,
}

impl User {
    fn is(&self, scope: &Arc<RustStream>) -> bool {
        Arc::ptr_eq(&self.stream, scope)
    }

    /// Whether its work, and work that writes or only reads, must be in order.
    const fn meets(&self, writes: bool) -> bool {
        writes || self.writes
    }
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Vec<User>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has its turn. A turn inside this thread's own is the same one: a subscriber that is
    /// told of an order may run any code.
    pub(super) fn turn(&self) -> TurnGuard<'_> {
        let me = sync::thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return TurnGuard(None);
        }
        let guard = loop {
            match self.turn.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
                Err(TryLockError::WouldBlock) => unlocked(&mut || drop(self.turn.lock())),
            }
        };
        self.holder.store(me, Ordering::Relaxed);
        TurnGuard(Some((guard, &self.holder)))
    }

    /// Adds a scope, or what it does from now on. The answer is whom it has to wait for. Refused while that memory is
    /// lent, by whatever scope: what is done with it is not seen here.
    pub(super) fn enter(&self, scope: &Arc<RustStream>, work: Span) -> Result<Others> {
        let mut users = self.lock();
        check_lent(&users, scope.alive(), work)?;
        let scopes = met(&users, Some(scope), work.writes);
        let Some(user) = users.iter_mut().find(|user| user.is(scope)) else {
            let (stream, writes) = (Arc::clone(scope), work.writes);
            users.push(User { stream, writes, behind: true, shown: false, lent: Vec::new() });
            return Ok(Others { scopes, producer: true });
        };
        // Scopes that only read, and have ended, are in order with the producer alone.
        user.behind |= work.writes && !user.writes;
        user.writes |= work.writes;
        Ok(Others { scopes, producer: user.behind || user.shown })
    }

    /// The scope has waited for the producer.
    pub(super) fn caught_up(&self, scope: &Arc<RustStream>) {
        if let Some(user) = self.lock().iter_mut().find(|user| user.is(scope)) {
            user.behind = false;
        }
    }

    /// Python is given the memory.
    #[cfg(feature = "python")]
    pub(super) fn show(&self) {
        self.lock().iter_mut().for_each(|user| user.shown = true);
    }

    /// The scope lends memory of the array's.
    #[cfg(any(feature = "cudarc", all(loom, test)))]
    pub(super) fn lend(&self, scope: &Arc<RustStream>, lent: Arc<dyn Lent>) {
        if let Some(user) = self.lock().iter_mut().find(|user| user.is(scope)) {
            user.lent.push(lent);
        }
    }

    /// Takes back what the scope has lent and `which` says. What cannot be taken back stays lent.
    pub(super) fn take_back(
        &self,
        scope: &Arc<RustStream>,
        which: impl Fn(&Arc<dyn Lent>) -> bool,
    ) -> Result<()> {
        let of_scope = |users: &[User]| {
            let user = users.iter().find(|user| user.is(scope));
            user.map(|user| user.lent.clone()).unwrap_or_default()
        };
        // A wait may block, so the lock is not held.
        let lent = of_scope(&self.lock());
        for one in lent.into_iter().filter(which) {
            one.take_back()?;
            let mut users = self.lock();
            if let Some(user) = users.iter_mut().find(|user| user.is(scope)) {
                user.lent.retain(|other| !Arc::ptr_eq(other, &one));
            }
        }
        Ok(())
    }

    /// The scopes whose next work has to wait for that of `scope`. If that is none, as the consumer of a tensor, it may
    /// have written.
    pub(super) fn after(&self, scope: &Arc<RustStream>) -> Vec<Arc<RustStream>> {
        let users = self.lock();
        let writes = users.iter().find(|user| user.is(scope)).is_none_or(|own| own.writes);
        met(&users, Some(scope), writes)
    }

    /// Removes a scope.
    pub(super) fn remove(&self, scope: &Arc<RustStream>) {
        self.lock().retain(|user| !user.is(scope));
    }

    /// The scopes that work for the stream `to`, which is outside of any scope, must be ordered with. Lent memory is refused
    /// as in a scope.
    pub(super) fn beside(&self, to: Alive<'_>, work: Span) -> Result<Vec<Arc<RustStream>>> {
        let users = self.lock();
        check_lent(&users, to, work)?;
        Ok(met(&users, None, work.writes))
    }
}

/// Refuses work of the stream `on` where memory is lent.
fn check_lent(users: &[User], on: Alive<'_>, work: Span) -> Result<()> {
    let meets = |lent: &Arc<dyn Lent>| lent.work().meets(work);
    let Some(user) = users.iter().find(|user| user.lent.iter().any(meets)) else { return Ok(()) };
    let what = if work.writes { "work that writes" } else { "work" };
    let (on, by) = (on.stream(), user.stream.alive().stream());
    Err(Error::new(Kind::Borrowed, format!("{what} on {on}, borrowed on {by}")))
}

/// The users that work beside one that writes, or only reads, must be ordered with.
fn met(users: &[User], but: Option<&Arc<RustStream>>, writes: bool) -> Vec<Arc<RustStream>> {
    let is_other = |user: &&User| but.is_none_or(|scope| !user.is(scope));
    let meets = |user: &&User| user.meets(writes);
    users.iter().filter(is_other).filter(meets).map(|user| Arc::clone(&user.stream)).collect()
}

/// A thread's turn, until dropped; nothing where it had it before.
pub(super) struct TurnGuard<'a>(Option<(MutexGuard<'a, ()>, &'a AtomicU64)>);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        if let Some((_, holder)) = &self.0 {
            holder.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.lock().len())
    }
}
