//! Prepares this crate inside an extension that links it. Such an extension has its own copy of the crate's state, and
//! borrows the Python package's simulated device.
#![allow(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};

use crate::array::unlocked::set_detach;
use crate::driver;
use crate::driver::fork;
use crate::driver::lent::{LentTable, NAME, borrowed::BorrowedDevice};
use crate::py::exchange_api::install_table;
use crate::py::interpreter;
use crate::py::lease::{_end, _settle};
use crate::py::libraries;
use crate::py::views::{ArrayView, BaseView, DLPackView};

struct Prepared {
    once: PyOnceLock<()>,
    /// `sys.modules`.
    modules: PyOnceLock<Py<PyDict>>,
    told: PyOnceLock<()>,
}

static PREPARED: Prepared =
    Prepared { once: PyOnceLock::new(), modules: PyOnceLock::new(), told: PyOnceLock::new() };

/// In the wheel there is nothing to do: importing the module has prepared the crate.
pub(super) fn ready(py: Python<'_>) -> PyResult<()> {
    if cfg!(feature = "wheel") {
        return Ok(());
    }
    PREPARED.once.get_or_try_init(py, || once(py))?;
    borrow(py)
}

fn once(py: Python<'_>) -> PyResult<()> {
    libraries::know(py);
    fork::watch();
    set_detach(interpreter::unlocked);
    install_table!(BaseView => DLPackView, py)?;
    install_table!(BaseView => ArrayView, py)?;
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(_end, py)?,))?;
    Ok(())
}

/// Borrows the Python package's simulated device. Ends the loan if the package has ended the device.
fn borrow(py: Python<'_>) -> PyResult<()> {
    let modules = PREPARED.modules.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind())
    })?;
    let Some(package) = modules.bind(py).get_item(intern!(py, "cai_bridge._core"))? else {
        return Ok(());
    };
    let Some(capsule) = package.getattr_opt(intern!(py, "_simulated_device"))? else {
        return Ok(());
    };
    let Ok(pointer) = capsule.cast::<PyCapsule>()?.pointer_checked(Some(NAME)) else {
        return Ok(());
    };
    // SAFETY: the capsule of this name holds the package's static table, and extension modules stay loaded.
    let borrowed = unsafe { BorrowedDevice::current(pointer.cast::<LentTable>().as_ptr()) };
    driver::borrow(borrowed);
    // Let the package call this copy's `_settle` after the simulated device has run work.
    let tell = || match package.getattr_opt(intern!(py, "_settling"))? {
        Some(all) => all.call_method1("append", (wrap_pyfunction!(_settle, py)?,)).map(drop),
        None => Ok(()),
    };
    PREPARED.told.get_or_try_init(py, tell).copied()
}
