//! Errors of calls that take several arrays, with the number of the array.

use pyo3::prelude::*;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct ItemError {
    /// The array's number, from 0; `None` if the error is not tied to one array.
    pub(crate) item: Option<usize>,
    pub(crate) error: PyErr,
}

pub(crate) const fn about(item: usize) -> impl Fn(PyErr) -> ItemError {
    move |error| ItemError { item: Some(item), error }
}

impl ItemError {
    pub(crate) fn map(self, change: impl FnOnce(PyErr) -> PyErr) -> Self {
        Self { item: self.item, error: change(self.error) }
    }

    pub(crate) fn among(self, among: &[usize]) -> Self {
        Self { item: self.item.map(|item| among[item]), error: self.error }
    }
}

impl From<PyErr> for ItemError {
    fn from(error: PyErr) -> Self {
        Self { item: None, error }
    }
}

impl From<Error> for ItemError {
    fn from(error: Error) -> Self {
        Self { item: None, error: error.into() }
    }
}

impl From<ItemError> for PyErr {
    fn from(wrong: ItemError) -> Self {
        wrong.error
    }
}
