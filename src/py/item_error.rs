//! Errors of calls that take several arrays, with the number of the array.

use pyo3::prelude::*;

use crate::error::Error;

/// An error about one of several arrays, or about the call as a whole.
#[derive(Debug)]
pub(crate) struct ItemError {
    /// The number of the array, counted from 0; `None` if the error is about the call as a whole.
    pub(crate) item: Option<usize>,
    pub(crate) error: PyErr,
}

/// Returns a function that turns an exception into an [`ItemError`] about the array `item`.
pub(crate) const fn about(item: usize) -> impl Fn(PyErr) -> ItemError {
    move |error| ItemError { item: Some(item), error }
}

impl ItemError {
    /// Passes the exception through `change`.
    pub(crate) fn map(self, change: impl FnOnce(PyErr) -> PyErr) -> Self {
        Self { item: self.item, error: change(self.error) }
    }

    /// Renumbers the array for a longer list: `among` has, for each array of the shorter list, its number in the longer
    /// one.
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
