//! Adds strides that a dict leaves out. Numba's dict has None as strides, which means a contiguous array, even if one
//! of the array's strides is 0 (`is_contiguous`, numba-cuda 0.30.4 and numba-cuda-mlir 0.6.0).

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::types::TypeFacts;
use crate::py::habits::Habit;
use crate::py::interpreter::answered;
use crate::py::native;

pub(super) fn added<'py>(
    dict: Bound<'py, PyDict>,
    owner: &Bound<'py, PyAny>,
    of_owner: &TypeFacts,
) -> PyResult<Bound<'py, PyDict>> {
    let py = dict.py();
    if !of_owner.has(Habit::LeavesOutStrides) {
        return Ok(dict);
    }
    match answered(py, left_out(&dict, owner))?.flatten() {
        Some(strides) => {
            let dict = dict.copy()?;
            dict.set_item(intern!(py, "strides"), strides)?;
            Ok(dict)
        }
        None => Ok(dict),
    }
}

/// The strides of `owner`, if `dict` has none and describes the array of `owner`, and that array is broadcast (a stride
/// of 0 in a dimension of more than one item).
fn left_out<'py>(
    dict: &Bound<'py, PyDict>,
    owner: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = dict.py();
    if dict.get_item(intern!(py, "strides"))?.is_some_and(|strides| !strides.is_none()) {
        return Ok(None);
    }
    let (shape, strides) =
        (owner.getattr(intern!(py, "shape"))?, owner.getattr(intern!(py, "strides"))?);
    let (Some(extents), Some(steps)) = (native::tuple(&shape), native::tuple(&strides)) else {
        return Ok(None);
    };
    let mut axes = extents.as_slice().iter().zip(steps.as_slice());
    if extents.as_slice().contains(&0) || !axes.any(|(&extent, &step)| extent > 1 && step == 0) {
        return Ok(None);
    }
    let own = owner.getattr(intern!(py, "__cuda_array_interface__"))?.cast_into::<PyDict>()?;
    for name in [intern!(py, "shape"), intern!(py, "data"), intern!(py, "typestr")] {
        if !own.as_any().get_item(name)?.eq(dict.as_any().get_item(name)?)? {
            return Ok(None);
        }
    }
    Ok(Some(strides))
}
