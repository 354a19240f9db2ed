//! CuPy's arrays, read by their own attributes: what their dict says, at half its cost.
//!
//! The first array of a type is read both ways. Where the answers differ, or an attribute is not an extension
//! type's own, arrays of that type are read by their dict.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::fields;
use crate::cai::{Claim, Decoded, VERSION};
use crate::device::Place;
use crate::dtype::Dtype;
use crate::layout::{Layout, Reach};
use crate::py::interpreter::answered;
use crate::py::native::{self, Question};
use crate::py::numpy;
use crate::py::streams::current;
use crate::stream::{Ready, Stream, Thread};

/// The attributes of a type of CuPy's arrays.
#[derive(Debug)]
pub(super) struct Parts {
    shape: Question,
    strides: Question,
    dtype: Question,
    data: Question,
    /// The type of `data`, and its address.
    pointer: (Py<PyType>, Question),
}

/// What an array says of itself: all but its stream.
type Said = (u64, Dtype, (Layout, Reach));

impl Parts {
    /// Those of `kind`, the type of `x`; `None` where its arrays are read by their dict.
    pub(super) fn of(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = x.py();
        let parts = answered(py, Self::found(x, kind))?.flatten();
        let same = match &parts {
            Some(parts) => answered(py, parts.agree(x))?,
            None => None,
        };
        if same == Some(true) {
            return Ok(parts);
        }
        tracing::debug!(
            name: "route", target: "cai_bridge", library = "cupy",
            "the bridge uses the public route: the attributes are not CuPy's, or its dict differs"
        );
        Ok(None)
    }

    fn found(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = x.py();
        let of = |kind, name| {
            Ok::<_, PyErr>(Question::of(kind, name, false)?.filter(Question::is_native))
        };
        // A type that says something else by its dict has one of its own.
        let own = of(kind, intern!(py, "__cuda_array_interface__"))?;
        if own.is_none() || !current::knows_cupy(py)? {
            return Ok(None);
        }
        let data = x.getattr(intern!(py, "data"))?.get_type();
        let (Some(shape), Some(strides), Some(dtype), Some(memory), Some(address)) = (
            of(kind, intern!(py, "shape"))?,
            of(kind, intern!(py, "strides"))?,
            of(kind, intern!(py, "dtype"))?,
            of(kind, intern!(py, "data"))?,
            of(&data, intern!(py, "ptr"))?,
        ) else {
            return Ok(None);
        };
        numpy::know_all(py)?;
        let pointer = (data.unbind(), address);
        Ok(Some(Self { shape, strides, dtype, data: memory, pointer }))
    }

    /// Whether the attributes of `x` say what its dict does.
    fn agree(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let dict = x.getattr(intern!(x.py(), "__cuda_array_interface__"))?.cast_into::<PyDict>()?;
        let by_dict = fields::decode(&dict, None, || Ok(None))?;
        let said = self.read(x)?;
        let (ptr, dtype, layout) = (by_dict.ptr, by_dict.dtype, by_dict.layout);
        Ok(!by_dict.readonly && said == Some((ptr, dtype, layout)))
    }

    /// What `x` says; `None` where its dict has to be asked.
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<Said>> {
        let (shape, strides) = (self.shape.answer(x)?, self.strides.answer(x)?);
        let (Some(shape), Some(strides)) = (native::tuple(&shape), native::tuple(&strides)) else {
            return Ok(None);
        };
        let Some(dtype) = numpy::known(&self.dtype.answer(x)?) else { return Ok(None) };
        let itemsize = dtype.itemsize();
        let mut layout = Layout::from_bytes(shape.as_slice(), Some(strides), itemsize)?;
        if layout.0.is_contiguous() {
            // Its dict has no strides then, whatever those of extents of 1 are.
            layout = Layout::from_bytes(shape.as_slice(), None, itemsize)?;
        }
        if layout.0.size() == 0 {
            return Ok(Some((0, dtype, layout)));
        }
        let data = self.data.answer(x)?;
        if !data.get_type().is(&self.pointer.0) {
            return Ok(None);
        }
        let address = native::small(&self.pointer.1.answer(&data)?);
        Ok(address.and_then(|ptr| u64::try_from(ptr).ok()).map(|ptr| (ptr, dtype, layout)))
    }

    /// What the dict of `x` would say of all but the stream; `None` where it has to be asked.
    pub(super) fn decode(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<Decoded>> {
        let said = self.read(x)?;
        Ok(said.map(|(ptr, dtype, layout)| {
            let claim = Claim::Said(Ready::Nothing);
            Decoded { version: VERSION, ptr, readonly: false, dtype, layout, claim }
        }))
    }
}

/// The stream that CuPy works on at `place`, as a dict names it that is read there.
pub(super) fn current(py: Python<'_>, place: Place) -> PyResult<Claim> {
    let native = current::cupys_or_legacy(py, place.ordinal)?;
    Ok(Claim::Said(Ready::On(Stream::from_native(native, Thread::current()))))
}
