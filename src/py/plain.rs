//! Numbers, texts and other constants: they are no arrays, hold none, and keep no memory alive.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use super::imported::imported;
use super::interpreter::{Signals, answered};

macro_rules! plain {
    ($($type:ty),+) => {
        /// Whether `x` is no array and holds none, of which there may be very many.
        pub(super) fn is_plain(x: &Bound<'_, PyAny>) -> bool {
            x.is_none() $(|| x.is_exact_instance_of::<$type>())+
        }

        /// The types of what is plain, of which results of calls may be.
        #[pyfunction]
        pub(crate) fn _plain_types(py: Python<'_>) -> Vec<Bound<'_, PyType>> {
            vec![py.None().bind(py).get_type(), $(py.get_type::<$type>()),+]
        }
    };
}

plain!(PyInt, PyFloat, PyString, PyBool, PyBytes, PyComplex);

/// Whether `x` can refer to nothing, so that it keeps no memory alive. A class derived from one of these may.
pub(super) fn is_constant(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    Ok(is_plain(x) || x.is(py.Ellipsis()) || x.is(py.NotImplemented()) || is_numpys_number(x)?)
}

fn is_numpys_number(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let Some(numpy) = imported(py, intern!(py, "numpy"))? else { return Ok(false) };
    let is_number = || -> PyResult<bool> {
        let is_own = x.get_type().module()? == "numpy";
        let kinds = (numpy.getattr(intern!(py, "number"))?, numpy.getattr(intern!(py, "bool_"))?);
        Ok(is_own && x.is_instance(kinds.into_pyobject(py)?.as_any())?)
    };
    Ok(answered(py, is_number())?.unwrap_or(false))
}

/// How deep lists of numbers may lie in each other: as many dimensions has no array.
const DEEPEST: usize = 64;

/// Whether a list or tuple is what a library makes an array of: numbers, or lists and tuples of which the first is so.
pub(super) fn is_of_numbers(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, mut signals, mut level) = (x.py(), Signals::default(), x.clone());
    for _ in 0..DEEPEST {
        let parts = if let Ok(list) = level.cast_exact::<PyList>() {
            list.to_tuple()
        } else if let Ok(tuple) = level.cast_exact::<PyTuple>() {
            tuple.clone()
        } else {
            return Ok(false);
        };
        let Ok(first) = parts.get_item(0) else { return Ok(false) };
        let (mut numbers, mut containers) = (true, true);
        for part in parts.iter_borrowed() {
            signals.look(py)?;
            numbers &= is_number(&part);
            containers &=
                part.is_exact_instance_of::<PyList>() || part.is_exact_instance_of::<PyTuple>();
            if !numbers && !containers {
                return Ok(false);
            }
        }
        if numbers {
            return Ok(true);
        }
        level = first;
    }
    Ok(false)
}

fn is_number(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyFloat>()
        || x.is_exact_instance_of::<PyInt>()
        || x.is_exact_instance_of::<PyComplex>()
        || x.is_exact_instance_of::<PyBool>()
}
