//! Stream objects whose handles this thread has passed to a producer's `__dlpack__`, which takes no objects. If that
//! `__dlpack__` calls the bridge with the handle, the inner call finds the stream object.

use pyo3::prelude::*;

use crate::py::this_thread::DOING;

struct OnDrop(u64);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let last = DOING.with(|doing| doing.streams.take(|(known, _)| *known == self.0));
        drop(last);
    }
}

pub(super) fn with_object<R>(
    handle: u64,
    object: &Bound<'_, PyAny>,
    call: impl FnOnce() -> R,
) -> R {
    DOING.with(|doing| doing.streams.push((handle, object.clone().unbind())));
    let _on_drop = OnDrop(handle);
    call()
}

pub(super) fn object_of(py: Python<'_>, handle: u64) -> Option<Bound<'_, PyAny>> {
    let of =
        |(known, object): &(u64, Py<PyAny>)| (*known == handle).then(|| object.bind(py).clone());
    DOING.with(|doing| doing.streams.find(of)).flatten()
}
