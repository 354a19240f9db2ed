//! Objects that vouch for a stream for as long as they live.

use std::cell::Cell;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};

use crate::local::local;
use crate::py::by_type::ByType;
use crate::py::interpreter::answered;
use crate::py::native;

/// An object that vouches for a stream, which is held.
///
/// A garbage cycle that leads to the object and to its holder is taken apart in any order: the stream may be
/// destroyed by the object's `__del__`, by `weakref.finalize`, or by the end of something that the object has,
/// while the object itself is still here. The collector clears weak references to what it found before it lets go
/// of any of it, so a weak reference tells. So does `__del__`, which runs once in an object's life; of an object that
/// came back from it before it vouched, as those of a pool do, it says nothing any more.
#[derive(Debug)]
pub(super) struct Voucher {
    object: Py<PyAny>,
    weak: Option<Py<PyWeakrefReference>>,
    /// Whether its `__del__` had run already, and a weak reference is there to tell instead.
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

    /// The object, unless the garbage collector is about to end it.
    pub(super) fn object<'a, 'py>(&'a self, py: Python<'py>) -> Option<&'a Bound<'py, PyAny>> {
        let object = self.object.bind(py);
        let found = self.weak.as_ref().is_some_and(|weak| weak.bind(py).upgrade().is_none());
        let finalized = !self.came_back && native::is_finalized(object);
        (!found && !finalized).then_some(object)
    }

    /// What the object says of its stream. One that fails to say vouches for nothing.
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

    /// Shows the garbage collector the object.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

local! {
    static UNASKED: Cell<bool> = const { Cell::new(false) };
}

/// Whether no library is asked just now on this thread.
pub(super) fn is_unasked() -> bool {
    UNASKED.get().unwrap_or(false)
}

/// Runs `call`; to that no library vouches for a stream.
pub(crate) fn unasked<R>(call: impl FnOnce() -> R) -> R {
    UNASKED.during(true, call)
}

fn examine(_object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.getattr(intern!(kind.py(), "__weakrefoffset__"))?.extract::<isize>()? != 0)
}
