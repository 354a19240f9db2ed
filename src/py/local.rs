//! Thread-locals that have another value during a call.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs `call` while `local` is `value`. It has its value of before again afterwards, also after a panic.
pub(crate) fn during<T: Copy + 'static, R>(
    local: &'static LocalKey<Cell<T>>,
    value: T,
    call: impl FnOnce() -> R,
) -> R {
    struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);
    impl<T: Copy + 'static> Drop for Restore<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(local, local.replace(value));
    call()
}
