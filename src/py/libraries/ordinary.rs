//! A library for which the bridge needs only a few settings.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::habits::HabitRow;
use crate::py::library::{Functions, Library};

#[derive(Debug)]
pub(super) struct Ordinary {
    name: &'static str,
    habits: &'static [HabitRow],
    handle_attribute: Option<&'static str>,
    is_asked: bool,
    ignores_dicts: bool,
}

impl Ordinary {
    pub(super) const fn new(name: &'static str, habits: &'static [HabitRow]) -> Self {
        let (handle_attribute, is_asked, ignores_dicts) = (None, false, false);
        Self { name, habits, handle_attribute, is_asked, ignores_dicts }
    }

    /// For a library whose stream objects have their handle in the attribute `attribute`.
    pub(super) const fn with_handles_in(mut self, attribute: &'static str) -> Self {
        self.handle_attribute = Some(attribute);
        self
    }

    /// For a library whose object in `cai_bridge._libraries` has a method `_stream_in_use`. The method returns the
    /// library's current stream.
    pub(super) const fn with_current_stream(mut self) -> Self {
        self.is_asked = true;
        self
    }

    /// For a library that, as a consumer, does not wait for the stream that a dict names.
    pub(super) const fn ignoring_dicts(mut self) -> Self {
        self.ignores_dicts = true;
        self
    }
}

impl Library for Ordinary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn habits(&self) -> &'static [HabitRow] {
        self.habits
    }

    fn functions(&self) -> Option<&dyn Functions> {
        self.is_asked.then_some(self as _)
    }

    fn handle_attribute(&self) -> Option<&'static str> {
        self.handle_attribute
    }
}

impl Functions for Ordinary {
    fn module(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let file = py.import(format!("cai_bridge._libraries._{}", self.name))?;
        let library = file.getattr(self.name.to_uppercase())?;
        Ok(vec![library.getattr(intern!(py, "_stream_in_use"))?.unbind()])
    }

    fn ignore_dicts(&self) -> bool {
        self.ignores_dicts
    }
}
