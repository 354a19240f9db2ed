//! Stream objects that this thread has named to a producer by handle: `__dlpack__` takes no objects.
//!
//! The producer's `__dlpack__` may call the bridge with that handle, as its class may wrap a view. The inner view can
//! then keep the stream object that the outer call holds.

use pyo3::prelude::*;

use crate::py::this_thread::DOING;

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
