//! The scopes that use an array's memory at the same time: one inside the other, or in several threads.
//!
//! The array's producer learns of a scope's work when the scope ends. So a scope that takes the array before that
//! waits for the others by itself, and makes them wait when it ends. Scopes that only read do not wait for each
//! other.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stream::RustStream;

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
    pub(super) fn enter(&self, scope: &Arc<RustStream>, writes: bool) -> Vec<Arc<RustStream>> {
        let mut users = self.lock();
        let others = others(&users, Some(scope), writes);
        match users.iter_mut().find(|user| Arc::ptr_eq(&user.stream, scope)) {
            Some(user) => user.writes |= writes,
            None => users.push(User { stream: Arc::clone(scope), writes }),
        }
        others
    }

    /// Removes a scope. The answer is who has to wait for it.
    pub(super) fn leave(&self, scope: &Arc<RustStream>) -> Vec<Arc<RustStream>> {
        let mut users = self.lock();
        let Some(at) = users.iter().position(|user| Arc::ptr_eq(&user.stream, scope)) else {
            return Vec::new();
        };
        let left = users.swap_remove(at);
        others(&users, None, left.writes)
    }

    /// Whom work that writes, or only reads, must be ordered with.
    pub(super) fn beside(&self, writes: bool) -> Vec<Arc<RustStream>> {
        others(&self.lock(), None, writes)
    }
}

/// The users that work beside one that writes, or only reads, must be ordered with.
fn others(users: &[User], but: Option<&Arc<RustStream>>, writes: bool) -> Vec<Arc<RustStream>> {
    let is_other = |user: &&User| but.is_none_or(|scope| !Arc::ptr_eq(&user.stream, scope));
    let meets = |user: &&User| writes || user.writes;
    users.iter().filter(is_other).filter(meets).map(|user| Arc::clone(&user.stream)).collect()
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.lock().len())
    }
}
