//! The array arguments of a call that `adapt` makes. Each converted array is lent to the call: the loan ends after the
//! call, even if the function kept the array.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::py::interpreter::{Answer, act, at_exit, inside, is_interrupt};
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

/// The end of one call, as a context manager. A subclass has the attributes `left`, the arguments that were not passed
/// on, `views`, weak references to the converted arrays that are views, and `lent`, the loans.
///
/// Python delivers an interrupt between two bytecodes, so in Python it could come between the ends of two loans.
#[pyclass(frozen, subclass, module = "cai_bridge._core", name = "_CallEnd")]
#[derive(Debug)]
pub(crate) struct CallEnd;

#[pymethods]
impl CallEnd {
    #[new]
    const fn new() -> Self {
        Self
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// Ends all loans, and then raises the first error, or an interrupt.
    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> Answer<'py> {
        let (py, _) = (slf.py(), (kind, traceback));
        // Each end has its own entry.
        inside(|| {
            let mut ends = Loans::new();
            if !value.is_none() {
                // The exception's traceback keeps the views alive.
                for view in slf.getattr(intern!(py, "views"))?.try_iter()? {
                    let view = view?.call0()?;
                    if !view.is_none() {
                        ends.push(view.getattr(intern!(py, "release"))?);
                    }
                }
            }
            ends.extend(slf.getattr(intern!(py, "lent"))?.cast::<PyList>()?);
            slf.setattr(intern!(py, "left"), PyList::empty(py))?;
            let mut failed: Option<PyErr> = None;
            for end in ends {
                if let Err(error) = end.call0()
                    && (failed.is_none() || is_interrupt(py, &error))
                {
                    failed = Some(error);
                }
            }
            failed.map_or(Ok(()), |error| at_exit(py, error, value))?;
            Ok(py.None().into_bound(py))
        })
    }
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
