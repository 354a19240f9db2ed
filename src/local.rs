//! Thread-local values. A C++ `thread_local`'s destructor may call the bridge after Rust has dropped the thread's
//! values. For a dropped value [`LocalKey::with`] panics; the accessors here return `None`.

use std::cell::Cell;
use std::fmt;
use std::thread::LocalKey;

pub(crate) struct Local<T: 'static>(&'static LocalKey<T>);

/// Declares [`Local`] values, with the syntax of `thread_local!` for `const` initialisers.
macro_rules! local {
    ($($(#[$doc:meta])* $see:vis static $name:ident: $type:ty = const { $init:expr };)+) => {
        $($(#[$doc])*
        $see static $name: $crate::local::Local<$type> = {
            std::thread_local! { static VALUE: $type = const { $init }; }
            $crate::local::Local::new(&VALUE)
        };)+
    };
}
pub(crate) use local;

impl<T> Local<T> {
    pub(crate) const fn new(key: &'static LocalKey<T>) -> Self {
        Self(key)
    }

    /// Runs `look` on the value; `None` if this thread has dropped the value.
    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(look).ok()
    }
}

impl<T: Copy> Local<Cell<T>> {
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<T> {
        self.with(Cell::get)
    }

    #[inline(always)]
    pub(crate) fn replace(&self, value: T) -> Option<T> {
        self.with(|cell| cell.replace(value))
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}
