//! The scopes that use an array's memory at the same time: one inside the other, or in several threads.
//!
//! The array's producer learns of a scope's work when the scope ends. So work that is queued before that waits for the
//! others' by itself. Scopes that only read do not wait for each other.
//!
//! To wait and to queue the work is one *turn*: between the two no other scope queues work on the memory. A turn is
//! waited for without the interpreter's lock, since who has it may need that.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::stream::RustStream;
use super::unlocked::unlocked;
use crate::error::{Error, Kind, Result};
use crate::stream::Thread;

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
    /// How many borrows there are to read and to write, whose work cannot be seen.
    borrows: [u32; 2],
}

impl User {
    fn is(&self, scope: &Arc<RustStream>) -> bool {
        Arc::ptr_eq(&self.stream, scope)
    }

    /// Whether its work, and work that writes or only reads, must be in order.
    const fn meets(&self, writes: bool) -> bool {
        writes || self.writes
    }

    /// The same of work that may be queued at any moment.
    const fn is_borrowed(&self, writes: bool) -> bool {
        self.borrows[1] > 0 || (writes && self.borrows[0] > 0)
    }
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Vec<User>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has its turn. A turn inside this thread's own is the same one: a subscriber that is
    /// told of an order may run any code.
    pub(super) fn turn(&self) -> TurnGuard<'_> {
        let me = Thread::current().number();
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

    /// Adds a scope, or what it does from now on. The answer is whom it has to wait for. Refused while another scope's
    /// memory is borrowed for work that is not seen here.
    pub(super) fn enter(
        &self,
        scope: &Arc<RustStream>,
        writes: bool,
    ) -> Result<Vec<Arc<RustStream>>> {
        let mut users = self.lock();
        let mut others = users.iter().filter(|user| !user.is(scope));
        if let Some(user) = others.find(|user| user.is_borrowed(writes)) {
            let work = if writes { "work that writes" } else { "work" };
            let (on, by) = (scope.alive().stream(), user.stream.alive().stream());
            let got = format!("{work} on {on}, borrowed on {by}");
            return Err(Error::new(Kind::Borrowed, got));
        }
        let found = met(&users, Some(scope), writes);
        match users.iter_mut().find(|user| user.is(scope)) {
            Some(user) => user.writes |= writes,
            None => users.push(User { stream: Arc::clone(scope), writes, borrows: [0; 2] }),
        }
        Ok(found)
    }

    /// A borrow of the scope's begins, or ends.
    #[cfg(feature = "cudarc")]
    pub(super) fn borrow(&self, scope: &Arc<RustStream>, writes: bool, begins: bool) {
        if let Some(user) = self.lock().iter_mut().find(|user| user.is(scope)) {
            let count = &mut user.borrows[usize::from(writes)];
            *count = if begins { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    /// Whom the next work of others that has to wait for the scope's is queued by.
    pub(super) fn after(&self, scope: &Arc<RustStream>) -> Vec<Arc<RustStream>> {
        let users = self.lock();
        let own = users.iter().find(|user| user.is(scope));
        own.map(|own| met(&users, Some(scope), own.writes)).unwrap_or_default()
    }

    /// Removes a scope.
    pub(super) fn remove(&self, scope: &Arc<RustStream>) {
        self.lock().retain(|user| !user.is(scope));
    }

    /// Whom work that writes, or only reads, must be ordered with.
    pub(super) fn beside(&self, writes: bool) -> Vec<Arc<RustStream>> {
        met(&self.lock(), None, writes)
    }
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
