//! Recognises lists of numbers, and objects that are assumed to keep no array's memory alive.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyCFunction, PyComplex, PyDict, PyFloat, PyFrozenSet, PyFunction, PyInt,
    PyList, PyModule, PyRange, PySet, PySlice, PyString, PyTuple, PyType,
};

use super::imported::imported;
use super::interpreter::{Signals, answered};

macro_rules! plain {
    ($($type:ty),+) => {
        /// Whether `x` is None, or an object of exactly `int`, `float`, `complex`, `bool`, `str` or `bytes`.
        pub(super) fn is_plain(x: &Bound<'_, PyAny>) -> bool {
            x.is_none() $(|| x.is_exact_instance_of::<$type>())+
        }

        /// The types of the objects for which [`is_plain`] is true.
        #[pyfunction]
        pub(crate) fn _plain_types(py: Python<'_>) -> Vec<Bound<'_, PyType>> {
            vec![py.None().bind(py).get_type(), $(py.get_type::<$type>()),+]
        }
    };
}

plain!(PyInt, PyFloat, PyString, PyBool, PyBytes, PyComplex);

pub(super) fn is_constant(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let is_fixed = is_plain(x)
        || x.is(py.Ellipsis())
        || x.is(py.NotImplemented())
        || x.is_exact_instance_of::<PyRange>()
        || x.is_exact_instance_of::<PySlice>();
    if let Ok(class) = x.cast::<PyType>() {
        // A class that was made at run time can have attributes that keep memory alive.
        return Ok(class.getattr(intern!(py, "__flags__"))?.extract::<u64>()? & HEAP_TYPE == 0);
    }
    if x.is_exact_instance_of::<PyCFunction>() {
        // A bound method holds its object; a function of a module holds the module.
        return Ok(x.getattr(intern!(py, "__self__"))?.is_instance_of::<PyModule>());
    }
    if x.is_exact_instance_of::<PyFunction>() {
        for held in
            [intern!(py, "__closure__"), intern!(py, "__defaults__"), intern!(py, "__kwdefaults__")]
        {
            if !x.getattr(held)?.is_none() {
                return Ok(false);
            }
        }
        // Its attributes.
        return x.getattr(intern!(py, "__dict__"))?.is_empty();
    }
    if is_builtin_container(x) {
        return are_constants(x);
    }
    Ok(is_fixed || is_numpys_number(x)? || is_of_constants(x)?)
}

/// [`are_constants`] returns false for a container with more items.
const LOOKED_AT: usize = 64;

fn are_constants(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if x.len()? > LOOKED_AT {
        return Ok(false);
    }
    let (parts, keys) = match x.cast::<PyDict>() {
        Ok(dict) => (dict.values().into_any(), Some(dict.keys())),
        Err(_) => (x.clone(), None),
    };
    for part in parts.try_iter()?.chain(keys.into_iter().flatten().map(Ok)) {
        let part = part?;
        // Of inner containers only a tuple of plain values counts. Do not recurse: a container can contain itself.
        let is_constant = if is_builtin_container(&part) {
            part.cast::<PyTuple>().is_ok_and(|tuple| tuple.iter().all(|one| is_plain(&one)))
        } else {
            is_constant(&part)?
        };
        if !is_constant {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Classes for [`is_of_constants`], as module and name.
const OF_CONSTANTS: [(&str, &str); 17] = [
    ("builtins", "str"),
    ("builtins", "bytes"),
    ("builtins", "int"),
    ("builtins", "float"),
    ("builtins", "complex"),
    ("builtins", "code"),
    ("weakref", "ReferenceType"),
    ("weakref", "ProxyType"),
    ("weakref", "CallableProxyType"),
    ("_weakrefset", "WeakSet"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("pathlib", "PurePath"),
    ("enum", "Enum"),
    ("datetime", "date"),
    ("datetime", "timedelta"),
    ("numpy", "dtype"),
];

/// Whether `x` is an object of a class in [`OF_CONSTANTS`], or of a derived class. The `__dict__` of `x` must be empty
/// or missing, unless `x` is a weak reference, a `WeakSet`, or a member of an `Enum` without another class of the list.
fn is_of_constants(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    for kind in x.get_type().mro() {
        let Ok(kind) = kind.cast_into::<PyType>() else { continue };
        let (Ok(module), Ok(name)) = (kind.module(), kind.name()) else { continue };
        let (Ok(module), Ok(name)) = (module.to_str(), name.to_str()) else { continue };
        let is_one = |(of, class): &(&str, &str)| {
            *class == name
                && (*of == module
                    || module.strip_prefix(of).is_some_and(|rest| rest.starts_with('.')))
        };
        if OF_CONSTANTS.iter().any(is_one) {
            if matches!(module, "weakref" | "_weakrefset") {
                return Ok(true);
            }
            let own = answered(py, x.getattr_opt(intern!(py, "__dict__")))?.flatten();
            let is_bare = *name == *"Enum" || own.is_none_or(|own| own.is_empty().unwrap_or(true));
            return Ok(is_bare);
        }
    }
    Ok(false)
}

/// The bit in `__flags__` of a type that was made at run time (CPython's `Py_TPFLAGS_HEAPTYPE`).
const HEAP_TYPE: u64 = 1 << 9;

fn is_builtin_container(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyTuple>()
        || x.is_exact_instance_of::<PyList>()
        || x.is_exact_instance_of::<PyDict>()
        || x.is_exact_instance_of::<PySet>()
        || x.is_exact_instance_of::<PyFrozenSet>()
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

/// The most levels of nested lists that [`is_of_numbers`] examines. NumPy allows no more dimensions.
const DEEPEST: usize = 64;

/// On each level, looks only into the first of the inner lists. Objects of classes derived from `list` or `tuple` do
/// not count as lists.
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
            numbers &= is_number(&part)?;
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

fn is_number(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NUMBER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let is_pythons = x.is_exact_instance_of::<PyFloat>()
        || x.is_exact_instance_of::<PyInt>()
        || x.is_exact_instance_of::<PyComplex>()
        || x.is_exact_instance_of::<PyBool>();
    if is_pythons || is_builtin_container(x) || x.is_exact_instance_of::<PyString>() {
        return Ok(is_pythons);
    }
    let number = NUMBER.import(x.py(), "numbers", "Number")?;
    Ok(answered(x.py(), x.is_instance(number))?.unwrap_or(false) || is_numpys_number(x)?)
}
