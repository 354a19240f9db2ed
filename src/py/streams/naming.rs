//! Stream objects that this thread has named to a producer by their handles: `__dlpack__` takes no objects.
//!
//! A producer's `__dlpack__` may be ours, a class's around one of our views. The handle that it is given is then the
//! stream of an object that the caller holds, who may hold it on.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    static NAMED: RefCell<Vec<(u64, Py<PyAny>)>> = const { RefCell::new(Vec::new()) };
}

/// Until dropped.
struct Naming;

impl Drop for Naming {
    fn drop(&mut self) {
        let _ = NAMED.try_with(|named| {
            let last = named.borrow_mut().pop();
            drop(last);
        });
    }
}

/// Runs `call`, in which `handle` is that of `object`.
pub(super) fn naming<R>(handle: u64, object: &Bound<'_, PyAny>, call: impl FnOnce() -> R) -> R {
    NAMED.with(|named| named.borrow_mut().push((handle, object.clone().unbind())));
    let _naming = Naming;
    call()
}

/// The object that was named by `handle`.
pub(super) fn named(py: Python<'_>, handle: u64) -> Option<Bound<'_, PyAny>> {
    let named = NAMED.try_with(|named| {
        let named = named.borrow();
        let last = named.iter().rev().find(|(known, _)| *known == handle);
        last.map(|(_, object)| object.bind(py).clone())
    });
    named.ok().flatten()
}
