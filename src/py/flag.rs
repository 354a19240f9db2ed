//! What `readonly=` and `copy=` may be: `None`, `True` or `False`, or NumPy's scalar of these. What has a
//! truth value of another kind is refused, since it was meant for something else.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::text::{shown, type_name};
use crate::error::{Error, Kind};

/// The flag that was given as the argument `name`.
#[inline]
pub(super) fn parse(name: &'static str, flag: Option<&Bound<'_, PyAny>>) -> PyResult<Option<bool>> {
    let Some(given) = flag else { return Ok(None) };
    given.extract::<bool>().map(Some).map_err(|error| refused(name, given, error))
}

#[cold]
fn refused(name: &'static str, given: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(given.py()) {
        return error;
    }
    let got = format!("{} ({})", shown(given), type_name(given));
    Error::at(Kind::Flag, name, got).into()
}
