//! Stream objects that this thread has named to a producer by handle: `__dlpack__` takes no objects.
//!
//! A producer's `__dlpack__` may call the bridge again: its class may wrap one of the bridge's views. Then the handle
//! that the producer passes on belongs to a stream object that the outer call holds, and the view can keep that object.

use pyo3::prelude::*;

use crate::py::this_thread::DOING;

/// Removes the handle from this thread's list when dropped.
struct OnDrop(u64);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let last = DOING.with(|doing| doing.streams.take(|(known, _)| *known == self.0));
        drop(last);
    }
}

/// Runs `call`. Meanwhile [`object_of`] finds `object` for `handle` on this thread.
pub(super) fn with_object<R>(
    handle: u64,
    object: &Bound<'_, PyAny>,
    call: impl FnOnce() -> R,
) -> R {
    DOING.with(|doing| doing.streams.push((handle, object.clone().unbind())));
    let _on_drop = OnDrop(handle);
    call()
}

/// The stream object for `handle`, if a [`with_object`] that runs on this thread now was given one.
pub(super) fn object_of(py: Python<'_>, handle: u64) -> Option<Bound<'_, PyAny>> {
    let of =
        |(known, object): &(u64, Py<PyAny>)| (*known == handle).then(|| object.bind(py).clone());
    DOING.with(|doing| doing.streams.find(of)).flatten()
}
