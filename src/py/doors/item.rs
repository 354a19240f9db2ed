//! Which of several arrays an error is about.

use std::collections::HashSet;

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Error, Kind};

/// Where an error has which item of a tree it is about.
const ITEM: &str = "_cai_bridge_item";

/// Refuses one of those `capsules` among `xs` that is there twice: its tensor can be taken once.
pub(super) fn refuse_twice(capsules: &[usize], xs: &[Bound<'_, PyAny>]) -> PyResult<()> {
    let mut seen = HashSet::new();
    match capsules.iter().find(|item| !seen.insert(xs[**item].as_ptr() as usize)) {
        Some(&item) => {
            let twice = Error::new(Kind::CapsuleUsed, "one that is there twice");
            Err(at_item(xs[item].py(), twice.into(), item))
        }
        None => Ok(()),
    }
}

/// Notes which item of a tree an error is about. What is no `Exception`, such as an interrupt, is about none.
#[cold]
pub(super) fn at_item(py: Python<'_>, error: PyErr, item: usize) -> PyErr {
    if error.is_instance_of::<PyException>(py) {
        let _ = error.value(py).setattr(intern!(py, ITEM), item);
    }
    error
}

/// Which item an error is about, which it no longer has then.
pub(super) fn item_of(py: Python<'_>, error: &PyErr) -> Option<usize> {
    let had = error.value(py).getattr(intern!(py, "__dict__")).ok()?.cast_into::<PyDict>().ok()?;
    let item = had.get_item(intern!(py, ITEM)).ok()??.extract().ok()?;
    had.del_item(intern!(py, ITEM)).ok()?;
    Some(item)
}
