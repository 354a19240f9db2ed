//! Keeps the producer alive, and lets go of it exactly once.
//!
//! A view holds an [`Owner`]; so does every managed tensor that it hands out. Whoever lets go takes
//! the kept value out under the lock and drops it outside, since dropping it may run anything: a
//! foreign deleter, a Python destructor that comes back to the same view.

use std::fmt;

use sync::{AtomicBool, Mutex, Ordering, PoisonError, TryLockError};

/// What the state is made of: `std`'s, or in the model those whose every interleaving loom tries.
mod sync {
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::Mutex;
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::atomic::AtomicBool;
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::Mutex;
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::atomic::AtomicBool;
    pub(super) use std::sync::atomic::Ordering;
    pub(super) use std::sync::{PoisonError, TryLockError};
}

#[cfg(all(loom, test))]
mod model;

/// Something that is kept until it is released, once.
pub struct Owner<K> {
    kept: Mutex<Option<K>>,
    /// Whether it was released: what most callers ask, without the lock.
    released: AtomicBool,
}

impl<K> Owner<K> {
    /// Keeps `kept`.
    pub fn new(kept: K) -> Self {
        Self { kept: Mutex::new(Some(kept)), released: AtomicBool::new(false) }
    }

    /// Looks at what is kept, unless it was released. `look` must not come back to this owner.
    pub fn with<R>(&self, look: impl FnOnce(&mut K) -> R) -> Option<R> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    /// The same where waiting is not allowed, as in a garbage collector's visit: `None` also where
    /// somebody else is looking.
    pub fn try_with<R>(&self, look: impl FnOnce(&K) -> R) -> Option<R> {
        match self.kept.try_lock() {
            Ok(kept) => kept.as_ref().map(look),
            Err(TryLockError::Poisoned(kept)) => kept.into_inner().as_ref().map(look),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether it is still kept.
    pub fn is_kept(&self) -> bool {
        !self.released.load(Ordering::Acquire)
    }

    /// Lets go: the first call returns what was kept, every later one nothing.
    pub fn release(&self) -> Option<K> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.released.store(true, Ordering::Release);
        kept.take()
    }
}

impl<K> fmt::Debug for Owner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_kept() { "Owner(kept)" } else { "Owner(released)" })
    }
}
