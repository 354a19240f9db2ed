//! What extensions that link this crate find of the simulated device: the table by which they borrow it, and a list
//! for their functions that finish what they keep.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::driver::lent::{NAME, Table, lender::TABLE};
use crate::py::lease::look_at_all;

/// Puts the table by which extensions that link this crate borrow the simulated device on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table: *const Table = &raw const TABLE;
    // SAFETY: the table is static, and nothing is to be done at the capsule's end.
    let capsule = unsafe {
        let made = pyo3::ffi::PyCapsule_New(table.cast_mut().cast(), NAME.as_ptr(), None);
        Bound::from_owned_ptr_or_err(module.py(), made)?
    };
    module.setattr("_simulated_device", capsule)?;
    module.setattr(
        "_settling",
        BORROWERS.get_or_init(module.py(), || PyList::empty(module.py()).unbind()),
    )
}

/// What has the extensions that borrow the device finish the ends that they keep, a function each.
static BORROWERS: PyOnceLock<Py<PyList>> = PyOnceLock::new();

/// Finishes every pending end that can be finished, here and in the extensions. Those of one may be what another's wait
/// for.
pub(super) fn settle(py: Python<'_>) {
    look_at_all(py);
    let Some(borrowers) = BORROWERS.get(py).map(|all| all.bind(py)) else { return };
    for settle in borrowers.iter() {
        if let Err(error) = settle.call0() {
            error.write_unraisable(py, Some(&settle));
        }
    }
    if !borrowers.is_empty() {
        look_at_all(py);
    }
}
