//! Imports arrays in host memory. If the object's `dtype` has as many bytes as the tensor's element type, the bridge
//! takes the `dtype`: Paddle and Warp export bfloat16 as `uint16` (Paddle 3.3, Warp 1.19). NumPy's DLPack cannot
//! express the types of `ml_dtypes`, so the bridge requests such an array as unsigned integers.

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::python::ImportedDlpack;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};

use super::dtype::own_name;
use super::dunder;
use super::refusals;
use super::types::{TypeFacts, facts, stands_for};
use crate::dlpack::host::HostTensor;
use crate::dlpack::{capsule, encode};
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::layout::Layout;
use crate::py::cai_dict::{self, Reading};
use crate::py::habits::Habit;
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::numpy;
use crate::py::text::{an_object, refused};

/// An imported array in host memory, for a library that makes its own array from this object.
#[pyclass(frozen, module = "cai_bridge", name = "_HostArray")]
#[derive(Debug)]
pub(crate) struct HostArray(pub(crate) HostTensor);

/// `for_copy` allows NumPy's copy of an array whose strides DLPack cannot express. If `x` is a capsule, consumes `x`.
pub(crate) fn take_in(x: &Bound<'_, PyAny>, for_copy: bool) -> PyResult<HostTensor> {
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        return HostTensor::take(capsule);
    }
    let of_type = facts(x)?;
    let stands_for = if of_type.is_array() { None } else { stands_for(x)? };
    let known = stands_for.as_ref().map(facts).transpose()?;
    let known = known.as_ref().unwrap_or(&of_type);
    refusals::check_mask(x)?;
    refusals::check(x, known, None)?;
    let mut tensor = match tensor(x, &of_type) {
        Err(error) => match answered(x.py(), bits(x))?.flatten() {
            Some(bits) => tensor(&bits, &*facts(&bits)?)?,
            None => match of_numpys(x, for_copy, &error)? {
                Some(tensor) => tensor,
                None => return Err(refusals::explain(x, known, error).into()),
            },
        },
        taken => taken?,
    };
    let dtype = tensor.array.dtype();
    if let Some(named) = named(x)?
        && named.element_size() == dtype.element_size()
        && dtype.lanes() == 1
    {
        tensor.array = tensor.array.of(named);
    }
    if known.has(Habit::Immutable) {
        tensor.array.set_readonly(Some(true));
        tensor.says_readonly = true;
    }
    Ok(tensor)
}

fn tensor(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<HostTensor> {
    if let Some(table) = facts.table
        && facts.has_still(table, x)?
    {
        let taken = HostTensor::of(ImportedDlpack::Versioned(table.import(x)?.0));
        return Ok(taken.map_err(|error| refusals::explain_null(x, facts, error))?);
    }
    let answer = dunder::ask_on_host(x)?;
    let given = answer.cast::<PyCapsule>();
    let given = given.map_err(|_| refused(Kind::CapsuleType, an_object(&answer)))?;
    HostTensor::take(given)
}

/// For a NumPy array whose export failed with `error`: imports a copy of `x` if `for_copy`. If that fails too, explains
/// by `__array_interface__`, where possible, why DLPack cannot express `x`.
#[cold]
fn of_numpys(x: &Bound<'_, PyAny>, for_copy: bool, error: &PyErr) -> PyResult<Option<HostTensor>> {
    if !numpy::is_array(x)? {
        return Ok(None);
    }
    let py = x.py();
    if for_copy {
        let copy = x.call_method0(intern!(py, "copy"))?;
        if let Some(tensor) = answered(py, tensor(&copy, &*facts(&copy)?))? {
            return Ok(Some(tensor));
        }
    }
    let dict = answered(py, x.getattr(intern!(py, "__array_interface__")))?;
    let Some(dict) = dict.and_then(|dict| dict.cast_into::<PyDict>().ok()) else {
        return Ok(None);
    };
    let (mut layout, no_type) = (Layout::EMPTY.clone(), |_| Ok((None, None)));
    let reading = Reading { declared: true, ..Reading::default() };
    let Err(refused) = cai_dict::decode(&dict, reading, no_type, &mut layout, None) else {
        return Ok(None);
    };
    refused.set_cause(py, Some(error.clone_ref(py)));
    Err(refused)
}

/// `None` if `x.dtype` names no element type of [`Dtype::all`].
fn named(x: &Bound<'_, PyAny>) -> PyResult<Option<Dtype>> {
    Ok(own_name(x)?.as_deref().and_then(Dtype::from_name))
}

/// `x` viewed as unsigned integers, if NumPy has no letter for the element type, as for bfloat16. `None` without
/// `__array_interface__`.
fn bits<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let Some(dtype) = named(x)?.filter(|named| named.is_opaque()) else { return Ok(None) };
    if x.getattr_opt(intern!(py, "__array_interface__"))?.is_none() {
        return Ok(None);
    }
    x.call_method1(intern!(py, "view"), (format!("u{}", dtype.itemsize()),)).map(Some)
}

/// False for a `dtype` that only NumPy has, such as text or dates.
pub(crate) fn may_be_shared(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let Some(dtype) = x.getattr_opt(intern!(py, "dtype"))? else { return Ok(true) };
    let typestr = dtype.getattr_opt(intern!(py, "str"))?;
    let Some(typestr) = typestr.and_then(|typestr| typestr.cast_into::<PyString>().ok()) else {
        return Ok(true);
    };
    let typestr = typestr.to_str()?;
    let is_numpys = Dtype::all().any(|dtype| !dtype.is_opaque() && dtype.typestr() == typestr);
    Ok(is_numpys || named(x)?.is_some_and(Dtype::is_opaque))
}

#[pymethods]
impl HostArray {
    /// A capsule with the array's own memory, or a copy.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> Answer<'py> {
        let _ = stream;
        entry(py, || {
            if let Some((kind, id)) = dl_device.filter(|device| *device != CPU) {
                let got = format!("({kind}, {id}) for an array on the host");
                return Err(Error::new(Kind::DlDevice, got).into());
            }
            let tensor = if copy == Some(true) { self.0.copy()? } else { self.0.clone() };
            let (array, is_versioned) =
                (tensor.array.clone(), max_version.is_some_and(|(major, _)| major > 0));
            let keep = Box::new(tensor);
            if is_versioned {
                let shared = encode::shared::<DLManagedTensorVersioned, _>(&array, true, keep)?;
                return capsule::new(py, shared);
            }
            encode::check_legacy(&array)?;
            capsule::new(py, encode::shared::<DLManagedTensor, _>(&array, true, keep)?)
        })
    }

    #[staticmethod]
    const fn __dlpack_device__() -> (u32, i32) {
        CPU
    }

    /// The dict by which NumPy reads the array. If NumPy has no letter for the element type, the typestr gives only the
    /// item's size, such as `<V2` for bfloat16.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let array = &self.0.array;
        array.dtype().check_shared()?;
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "version"), 3)?;
        dict.set_item(intern!(py, "typestr"), array.dtype().typestr())?;
        dict.set_item(intern!(py, "shape"), PyTuple::new(py, array.cai_extents())?)?;
        dict.set_item(intern!(py, "strides"), PyTuple::new(py, array.cai_steps())?)?;
        dict.set_item(intern!(py, "data"), (array.ptr(), array.readonly()))?;
        Ok(dict)
    }
}

const CPU: (u32, i32) = (1, 0);
