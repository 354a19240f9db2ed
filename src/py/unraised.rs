//! Running what must not disturb the exception that may be on its way.

use pyo3::prelude::*;

/// Runs `body` with the pending exception put aside, and reports one that it leaves behind as
/// unraisable: deleters are called while a stack unwinds, too.
pub(super) fn during(py: Python<'_>, body: impl FnOnce()) {
    let pending = PyErr::occurred(py).then(|| PyErr::take(py)).flatten();
    body();
    if PyErr::occurred(py)
        && let Some(left) = PyErr::take(py)
    {
        left.write_unraisable(py, None);
    }
    if let Some(pending) = pending {
        pending.restore(py);
    }
}
