//! Python objects that the bridge holds for their streams.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};

use crate::local::local;
use crate::py::by_type::ByType;
use crate::py::interpreter::answered;
use crate::py::native;
use crate::py::this_thread::Once;

/// The garbage collector may destroy the stream while the object still exists. So the object counts as garbage once its
/// weak reference is cleared, or its `__del__` has run.
#[derive(Debug)]
pub(super) struct Voucher {
    object: Py<PyAny>,
    weak: Option<Py<PyWeakrefReference>>,
    /// Whether `__del__` had run before the bridge got the object. False without a weak reference. If true, the object
    /// counts as garbage only once its weak reference is cleared.
    came_back: bool,
}

impl Voucher {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        local! {
            static HAS_WEAK_REFERENCES: ByType<bool> = const { ByType::new() };
        }
        let has = HAS_WEAK_REFERENCES.known(object, examine)?;
        let weak = has.then(|| PyWeakrefReference::new(object)).transpose()?;
        let came_back = weak.is_some() && native::is_finalized(object);
        Ok(Self { object: object.clone().unbind(), weak: weak.map(Bound::unbind), came_back })
    }

    /// `None` if the object counts as garbage.
    pub(super) fn object<'a, 'py>(&'a self, py: Python<'py>) -> Option<&'a Bound<'py, PyAny>> {
        let object = self.object.bind(py);
        let found = self.weak.as_ref().is_some_and(|weak| weak.bind(py).upgrade().is_none());
        let finalized = !self.came_back && native::is_finalized(object);
        (!found && !finalized).then_some(object)
    }

    /// `None` if the object counts as garbage, or if `ask` raises an ordinary exception. Does not call `ask` inside
    /// [`unasked`].
    pub(super) fn ask<R>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<R>>,
    ) -> PyResult<Option<R>> {
        let Some(object) = self.object(py).filter(|_| !is_unasked()) else { return Ok(None) };
        Ok(answered(py, ask(object))?.flatten())
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let weak = self.weak.as_ref().map(|weak| weak.clone_ref(py));
        Self { object: self.object.clone_ref(py), weak, came_back: self.came_back }
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

pub(super) fn is_unasked() -> bool {
    Once::Unasked.is_on()
}

/// While `call` runs, this thread does not ask the objects of [`Voucher`]s for streams, and does not call the
/// libraries' [`Functions`](crate::py::library::Functions).
pub(crate) fn unasked<R>(call: impl FnOnce() -> R) -> R {
    let _once = Once::Unasked.begin();
    call()
}

fn examine(_object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.getattr(intern!(kind.py(), "__weakrefoffset__"))?.extract::<isize>()? != 0)
}
