//! The scopes that use an array's memory at the same time: nested, or in several threads.
//!
//! `origin::in_turn` makes a scope's waits and queues the scope's work in one *turn*: no other thread has the turn on
//! the memory in between.

use std::fmt;
use std::sync::Arc;

use self::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};
use super::stream::RustStream;
use super::unlocked::unlocked;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

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

    #[cfg(not(all(loom, test)))]
    pub(super) fn thread() -> u64 {
        crate::stream::Thread::current().number()
    }

    #[cfg(all(loom, test))]
    pub(super) use super::super::model::thread;
}

#[derive(Default)]
pub(crate) struct Users {
    live: Mutex<Vec<User>>,
    turn: Mutex<()>,
    /// The number of the thread that has the turn, or 0.
    holder: AtomicU64,
}

struct User {
    /// The scope's stream. The `Arc`'s address identifies the scope.
    stream: Arc<RustStream>,
    writes: bool,
    /// Whether the scope must wait for the producer before the scope's next work.
    behind: bool,
    /// Set before an array of the memory goes to Python while the scope is open.
    shown: bool,
    lent: Vec<Arc<dyn Lent>>,
}

/// Memory lent to other code, which can queue work on any stream without the crate's knowledge.
pub(super) trait Lent: Send + Sync {
    fn work(&self) -> UsedBytes;

    /// Makes the stream of the lending scope, or the host, wait for the work that the borrower has recorded.
    fn take_back(&self) -> Result<()>;
}

/// A range of bytes, as address and length, and whether work writes to the range.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedBytes {
    bytes: (u64, u64),
    pub(super) writes: bool,
}

impl UsedBytes {
    pub(super) fn of(array: &Descriptor, writes: bool) -> Self {
        Self { bytes: array.span(), writes }
    }

    /// Whether work on the two ranges must be in order: the ranges overlap, and at least one is written.
    const fn meets(self, other: Self) -> bool {
        let ((start, length), (other_start, other_length)) = (self.bytes, other.bytes);
        let apart = start.saturating_add(length) <= other_start
            || other_start.saturating_add(other_length) <= start;
        !apart && (self.writes || other.writes)
    }
}

/// What a scope must wait for before its next work: the streams `scopes`, and if `producer`, the producer's stream.
pub(super) struct Others {
    pub(super) scopes: Vec<Arc<RustStream>>,
    pub(super) producer: bool,
}

impl User {
    fn is(&self, scope: &Arc<RustStream>) -> bool {
        Arc::ptr_eq(&self.stream, scope)
    }

    const fn meets(&self, writes: bool) -> bool {
        writes || self.writes
    }
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Vec<User>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn on this memory, and waits if another thread has it. The wait is without the interpreter's lock,
    /// which the other thread can need to finish its turn.
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

    /// Makes `scope` a user of the memory. Fails if `work` overlaps memory that a scope has lent, and the borrower or
    /// `work` writes.
    pub(super) fn enter(&self, scope: &Arc<RustStream>, work: UsedBytes) -> Result<Others> {
        let mut users = self.lock();
        check_lent(&users, scope.alive(), work)?;
        let scopes = met(&users, Some(scope), work.writes);
        let Some(user) = users.iter_mut().find(|user| user.is(scope)) else {
            let (stream, writes) = (Arc::clone(scope), work.writes);
            users.push(User { stream, writes, behind: true, shown: false, lent: Vec::new() });
            return Ok(Others { scopes, producer: true });
        };
        // When a reading scope ends, the producer's stream waits for that scope, but other reading scopes do not. So a
        // reading scope that begins to write must wait for the producer again.
        user.behind |= work.writes && !user.writes;
        user.writes |= work.writes;
        Ok(Others { scopes, producer: user.behind || user.shown })
    }

    pub(super) fn caught_up(&self, scope: &Arc<RustStream>) {
        if let Some(user) = self.lock().iter_mut().find(|user| user.is(scope)) {
            user.behind = false;
        }
    }

    #[cfg(feature = "python")]
    pub(super) fn show(&self) {
        self.lock().iter_mut().for_each(|user| user.shown = true);
    }

    #[cfg(any(feature = "cudarc", all(loom, test)))]
    pub(super) fn lend(&self, scope: &Arc<RustStream>, lent: Arc<dyn Lent>) {
        if let Some(user) = self.lock().iter_mut().find(|user| user.is(scope)) {
            user.lent.push(lent);
        }
    }

    /// Takes back the memory that `scope` has lent and `which` selects. After an error, memory not yet taken back stays
    /// lent.
    pub(super) fn take_back(
        &self,
        scope: &Arc<RustStream>,
        which: impl Fn(&Arc<dyn Lent>) -> bool,
    ) -> Result<()> {
        let of_scope = |users: &[User]| {
            let user = users.iter().find(|user| user.is(scope));
            user.map(|user| user.lent.clone()).unwrap_or_default()
        };
        // `Lent::take_back` may block, so copy the list and release the lock first.
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

    /// The other open scopes that must wait for `scope` at its end: all if `scope` writes, else only scopes that write.
    /// A `scope` that is not a user of the memory counts as a writer.
    pub(super) fn after(&self, scope: &Arc<RustStream>) -> Vec<Arc<RustStream>> {
        let users = self.lock();
        let writes = users.iter().find(|user| user.is(scope)).is_none_or(|own| own.writes);
        met(&users, Some(scope), writes)
    }

    pub(super) fn remove(&self, scope: &Arc<RustStream>) {
        self.lock().retain(|user| !user.is(scope));
    }

    /// The streams of the open scopes that `work` on the stream `to` must wait for.
    pub(super) fn beside(&self, to: Alive<'_>, work: UsedBytes) -> Result<Vec<Arc<RustStream>>> {
        let users = self.lock();
        check_lent(&users, to, work)?;
        Ok(met(&users, None, work.writes))
    }
}

/// Fails if `work` overlaps memory that a scope has lent, and `work` or the borrower writes.
fn check_lent(users: &[User], on: Alive<'_>, work: UsedBytes) -> Result<()> {
    let meets = |lent: &Arc<dyn Lent>| lent.work().meets(work);
    let Some(user) = users.iter().find(|user| user.lent.iter().any(meets)) else { return Ok(()) };
    let what = if work.writes { "work that writes" } else { "work" };
    let (on, by) = (on.stream(), user.stream.alive().stream());
    Err(Error::new(Kind::Borrowed, format!("{what} on {on}, borrowed on {by}")))
}

/// The streams of all users except `but`. If the new work does not write, only the streams of users that write.
fn met(users: &[User], but: Option<&Arc<RustStream>>, writes: bool) -> Vec<Arc<RustStream>> {
    let is_other = |user: &&User| but.is_none_or(|scope| !user.is(scope));
    let meets = |user: &&User| user.meets(writes);
    users.iter().filter(is_other).filter(meets).map(|user| Arc::clone(&user.stream)).collect()
}

/// Ends the thread's turn when dropped. `None` if an outer guard of the same thread ends the turn.
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
