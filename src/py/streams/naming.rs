//! Stream objects that this thread has named to a producer by their handles: `__dlpack__` takes no objects.
//!
//! A producer's `__dlpack__` may end in the bridge again: its class may wrap one of the bridge's views. The handle it
//! passes is then the stream of an object that the outer call holds, and the view can keep that object.

use pyo3::prelude::*;

use crate::local::local;
use crate::py::local::Stack;

local! {
    static NAMED: Stack<(u64, Py<PyAny>)> = const { Stack::new() };
}

/// Removes the name on drop.
struct Naming(u64);

impl Drop for Naming {
    fn drop(&mut self) {
        let last = NAMED.with(|named| named.take(|(known, _)| *known == self.0));
        drop(last);
    }
}

/// Runs `call`, inside which `handle` means `object`.
pub(super) fn naming<R>(handle: u64, object: &Bound<'_, PyAny>, call: impl FnOnce() -> R) -> R {
    NAMED.with(|named| named.push((handle, object.clone().unbind())));
    let _naming = Naming(handle);
    call()
}

/// The object that was named by `handle`.
pub(super) fn named(py: Python<'_>, handle: u64) -> Option<Bound<'_, PyAny>> {
    let of =
        |(known, object): &(u64, Py<PyAny>)| (*known == handle).then(|| object.bind(py).clone());
    NAMED.with(|named| named.find(of)).flatten()
}
