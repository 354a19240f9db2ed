//! Thread-locals that have another value during a call.

use std::cell::{Cell, RefCell};
use std::thread::LocalKey;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

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

/// How many questions to objects may lie within each other. A class that answers by the bridge asks one or two more, and
/// one whose ends were put off up to twenty.
const DEEPEST: usize = 64;

thread_local! {
    /// The objects that this thread is asking for their memory, the last one last. Addresses alone: each is held by a call.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Runs `question`, which calls `x`'s own code for its memory: by `__dlpack__`, or by its dict.
///
/// # Errors
///
/// Those of `question`; RecursionError where the answer asks the bridge for the answer.
pub(crate) fn asking<T>(
    x: &Bound<'_, PyAny>,
    question: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    struct Asked;
    impl Drop for Asked {
        fn drop(&mut self) {
            ASKED.with_borrow_mut(Vec::pop);
        }
    }
    let depth = ASKED.with_borrow_mut(|asked| {
        asked.push(x.as_ptr().addr());
        asked.len()
    });
    let _asked = Asked;
    if depth > DEEPEST { Err(endless(x)?) } else { question() }
}

/// Whether this thread is asking `x` now: what it calls within must not ask it again.
pub(crate) fn is_asked(x: &Bound<'_, PyAny>) -> bool {
    ASKED.with_borrow(|asked| asked.contains(&x.as_ptr().addr()))
}

#[cold]
fn endless(x: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let name = x.get_type().name()?;
    let text = format!(
        "x: got an object of type {name}, whose __dlpack__ or __cuda_array_interface__ asks the bridge for the object \
         again, and so on, {DEEPEST} times; allowed: one of the two that says where the memory is. Make the other of that"
    );
    Ok(PyRecursionError::new_err(text))
}
