//! The values of `readonly=`, `copy=` and `detach=`: `None`, `True`, `False`, or a NumPy bool. Any other value is an
//! error, even one that `bool()` accepts.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::text::{shown, type_name};
use crate::error::{Error, Kind};

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

/// `None` if `value` is neither a `bool` nor a NumPy bool.
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
