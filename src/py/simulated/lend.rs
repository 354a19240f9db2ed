//! Lends the simulated device to extensions that link this crate: the device's table, and a list of functions that
//! finish the extensions' pending ends.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::driver::lent::{LentTable, NAME, lender::TABLE};
use crate::py::lease::look_at_all;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table: *const LentTable = &raw const TABLE;
    // SAFETY: the table is static, so the capsule needs no destructor.
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

static BORROWERS: PyOnceLock<Py<PyList>> = PyOnceLock::new();

/// Finishes each pending end that can be finished, in this library and in the extensions of [`BORROWERS`].
pub(super) fn settle(py: Python<'_>) {
    look_at_all(py);
    let Some(borrowers) = BORROWERS.get(py).map(|all| all.bind(py)) else { return };
    for settle in borrowers.iter() {
        if let Err(error) = settle.call0() {
            error.write_unraisable(py, Some(&settle));
        }
    }
    // An end of this library may have waited for an end of an extension.
    if !borrowers.is_empty() {
        look_at_all(py);
    }
}
