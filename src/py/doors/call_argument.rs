//! The array arguments of a call that `adapt` makes. Each converted array is lent to the call: the loan ends after the
//! call, even if the function kept the array.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::py::interpreter::{Answer, act};
use crate::py::lease::{CallWatch, HeldMemory, goes_on};
use crate::py::streams::StreamArgument;
use crate::py::views::BaseView;

/// An object for each array that is lent to a call. Calling the object ends the loan.
pub(super) type Loans<'py> = SmallVec<[Bound<'py, PyAny>; 4]>;

/// One array that was converted for a call.
#[pyclass(frozen, module = "cai_bridge", name = "_CallArgument")]
#[derive(Debug)]
pub(crate) struct CallArgument {
    watch: Mutex<Option<CallWatch>>,
    is_view: bool,
}

impl CallArgument {
    pub(super) fn of(py: Python<'_>, source: &mut HeldMemory) -> PyResult<Self> {
        Ok(Self { watch: Mutex::new(Some(source.watch(py)?)), is_view: false })
    }

    pub(super) fn made(mut self, array: &Bound<'_, PyAny>) -> Self {
        self.is_view = array.is_instance_of::<BaseView>();
        self
    }
}

/// Reports an error that occurred when the loan ended, as unraisable: the call itself has failed with another error.
#[pyfunction]
pub(crate) fn _unraisable(error: &Bound<'_, PyAny>) {
    PyErr::from_value(error.clone()).write_unraisable(error.py(), None);
}

/// Records that work on `stream` goes on using the memory of `view`: at later ends of the memory, the producer's stream
/// also waits for `stream`. For -1, records nothing.
pub(super) fn goes_on_with<'py>(
    view: &Bound<'py, PyAny>,
    stream: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let (py, view) = (view.py(), view.cast::<BaseView>()?.get());
    let argument = StreamArgument::parse(Some(stream))?;
    if let Some(kept) = argument.keep(py, &view.driver, view.at())? {
        goes_on(py, &view.array, &kept);
    }
    Ok(())
}

#[pymethods]
impl CallArgument {
    /// Ends the loan: makes the producer's stream wait for the work so far of the array's recorded users.
    fn __call__<'py>(&self, py: Python<'py>) -> Answer<'py> {
        act(py, || {
            let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
            watch.map_or(Ok(()), |watch| watch.settle(py, !self.is_view))?;
            Ok(())
        })
    }
}
