//! The arguments of a call that `adapt` makes: when it has returned their memory is in order again, whoever
//! keeps the arrays.

use std::sync::{Mutex, PoisonError, Weak};

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::py::interpreter::{Answer, act};
use crate::py::lease::Holding;
use crate::py::source::Source;
use crate::py::views::View;

/// One array that was converted for a call.
#[pyclass(frozen, module = "cai_bridge", name = "_CallArgument")]
#[derive(Debug)]
pub(crate) struct CallArgument {
    /// A holder for the consumer that the array was made for.
    holding: Mutex<Option<Box<Holding>>>,
    /// Alive while anything holds the memory by the array that was made.
    array: Weak<()>,
    /// The array, where that is a view: it knows who has read it.
    view: Option<Py<PyWeakrefReference>>,
}

impl CallArgument {
    /// Watches the array that is going to be made of `source`.
    pub(super) fn of(py: Python<'_>, source: &mut Source) -> PyResult<Self> {
        let (holding, array) = source.holding.watch(py)?;
        Ok(Self { holding: Mutex::new(Some(holding)), array, view: None })
    }

    /// The same with what was made of it.
    pub(super) fn made(mut self, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        if array.is_instance_of::<View>() {
            self.view = Some(PyWeakrefReference::new(array)?.unbind());
        }
        Ok(self)
    }
}

#[pymethods]
impl CallArgument {
    /// Makes the producer's stream wait for the consumer's, if the array, or what was made of it, is still
    /// there. Its own end makes that order again, for what is done until then.
    fn __call__<'py>(&self, py: Python<'py>) -> Answer<'py> {
        act(py, || {
            let holding = self.holding.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(mut holding) = holding else { return Ok(()) };
            if self.array.strong_count() == 0 {
                return Ok(());
            }
            if let Some(view) = self.view.as_ref().and_then(|view| view.bind(py).upgrade()) {
                return view.cast::<View>()?.get().settle(py);
            }
            holding.read();
            holding.settle_with(py, None)?;
            Ok(())
        })
    }
}
