//! The scopes that use an array's memory at the same time: one inside the other, or in several threads.
//!
//! The array's producer learns of a scope's work when the scope ends. So a scope that takes the array before that
//! waits for the others by itself, and makes them wait when it ends. Scopes that only read do not wait for each
//! other.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::origin::Origin;
use super::stream::RustStream;
use crate::error::Result;
use crate::stream::Alive;

/// The scopes of an array's memory that have not ended.
#[derive(Default)]
pub(crate) struct Users(Mutex<Vec<User>>);

struct User {
    /// The scope's stream, and, by its address, the scope.
    stream: Arc<RustStream>,
    writes: bool,
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Vec<User>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a scope, or what it does from now on. The answer is whom it has to wait for.
    fn enter(&self, scope: &Arc<RustStream>, writes: bool) -> Vec<Arc<RustStream>> {
        let mut users = self.lock();
        let others = others(&users, Some(scope), writes);
        match users.iter_mut().find(|user| Arc::ptr_eq(&user.stream, scope)) {
            Some(user) => user.writes |= writes,
            None => users.push(User { stream: Arc::clone(scope), writes }),
        }
        others
    }

    /// Removes a scope. The answer is who has to wait for it.
    fn leave(&self, scope: &Arc<RustStream>) -> Vec<Arc<RustStream>> {
        let mut users = self.lock();
        let Some(at) = users.iter().position(|user| Arc::ptr_eq(&user.stream, scope)) else {
            return Vec::new();
        };
        let left = users.swap_remove(at);
        others(&users, None, left.writes)
    }
}

/// The users that work beside one that writes, or only reads, must be ordered with.
fn others(users: &[User], but: Option<&Arc<RustStream>>, writes: bool) -> Vec<Arc<RustStream>> {
    let is_other = |user: &&User| but.is_none_or(|scope| !Arc::ptr_eq(&user.stream, scope));
    let meets = |user: &&User| writes || user.writes;
    users.iter().filter(is_other).filter(meets).map(|user| Arc::clone(&user.stream)).collect()
}

/// The scope of the stream `scope` uses the memory from now on, after what the others have queued.
pub(super) fn enter(origin: &dyn Origin, scope: &Arc<RustStream>, writes: bool) -> Result<()> {
    let others = origin.users().enter(scope, writes);
    others.iter().try_for_each(|other| origin.order(other.alive(), scope.alive()))
}

/// The scope has ended: the others' next work runs after its own.
pub(super) fn leave(origin: &dyn Origin, scope: &Arc<RustStream>) -> Result<()> {
    let others = origin.users().leave(scope);
    let mut done = Ok(());
    for other in others {
        done = done.and(origin.order(scope.alive(), other.alive()));
    }
    done
}

/// Makes `to`, where the memory is written or only read, wait for the scopes that have not ended.
pub(crate) fn wait(origin: &dyn Origin, to: Alive<'_>, writes: bool) -> Result<()> {
    let others = others(&origin.users().lock(), None, writes);
    others.iter().try_for_each(|other| origin.order(other.alive(), to))
}

/// Makes the producer's stream wait for the scopes that have not ended, for somebody who writes or only reads.
#[cfg(feature = "python")]
pub(crate) fn give_back(origin: &dyn Origin, writes: bool) -> Result<()> {
    let others = others(&origin.users().lock(), None, writes);
    others.iter().try_for_each(|other| origin.give_back(other.alive()))
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.lock().len())
    }
}
