//! What a thread has of its own.
//!
//! Foreign code may call while its thread ends: a destructor of a C++ `thread_local`, or of a pthread key, calls a
//! deleter. By then Rust has dropped those of the thread's values that need it, and [`LocalKey::with`] panics. Here each
//! question says what holds without the value. `clippy.toml` refuses the standard library's own spellings.

use std::cell::Cell;
use std::fmt;
use std::thread::LocalKey;

/// A value of each thread, which a thread that is ending may have dropped.
pub(crate) struct Local<T: 'static>(&'static LocalKey<T>);

/// Declares a [`Local`], as `thread_local!` does it.
macro_rules! local {
    ($($(#[$doc:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
        $($(#[$doc])*
        static $name: $crate::local::Local<$type> = {
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

    /// What `look` says of the value; `None` where this thread has dropped it.
    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(look).ok()
    }
}

impl<T: Copy> Local<Cell<T>> {
    /// The value; `None` where this thread has dropped it.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<T> {
        self.with(Cell::get)
    }

    /// Sets the value, if there is one, and returns the one before.
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
