//! Thread-local values.
//!
//! Foreign code may call the bridge while its thread ends: the destructor of a C++ `thread_local`, or of a pthread key,
//! may call a deleter. By then Rust may have dropped some of the thread's values, and [`LocalKey::with`] panics for
//! them. The accessors here return `None` instead. `clippy.toml` forbids the accessors of [`LocalKey`] that panic.

use std::cell::Cell;
use std::fmt;
use std::thread::LocalKey;

/// A thread-local value. An ending thread may have dropped it already.
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

    /// Runs `look` on the value, and returns its result; `None` if this thread has dropped the value.
    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(look).ok()
    }
}

impl<T: Copy> Local<Cell<T>> {
    /// The value; `None` if this thread has dropped it.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<T> {
        self.with(Cell::get)
    }

    /// Sets the value and returns the previous value; `None` if this thread has dropped the value.
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
