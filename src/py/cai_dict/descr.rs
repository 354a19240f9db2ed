//! Reads the `descr` entry of a CAI dict, which names the fields of an element. By NumPy's array interface, the default
//! is `[("", typestr)]`, which names no fields.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};

use crate::cai;
use crate::dtype::Typestr;
use crate::error::{Error, Kind, SHOWN};
use crate::py::native;
use crate::py::text::an_object;

/// A `descr` with more levels of fields is refused; `descr` itself is the first level.
const DEEPEST: usize = 16;

/// Copies the fields that `descr` names; `None` if `descr` names no fields. Fails if `descr` is malformed or
/// contradicts the typestr.
pub(super) fn fields<'py>(
    descr: &Bound<'py, PyAny>,
    typestr: &str,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let refused = |got: String| Error::new(Kind::Descr, got);
    let Ok(list) = descr.cast::<PyList>() else {
        return Err(refused(an_object(descr)?).into());
    };
    if list.is_empty() {
        return Ok(None);
    }
    if let Some(same) = unnamed(list) {
        let same = native::beginning(&same, SHOWN + 1)?;
        let same = same.to_string_lossy();
        if Typestr::is_same(&same, typestr) {
            return Ok(None);
        }
        return Err(refused(format!("{same:?} beside the typestr {typestr:?}")).into());
    }
    let Some((bytes, fields)) = copied(list, DEEPEST) else {
        return Err(refused("a list of something other than fields".to_owned()).into());
    };
    if Typestr::may_have_fields(typestr) && Typestr::itemsize(typestr) == Some(bytes) {
        return Ok(Some(fields));
    }
    Err(refused(format!("fields of {bytes} bytes beside the typestr {typestr:?}")).into())
}

/// The typestr in a `descr` of the form `[("", typestr)]`; `None` for another list.
fn unnamed<'py>(list: &Bound<'py, PyList>) -> Option<Bound<'py, PyString>> {
    if list.len() != 1 {
        return None;
    }
    let field = list.get_item(0).ok()?.cast_into::<PyTuple>().ok()?;
    let name = field.get_item(0).ok()?.cast_into::<PyString>().ok()?;
    if field.len() != 2 || name.len().ok()? != 0 {
        return None;
    }
    field.get_item(1).ok()?.cast_into().ok()
}

/// The size in bytes of a list of fields, and a copy of the list. `None` if the list is malformed, too deep or too
/// large.
fn copied<'py>(list: &Bound<'py, PyList>, depth: usize) -> Option<(i64, Bound<'py, PyList>)> {
    let depth = depth.checked_sub(1)?;
    let (mut bytes, copy) = (0_i64, PyList::empty(list.py()));
    for field in list.iter() {
        let field = field.cast_into::<PyTuple>().ok()?;
        if !matches!(field.len(), 2 | 3) || !is_name(&field.get_item(0).ok()?) {
            return None;
        }
        let kind = field.get_item(1).ok()?;
        let (size, kind) = if let Ok(inner) = kind.cast::<PyList>() {
            let (size, inner) = copied(inner, depth)?;
            (size, inner.into_any())
        } else {
            let text = native::beginning(kind.cast::<PyString>().ok()?, SHOWN + 1).ok()?;
            (Typestr::itemsize(text.to_str().ok()?)?, text.into_any())
        };
        let count = if field.len() == 3 { count(&field.get_item(2).ok()?)? } else { 1 };
        bytes = bytes.checked_add(size.checked_mul(count)?)?;
        let mut items: Vec<_> = field.iter().collect();
        items[1] = kind;
        copy.append(PyTuple::new(list.py(), items).ok()?).ok()?;
    }
    Some((bytes, copy))
}

fn is_name(name: &Bound<'_, PyAny>) -> bool {
    let is_text = |text: &Bound<'_, PyAny>| text.is_exact_instance_of::<PyString>();
    match name.cast::<PyTuple>() {
        Ok(pair) => pair.len() == 2 && pair.iter().all(|text| is_text(&text)),
        Err(_) => is_text(name),
    }
}

/// `None` if `shape` is not a valid shape, or if multiplying its extents overflows.
fn count(shape: &Bound<'_, PyAny>) -> Option<i64> {
    if shape.is_exact_instance_of::<PyInt>() {
        return native::small(shape).filter(|count| *count >= 0);
    }
    let extents = native::tuple(shape)?;
    let product = |count: i64, extent: &i64| count.checked_mul(*extent).filter(|_| *extent >= 0);
    extents.as_slice().iter().try_fold(1, product)
}

/// A CAI dict for an array that DLPack cannot express. Shape, data, strides and stream are Python's `None`; a copy of
/// the dict gets their values.
pub(super) fn words(
    py: Python<'_>,
    typestr: &str,
    fields: Option<Bound<'_, PyList>>,
) -> PyResult<Py<PyDict>> {
    let words = PyDict::new(py);
    for name in [intern!(py, "shape"), intern!(py, "data"), intern!(py, "strides")] {
        words.set_item(name, py.None())?;
    }
    words.set_item(intern!(py, "typestr"), typestr)?;
    words.set_item(intern!(py, "version"), cai::VERSION)?;
    words.set_item(intern!(py, "stream"), py.None())?;
    if let Some(fields) = fields {
        words.set_item(intern!(py, "descr"), fields)?;
    }
    Ok(words.unbind())
}
