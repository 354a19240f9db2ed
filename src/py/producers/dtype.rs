//! The names of element types: from `x.dtype`, and from `dtype=`. A typestr may give no more than the bytes of an item:
//! bfloat16 is `<u2` in Warp's dicts, `<f2` in TensorRT-LLM's. So the bridge takes the object's own `dtype` if both
//! have the same size.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::types::TypeFacts;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::py::habits::is_of;
use crate::py::interpreter::answered;
use crate::py::numpy;
use crate::py::text::{attribute, beginning, shown};

/// The name of an element type, such as `bfloat16` for `torch.bfloat16`.
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
    let is_name = text.chars().all(|one| one.is_alphanumeric() || matches!(one, '_' | '.'));
    let last = if is_name { text.rsplit('.').next() } else { Some(&*text) };
    Ok(last.map(str::to_owned))
}

/// `None` if `x` has no `dtype` that can be read.
pub(super) fn own_name(x: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match answered(x.py(), x.getattr(intern!(x.py(), "dtype")))? {
        Some(dtype) => name_of(&dtype),
        None => Ok(None),
    }
}

/// `None` if `dtype` names no element type that both protocols share, or has swapped bytes.
pub(super) fn named(dtype: &Bound<'_, PyAny>) -> PyResult<Option<Dtype>> {
    if is_swapped(dtype)? {
        return Ok(None);
    }
    Ok(name_of(dtype)?.as_deref().and_then(Dtype::from_name))
}

fn is_swapped(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(attribute(dtype, intern!(dtype.py(), "byteorder"))?.is_some_and(|order| order == ">"))
}

/// Fails if the caller passed a `dtype=` that does not name the element type `dtype`.
pub(super) fn check_dtype(wanted: Option<&Bound<'_, PyAny>>, dtype: Dtype) -> PyResult<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let name =
        if is_swapped(wanted)? { shown(wanted)? } else { name_of(wanted)?.unwrap_or_default() };
    if name == dtype.name() {
        return Ok(());
    }
    let got = format!("{name:?} for the typestr {}, which is {}", dtype.typestr(), dtype.name());
    Err(Error::new(Kind::DtypeArgument, got).into())
}

/// The type that `x.dtype` names, if that type has the size of `said`, the typestr's type; else `said`. Can fail if
/// `x.dtype` is a NumPy dtype of the same size that names no type that both protocols share.
pub(super) fn agreed(x: &Bound<'_, PyAny>, facts: &TypeFacts, said: Dtype) -> PyResult<Dtype> {
    match facts.dtype_of(x)? {
        Some(own) if numpy::known(&own) != Some(said) => agreed_with(&own, said),
        _ => Ok(said),
    }
}

#[cold]
fn agreed_with(own: &Bound<'_, PyAny>, said: Dtype) -> PyResult<Dtype> {
    let is_numpys = is_numpys(own)?;
    if let Some(named) = named(own)? {
        if is_numpys {
            numpy::know_all(own.py())?;
        }
        return Ok(if named.itemsize() == said.itemsize() { named } else { said });
    }
    if is_numpys && !said.is_opaque() && itemsize(own)? == Some(said.itemsize()) {
        return Err(differ(own, said.typestr())?);
    }
    Ok(said)
}

/// Fails if the NumPy `dtype` of `x` contradicts `words`, the dict's typestr and `descr`. A `dtype` with another item
/// size is ignored.
pub(super) fn exact<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
    words: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let Some(own) = facts.dtype_of(x)? else { return Ok(None) };
    if !is_numpys(&own)? {
        return Ok(None);
    }
    let by_words = numpy::dtype_of_words(words)?;
    if own.eq(&by_words)? {
        return Ok(Some(own));
    }
    if itemsize(&own)? != itemsize(by_words.as_any())? {
        return Ok(None);
    }
    // A typestr of raw bytes without `descr` does not say what the bytes are, so `own` cannot contradict the typestr.
    let has_fields = words.contains(intern!(py, "descr"))?;
    let typestr = attribute(by_words.as_any(), intern!(py, "str"))?.unwrap_or_default();
    if has_fields || !typestr.contains('V') {
        return Err(differ(&own, &shown(by_words.as_any())?)?);
    }
    Ok(Some(own))
}

fn is_numpys(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = dtype.get_type();
    let module = attribute(kind.as_any(), intern!(dtype.py(), "__module__"))?;
    Ok(module.is_some_and(|module| is_of(&module, "numpy")))
}

fn itemsize(dtype: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let size = dtype.getattr_opt(intern!(dtype.py(), "itemsize"))?;
    Ok(size.map(|size| answered(dtype.py(), size.extract())).transpose()?.flatten())
}

fn differ(own: &Bound<'_, PyAny>, said: &str) -> PyResult<PyErr> {
    Ok(Error::new(Kind::DtypeDiffers, format!("{} beside the typestr {said}", shown(own)?)).into())
}
