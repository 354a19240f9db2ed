//! The values of `readonly=` and `copy=`: `None`, `True`, `False`, or a NumPy bool. Any other value is an error, even
//! one that `bool()` accepts, since the caller probably meant something else. `detach=` has the same values.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::text::{shown, type_name};
use crate::error::{Error, Kind};

/// The value of the argument `name`; `None` if the caller passed None or nothing.
#[inline(always)]
pub(super) fn parse(name: &'static str, flag: Option<&Bound<'_, PyAny>>) -> PyResult<Option<bool>> {
    flag.map_or(Ok(None), |given| given_flag(name, given).map(Some))
}

#[inline(never)]
fn given_flag(name: &'static str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Some(flag) = truth(given)? {
        return Ok(flag);
    }
    let got = format!("{} ({})", shown(given)?, type_name(given)?);
    Err(Error::at(Kind::Flag, name, got).into())
}

/// The truth of a `bool` or NumPy bool; `None` for any other object.
#[inline]
pub(super) fn truth(value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Some(flag.is_true()));
    }
    match type_name(value)?.as_str() {
        "numpy.bool" | "numpy.bool_" => value.is_truthy().map(Some),
        _ => Ok(None),
    }
}
