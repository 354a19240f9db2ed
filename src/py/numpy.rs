//! NumPy through its C API: element types as `numpy.dtype` objects, new arrays, and the values of given arrays. The
//! `numpy` crate panics if NumPy is missing or too new, so nothing here uses the C API before [`reach`] has succeeded.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use numpy::npyffi::{NPY_VERSION, npy_intp};
use numpy::{
    PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods, get_array_module,
};
use pyo3::exceptions::{PyImportError, PyMemoryError, PyModuleNotFoundError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString, PyTuple};

use super::anywhere::Anywhere;
use super::imported::imported;
use super::interpreter::answered;
use crate::buffer::no_host_memory;
use crate::descriptor::Descriptor;
use crate::driver::host::HostMemory;
use crate::dtype::Dtype;

fn reach(py: Python<'_>) -> PyResult<()> {
    let check = || {
        let multiarray = get_array_module(py)?;
        multiarray.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let Some(asked) = multiarray.getattr_opt("_get_ndarray_c_version")? else { return Ok(()) };
        let version: u32 = asked.call0()?.extract()?;
        if version > NPY_VERSION {
            return Err(PyImportError::new_err(format!(
                "numpy: got ABI version {version:#x}; allowed: at most {NPY_VERSION:#x}"
            )));
        }
        Ok(())
    };
    NUMPY.reached.get_or_try_init(py, check).copied()
}

struct Kept {
    reached: PyOnceLock<()>,
    dtypes: [PyOnceLock<Py<PyArrayDescr>>; Dtype::COUNT],
    last: AtomicUsize,
}

static NUMPY: Kept = Kept {
    reached: PyOnceLock::new(),
    dtypes: [const { PyOnceLock::new() }; Dtype::COUNT],
    last: AtomicUsize::new(0),
};

/// The element type of a cached `numpy.dtype`; `None` for any other object.
pub(crate) fn known(object: &Bound<'_, PyAny>) -> Option<Dtype> {
    let is = |dtype: &Dtype| {
        let known = NUMPY.dtypes[dtype.index()].get(object.py());
        known.is_some_and(|known| known.as_ptr() == object.as_ptr())
    };
    let last = Dtype::all().nth(NUMPY.last.load(Ordering::Relaxed)).filter(is);
    last.or_else(|| {
        let found = Dtype::all().find(is)?;
        NUMPY.last.store(found.index(), Ordering::Relaxed);
        Some(found)
    })
}

/// The rows of the table of element types: name, DLPack code, bits and typestr.
#[pyfunction]
pub(crate) fn _dtypes() -> Vec<(&'static str, u8, u8, &'static str)> {
    let row = |dtype: Dtype| (dtype.name(), dtype.code(), dtype.bits(), dtype.typestr());
    Dtype::all().map(row).collect()
}

pub(crate) fn know_all(py: Python<'_>) -> PyResult<()> {
    Dtype::all().filter(|known| !known.is_opaque()).try_for_each(|known| dtype(py, known).map(drop))
}

/// For a type that NumPy lacks, returns the dtype of `ml_dtypes`, or else raw bytes.
pub(crate) fn dtype(py: Python<'_>, dtype: Dtype) -> PyResult<Bound<'_, PyArrayDescr>> {
    dtype.check_shared()?;
    let known = &NUMPY.dtypes[dtype.index()];
    if let Some(dtype) = known.get(py) {
        return Ok(dtype.bind(py).clone());
    }
    reach(py)?;
    if !dtype.is_opaque() {
        let made = PyArrayDescr::new(py, dtype.typestr())?;
        return Ok(known.get_or_init(py, || made.unbind()).bind(py).clone());
    }
    match py.import("ml_dtypes") {
        Ok(extended) => {
            if let Some(scalar) = answered(py, extended.getattr(dtype.name()))? {
                return PyArrayDescr::new(py, scalar);
            }
        }
        Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {}
        Err(error) => return Err(error),
    }
    PyArrayDescr::new(py, dtype.typestr())
}

/// The key of the producer's own dtype in the dict that [`dtype_of_words`] reads.
pub(crate) fn exact(py: Python<'_>) -> &Bound<'_, PyString> {
    intern!(py, "dtype")
}

/// Returns the producer's own dtype (the key [`exact`]), else that of `descr`, else that of `typestr`.
pub(crate) fn dtype_of_words<'py>(
    words: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyArrayDescr>> {
    let py = words.py();
    reach(py)?;
    if let Some(exact) = words.get_item(exact(py))? {
        return Ok(exact.cast_into::<PyArrayDescr>()?);
    }
    match words.get_item(intern!(py, "descr"))? {
        Some(fields) => Ok(of_fields(&fields.cast_into::<PyList>()?)?.0),
        None => PyArrayDescr::new(py, words.as_any().get_item(intern!(py, "typestr"))?),
    }
}

/// Also returns the dtype's size in bytes. Raw bytes (`V`) with neither name nor title are padding.
fn of_fields<'py>(fields: &Bound<'py, PyList>) -> PyResult<(Bound<'py, PyArrayDescr>, usize)> {
    let py = fields.py();
    let (names, formats) = (PyList::empty(py), PyList::empty(py));
    let (offsets, titles) = (PyList::empty(py), PyList::empty(py));
    let mut offset = 0;
    for (number, field) in fields.iter().enumerate() {
        let (name, kind) = (field.get_item(0)?, field.get_item(1)?);
        let (title, name) = match name.cast::<PyTuple>() {
            Ok(pair) => (Some(pair.get_item(0)?), pair.get_item(1)?),
            Err(_) => (None, name),
        };
        let item = match kind.cast::<PyList>() {
            Ok(inner) => of_fields(inner)?.0,
            Err(_) => PyArrayDescr::new(py, &kind)?,
        };
        let is_gap = title.is_none()
            && name.len()? == 0
            && kind.cast::<PyString>().is_ok_and(|kind| kind.to_string_lossy().contains('V'));
        let item = match field.len()? {
            3 => PyArrayDescr::new(py, (item, field.get_item(2)?))?,
            _ => item,
        };
        if !is_gap {
            let unnamed = name.len()? == 0;
            names.append(if unnamed {
                format!("f{number}").into_pyobject(py)?.into_any()
            } else {
                name
            })?;
            formats.append(&item)?;
            offsets.append(offset)?;
            titles.append(title)?;
        }
        offset += item.itemsize();
    }
    let made = PyDict::new(py);
    made.set_item(intern!(py, "names"), names)?;
    made.set_item(intern!(py, "formats"), formats)?;
    made.set_item(intern!(py, "offsets"), offsets)?;
    made.set_item(intern!(py, "titles"), titles)?;
    made.set_item(intern!(py, "itemsize"), offset)?;
    Ok((PyArrayDescr::new(py, made)?, offset))
}

/// The new array is C-contiguous and not initialized. `dtype` must be the element type of `array`.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    array: &Descriptor,
    dtype: Bound<'py, PyArrayDescr>,
) -> PyResult<(Bound<'py, PyUntypedArray>, HostMemory)> {
    let (shape, bytes) = (array.cai_shape(), array.nbytes());
    let extents = shape.as_slice().iter().map(|extent| npy_intp::try_from(*extent));
    let mut shape = extents.collect::<Result<Vec<_>, _>>()?;
    let (ndim, length) = (c_int::try_from(shape.len())?, usize::try_from(bytes)?);
    let (itemsize, wanted) = (dtype.itemsize(), array.cai_itemsize());
    if usize::try_from(wanted) != Ok(itemsize) {
        let name = array.dtype().name();
        return Err(PyTypeError::new_err(format!(
            "dtype: got a {name} of {itemsize} bytes from ml_dtypes; allowed: {wanted}"
        )));
    }
    // SAFETY: `dtype` is a NumPy dtype. It comes from a function of this module, which called `reach`, so the C API is
    // loaded. `shape` has `ndim` extents, outlives the call and is not kept. The call takes the reference to the dtype,
    // and returns an array, or NULL with an exception set.
    let made = unsafe {
        let (extents, dtype) = (shape.as_mut_ptr(), dtype.into_dtype_ptr());
        let made = PY_ARRAY_API.PyArray_Empty(py, ndim, extents, dtype, 0);
        Bound::from_owned_ptr_or_err(py, made).map(|made| made.cast_into_unchecked())
    };
    let made: Bound<'py, PyUntypedArray> = made.map_err(|error| {
        if error.is_instance_of::<PyMemoryError>(py) { no_host_memory(bytes).into() } else { error }
    })?;
    let owner = Box::new(Anywhere::new(Some(made.clone().into_any().unbind())));
    // SAFETY: every NumPy array has this field, whatever its element type.
    let start = NonNull::new(unsafe { made.cast_unchecked::<PyArrayDyn<u8>>() }.data());
    let start = start.ok_or_else(|| no_host_memory(bytes))?;
    // SAFETY: the array owns `length` bytes from `start` on, since its item size was checked. `owner` keeps the array
    // alive, and no other code has the array yet.
    let memory = unsafe { HostMemory::kept(start, length, owner) };
    Ok((made, memory))
}

/// Does not import NumPy.
pub(crate) fn is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let Some(numpy) = imported(py, intern!(py, "numpy"))? else { return Ok(false) };
    // While another thread imports NumPy, the class can be missing.
    let Some(class) = numpy.getattr_opt(intern!(py, "ndarray"))? else { return Ok(false) };
    x.is_instance(&class)
}

/// `None` if `data` is not a NumPy array. 8-bit floats are returned as their bits.
pub(crate) fn values<'py>(data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = data.py();
    if !is_array(data)? {
        return Ok(None);
    }
    reach(py)?;
    let array = data.cast::<PyUntypedArray>()?;
    let name = array.dtype().getattr("name")?;
    let flat = array.call_method0("ravel")?;
    let bits = name.extract::<&str>()?.starts_with("float8_");
    let flat = if bits { flat.call_method1("view", ("u1",))? } else { flat };
    PyTuple::new(py, [name, array.getattr("shape")?, flat.call_method0("tolist")?]).map(Some)
}
