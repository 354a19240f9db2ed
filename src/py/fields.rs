//! The dict of the CUDA Array Interface: read into [`Fields`], and made from them.
//!
//! Types are taken as the specification has them, with two liberties that producers in the field
//! need: a list is a tuple, and the read-only flag may be NumPy's `bool_` or the integer 0 or 1.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple};

use super::stream::{integer, type_name};
use crate::cai::{self, Decoded, Fields};
use crate::error::{Error, Kind};
use crate::layout::Dims;
use crate::stream::Thread;

/// Reads and checks `dict`. `dtype_name` is asked where the typestr does not name one type.
pub(super) fn decode(
    dict: &Bound<'_, PyDict>,
    dtype_name: impl FnOnce() -> Option<String>,
) -> PyResult<Decoded> {
    let py = dict.py();
    let version = required(dict, intern!(py, "version"))?;
    let version = int(&version).map_err(|got| Error::new(Kind::CaiVersion, got))?;
    let typestr = required(dict, intern!(py, "typestr"))?;
    let typestr = typestr.cast::<PyString>().map_err(|_| {
        Error::new(Kind::Typestr, format!("an object of type {}", type_name(&typestr)))
    })?;
    let typestr =
        typestr.to_str().map_err(|_| Error::new(Kind::Typestr, "a string that is no UTF-8"))?;
    let shape = dims(
        &required(dict, intern!(py, "shape"))?,
        "shape",
        Kind::ShapeMalformed,
        Kind::ShapeOverflow,
    )?;
    let data = data(&required(dict, intern!(py, "data"))?)?;
    let strides = optional(dict, intern!(py, "strides"))?
        .map(|strides| dims(&strides, "strides", Kind::StridesMalformed, Kind::ExtentOverflow))
        .transpose()?;
    let stream =
        optional(dict, intern!(py, "stream"))?.map(|stream| stream_entry(&stream)).transpose()?;
    let masked = optional(dict, intern!(py, "mask"))?.is_some();
    let structured = typestr.as_bytes().get(1) == Some(&b'V') && names_fields(dict)?;
    let fields = Fields { shape, typestr, data, strides, version, stream, masked, structured };
    Ok(cai::decode(fields, Thread::current(), dtype_name)?)
}

fn required<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?
        .ok_or_else(|| Error::new(Kind::DictKey, format!("no {:?}", key.to_string())).into())
}

fn optional<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(dict.get_item(key)?.filter(|value| !value.is_none()))
}

/// An integer, but no `bool`; otherwise what it was.
fn int(value: &Bound<'_, PyAny>) -> Result<i64, String> {
    if value.is_instance_of::<PyBool>() {
        return Err(format!("the bool {value}"));
    }
    value.extract::<i64>().map_err(|_| {
        if value.is_instance_of::<PyInt>() {
            format!("{value}")
        } else {
            format!("an object of type {}", type_name(value))
        }
    })
}

fn dims(values: &Bound<'_, PyAny>, field: &str, malformed: Kind, overflow: Kind) -> PyResult<Dims> {
    let mut dims = Dims::new();
    let mut push = |axis: usize, value: &Bound<'_, PyAny>| -> PyResult<()> {
        match int(value) {
            Ok(value) => dims.push(value),
            Err(got) => {
                let kind = if value.is_exact_instance_of::<PyInt>() { overflow } else { malformed };
                return Err(Error::at(kind, format!("{field}[{axis}]"), got).into());
            }
        }
        Ok(())
    };
    if let Ok(tuple) = values.cast::<PyTuple>() {
        for (axis, value) in tuple.iter().enumerate() {
            push(axis, &value)?;
        }
    } else if let Ok(list) = values.cast::<PyList>() {
        for (axis, value) in list.iter().enumerate() {
            push(axis, &value)?;
        }
    } else {
        return Err(
            Error::new(malformed, format!("an object of type {}", type_name(values))).into()
        );
    }
    Ok(dims)
}

fn data(value: &Bound<'_, PyAny>) -> PyResult<(u64, bool)> {
    let malformed = |got: String| Error::new(Kind::DataMalformed, got);
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else {
        return Err(malformed(format!("{value}")).into());
    };
    let (pointer, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    if pointer.is_instance_of::<PyBool>() {
        return Err(malformed(format!("{value}")).into());
    }
    let pointer = pointer.extract::<u64>().map_err(|_| malformed(format!("{value}")))?;
    let readonly = match readonly.extract::<bool>() {
        Ok(flag) => flag,
        Err(_) => match readonly.extract::<i64>() {
            Ok(0) => false,
            Ok(1) => true,
            _ => return Err(malformed(format!("{value}")).into()),
        },
    };
    Ok((pointer, readonly))
}

fn stream_entry(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if value.is_instance_of::<PyBool>() {
        return Err(Error::new(Kind::StreamType, format!("the bool {value}")).into());
    }
    let index = value.call_method0(intern!(value.py(), "__index__"));
    let index = index.map_err(|_| {
        Error::new(Kind::StreamType, format!("an object of type {}", type_name(value)))
    })?;
    integer(&index)
}

/// Whether `descr` describes fields: anything but the one unnamed type that CuPy writes.
fn names_fields(dict: &Bound<'_, PyDict>) -> PyResult<bool> {
    let Some(descr) = optional(dict, intern!(dict.py(), "descr"))? else {
        return Ok(false);
    };
    let Ok(fields) = descr.cast::<PyList>() else {
        return Ok(true);
    };
    if fields.len() != 1 {
        return Ok(!fields.is_empty());
    }
    let unnamed = fields
        .get_item(0)?
        .get_item(0)
        .is_ok_and(|name| name.is_truthy().is_ok_and(|named| !named));
    Ok(!unnamed)
}

/// A new dict with `fields`, of exactly the types that the specification gives.
pub(super) fn encode<'py>(
    py: Python<'py>,
    fields: &Fields<'static>,
) -> PyResult<Bound<'py, PyDict>> {
    // A copy of a dict that has all the keys is made in one piece; six insertions would grow it twice.
    static TEMPLATE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let template = TEMPLATE.get_or_try_init(py, || template(py))?;
    let dict = template.bind(py).copy()?;
    dict.set_item(intern!(py, "shape"), PyTuple::new(py, fields.shape.as_slice())?)?;
    dict.set_item(intern!(py, "typestr"), PyString::intern(py, fields.typestr))?;
    dict.set_item(intern!(py, "data"), fields.data)?;
    if let Some(strides) = &fields.strides {
        dict.set_item(intern!(py, "strides"), PyTuple::new(py, strides.as_slice())?)?;
    }
    if let Some(stream) = fields.stream {
        dict.set_item(intern!(py, "stream"), stream)?;
    }
    Ok(dict)
}

fn template(py: Python<'_>) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    for key in
        [intern!(py, "shape"), intern!(py, "typestr"), intern!(py, "data"), intern!(py, "strides")]
    {
        dict.set_item(key, py.None())?;
    }
    dict.set_item(intern!(py, "version"), cai::VERSION)?;
    dict.set_item(intern!(py, "stream"), py.None())?;
    Ok(dict.unbind())
}
