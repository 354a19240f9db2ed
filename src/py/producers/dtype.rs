//! The names of element types: what `x.dtype` says, and what `dtype=` may be.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::text::{attribute, beginning, shown};

/// The name of the element type that `x.dtype` has.
pub(super) fn dtype_of(x: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match answered(x.py(), x.getattr(intern!(x.py(), "dtype")))? {
        Some(dtype) => name_of(&dtype),
        None => Ok(None),
    }
}

/// The name of an element type: a string, NumPy's `name`, a scalar type's own, or what it prints as
/// (`torch.bfloat16`).
pub(super) fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = dtype.py();
    let text = if let Ok(text) = dtype.cast::<PyString>() {
        beginning(text)?
    } else if let Some(name) = attribute(dtype, intern!(py, "name"))? {
        name
    } else if let Some(name) = attribute(dtype, intern!(py, "__name__"))? {
        name
    } else {
        shown(dtype)?
    };
    // Of `torch.bfloat16` the last; what no name is stays whole.
    let is_name = text.chars().all(|one| one.is_alphanumeric() || matches!(one, '_' | '.'));
    let last = if is_name { text.rsplit('.').next() } else { Some(&*text) };
    Ok(last.map(str::to_owned))
}

/// Refuses a `dtype=` that names another type than `dtype`.
pub(super) fn check_dtype(wanted: Option<&Bound<'_, PyAny>>, dtype: Dtype) -> PyResult<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let swapped =
        attribute(wanted, intern!(wanted.py(), "byteorder"))?.is_some_and(|order| order == ">");
    let name = if swapped { shown(wanted)? } else { name_of(wanted)?.unwrap_or_default() };
    if name == dtype.name() {
        return Ok(());
    }
    let got = format!("{name:?} for the typestr {}, which is {}", dtype.typestr(), dtype.name());
    Err(Error::new(Kind::DtypeArgument, got).into())
}
