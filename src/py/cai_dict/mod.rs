//! Reads and writes the CUDA Array Interface dict.
//!
//! [`decode`] also accepts what real producers have: `shape` and `strides` as lists, and NumPy's `bool_`, 0 or 1 as the
//! read-only flag.

mod descr;
mod recent;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple};

use crate::cai::{self, Decoded, Dialect, Fields};
use crate::descriptor::Descriptor;
use crate::dtype::{Dtype, Typestr};
use crate::error::{Error, Kind, SHOWN};
use crate::layout::{Dims, Layout, MAX_NDIM, count_of_strides};
use crate::py::interpreter::answered;
use crate::py::streams::argument::index;
use crate::py::text::{an_object, refused, shown};
use crate::py::{flag, native, numpy};
use crate::stream::{Ready, Stream, Thread};

/// A dict with the typestr and `descr` of an array that DLPack cannot express; `None` for other arrays.
pub(crate) type Words = Option<Py<PyDict>>;

/// The fields are those of [`Dialect`]; `said` is [`Dialect::dtype`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) unnamed: Option<Stream>,
    pub(crate) declared: bool,
    pub(crate) said: Option<Dtype>,
}

pub(crate) type OwnType = (Option<Dtype>, Option<String>);

/// Reads and checks `dict`, and writes its layout to `layout`. `own` asks the object for its element type. An array
/// that DLPack cannot express is refused, unless `words` is there to receive its typestr and `descr`.
pub(crate) fn decode(
    dict: &Bound<'_, PyDict>,
    reading: Reading,
    own: impl FnOnce(bool) -> PyResult<OwnType>,
    layout: &mut Layout,
    words: Option<&mut Words>,
) -> PyResult<Decoded> {
    let (here, Reading { unnamed, declared, said }) = (Thread::current(), reading);
    let mut dialect = Dialect { here, unnamed, declared, goes_on: false, dtype: said };
    let names = names(dict.py());
    match native::plain(dict, names, |fields| cai::decode(fields, dialect, || None, layout)) {
        // Go on: `own` may return the element type.
        Some(Err(error)) if matches!(error.kind(), Kind::DtypeAmbiguous | Kind::Dtype) => {}
        // Go on: `words` may receive the typestr.
        Some(Err(error)) if words.is_some() && cai::is_of_dlpacks(error.kind()) => {}
        Some(decoded) => return Ok(decoded?),
        None => {}
    }
    dialect.goes_on = words.is_some();
    let [shape, typestr, data, version, strides, stream, mask, descr] = entries(dict, names)?;
    let version = required(version, "version")?;
    let version = int(&version)?.map_err(|got| Error::new(Kind::CaiVersion, got))?;
    let typestr = required(typestr, "typestr")?;
    let typestr = typestr
        .cast_into::<PyString>()
        .map_err(|error| refused(Kind::Typestr, an_object(&error.into_inner())))?;
    let typestr = native::beginning(&typestr, SHOWN + 1)?;
    let typestr = answered(dict.py(), typestr.to_str())?
        .ok_or_else(|| Error::new(Kind::Typestr, "a string that is not UTF-8"))?;
    let shape = required(shape, "shape")?;
    let shape = dims(&shape, "shape", Kind::ShapeMalformed, Kind::ShapeOverflow, |length| {
        Error::new(Kind::Ndim, length.to_string())
    })?;
    let data = data_entry(&required(data, "data")?)?;
    let ndim = shape.as_slice().len();
    let strides = present(strides)
        .map(|strides| {
            let (malformed, overflow) = (Kind::StridesMalformed, Kind::ExtentOverflow);
            dims(&strides, "strides", malformed, overflow, |length| count_of_strides(length, ndim))
        })
        .transpose()?;
    let stream = present(stream).map(|stream| stream_of(&stream)).transpose()?;
    if let Some(mask) = present(mask) {
        return Err(Error::new(Kind::Mask, an_object(&mask)?).into());
    }
    let named = match present(descr) {
        Some(descr) if Typestr::itemsize(typestr).is_some() => descr::fields(&descr, typestr)?,
        _ => None,
    };
    let structured = named.is_some();
    let fields = Fields { shape, typestr, data, strides, version, stream, structured };
    let mut name = None;
    let is_open = matches!(Typestr::parse(typestr), Ok(Typestr::Opaque(_)));
    if is_open || (!structured && Typestr::may_have_fields(typestr)) {
        let (own, of_own) = own(is_open)?;
        (dialect.dtype, name) = (said.or(own), of_own);
    }
    let decoded = cai::decode(&fields, dialect, || name, layout)?;
    if let Some(words) = words.filter(|_| decoded.dtype.is_cais_alone()) {
        let usual = Typestr::respelled(typestr);
        *words = Some(descr::words(dict.py(), usual.as_deref().unwrap_or(typestr), named)?);
    }
    Ok(decoded)
}

/// The alignment in bytes that a GPU needs to read the items of an array with these `words`.
pub(crate) fn alignment(words: &Bound<'_, PyDict>) -> PyResult<u64> {
    let typestr = words.as_any().get_item(intern!(words.py(), "typestr"))?;
    Ok(Typestr::alignment(typestr.extract()?))
}

#[cold]
pub(crate) fn no_word(array: &Descriptor, words: &Bound<'_, PyDict>) -> PyErr {
    let py = words.py();
    let refused = || -> PyResult<PyErr> {
        let typestr: String = words.as_any().get_item(intern!(py, "typestr"))?.extract()?;
        let strides = (!array.layout().is_contiguous()).then(|| array.cai_strides());
        let fields = Fields {
            shape: array.cai_shape(),
            typestr: &typestr,
            data: (array.ptr(), array.readonly()),
            strides,
            version: cai::VERSION,
            stream: None,
            structured: words.contains(intern!(py, "descr"))?,
        };
        let here = Thread::current();
        let dialect = Dialect { here, unnamed: None, declared: false, goes_on: false, dtype: None };
        let decoded = cai::decode(&fields, dialect, || None, &mut Layout::EMPTY.clone());
        let refused = decoded.err().unwrap_or_else(|| Error::new(Kind::Dtype, typestr.clone()));
        Ok(refused.into())
    };
    refused().unwrap_or_else(|error| error)
}

fn stream_of(stream: &Bound<'_, PyAny>) -> PyResult<i128> {
    if stream.is_instance_of::<PyBool>() {
        return Err(Error::new(Kind::StreamInDict, format!("the bool {stream}")).into());
    }
    index(stream)?.ok_or_else(|| {
        // An `int` gets here only if it needs more than 64 bits.
        if stream.is_instance_of::<PyInt>() {
            refused(Kind::StreamNoOrder, shown(stream))
        } else {
            refused(Kind::StreamInDict, an_object(stream))
        }
    })
}

fn names(py: Python<'_>) -> native::CaiKeys<'_, '_> {
    [
        intern!(py, "shape"),
        intern!(py, "typestr"),
        intern!(py, "data"),
        intern!(py, "version"),
        intern!(py, "strides"),
        intern!(py, "stream"),
        intern!(py, "mask"),
        intern!(py, "descr"),
    ]
}

fn entries<'py>(
    dict: &Bound<'py, PyDict>,
    names: native::CaiKeys<'_, 'py>,
) -> PyResult<[Option<Bound<'py, PyAny>>; 8]> {
    let mut found = [const { None }; 8];
    for (slot, name) in found.iter_mut().zip(names) {
        *slot = dict.get_item(name)?;
    }
    Ok(found)
}

fn required<'py>(entry: Option<Bound<'py, PyAny>>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    entry.ok_or_else(|| Error::new(Kind::DictKey, format!("no {key:?}")).into())
}

fn present(entry: Option<Bound<'_, PyAny>>) -> Option<Bound<'_, PyAny>> {
    entry.filter(|value| !value.is_none())
}

/// Reads an integer that is not a `bool` and fits an `i64`. Otherwise returns a description of the value.
fn int(value: &Bound<'_, PyAny>) -> PyResult<Result<i64, String>> {
    native::small(value).map_or_else(|| uncommon_int(value), |small| Ok(Ok(small)))
}

#[cold]
fn uncommon_int(value: &Bound<'_, PyAny>) -> PyResult<Result<i64, String>> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Err(format!("the bool {value}")));
    }
    if value.is_instance_of::<PyInt>() {
        return match answered(value.py(), value.extract::<i64>())? {
            Some(value) => Ok(Ok(value)),
            None => shown(value).map(Err),
        };
    }
    match index(value)?.and_then(|index| i64::try_from(index).ok()) {
        Some(index) => Ok(Ok(index)),
        None => an_object(value).map(Err),
    }
}

/// Reads a tuple or list of at most [`MAX_NDIM`] integers. The length is checked first, since a list can be huge.
fn dims(
    values: &Bound<'_, PyAny>,
    field: &str,
    malformed: Kind,
    overflow: Kind,
    too_many: impl Fn(usize) -> Error,
) -> PyResult<Dims> {
    let check = |length| if length > MAX_NDIM { Err(too_many(length)) } else { Ok(()) };
    let tuple = if let Ok(tuple) = values.cast::<PyTuple>() {
        check(tuple.len())?;
        tuple.clone()
    } else if let Ok(list) = values.cast::<PyList>() {
        check(list.len())?;
        // Reading an item may run code that changes the list.
        list.to_tuple()
    } else {
        return Err(Error::new(malformed, an_object(values)?).into());
    };
    let mut dims = Dims::new();
    for (axis, value) in tuple.iter().enumerate() {
        match int(&value)? {
            Ok(value) => dims.push(value),
            Err(got) => {
                let kind = if value.is_exact_instance_of::<PyInt>() { overflow } else { malformed };
                return Err(Error::at(kind, format!("{field}[{axis}]"), got).into());
            }
        }
    }
    Ok(dims)
}

fn data_entry(value: &Bound<'_, PyAny>) -> PyResult<(u64, bool)> {
    let (py, malformed) = (value.py(), || refused(Kind::DataMalformed, shown(value)));
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(malformed)?;
    let (pointer, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    let pointer = match native::small(&pointer) {
        Some(small) => u64::try_from(small).map_err(|_| malformed())?,
        None if pointer.is_instance_of::<PyBool>() => return Err(malformed()),
        None => answered(py, pointer.extract::<u64>())?.ok_or_else(malformed)?,
    };
    let readonly = match (flag::truth(&readonly)?, native::small(&readonly)) {
        (Some(flag), _) => flag,
        (None, Some(0)) => false,
        (None, Some(1)) => true,
        _ => return Err(malformed()),
    };
    Ok((pointer, readonly))
}

/// Pass the array's `words` if DLPack cannot express the array.
pub(crate) fn encode<'py>(
    py: Python<'py>,
    array: &Descriptor,
    ready: Ready,
    words: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let entries = cai::encode(array, ready, Thread::current())?;
    let (data, stream) = (entries.data, entries.stream);
    let dict = match words {
        Some(words) => {
            let dict = filled(words, &entries, stream)?;
            if dict.contains(numpy::exact(py))? {
                dict.del_item(numpy::exact(py))?;
            }
            dict
        }
        None => recent::dict(py, array, stream, || {
            static TEMPLATES: PyOnceLock<Vec<[Py<PyDict>; 2]>> = PyOnceLock::new();
            let templates = TEMPLATES.get_or_try_init(py, || templates(py))?;
            let [silent, legacy] = &templates[array.dtype().index()];
            match stream {
                Some(LEGACY) => filled(legacy.bind(py), &entries, None),
                stream => filled(silent.bind(py), &entries, stream),
            }
        })?,
    };
    dict.set_item(intern!(py, "data"), data)?;
    Ok(dict)
}

fn filled<'py>(
    template: &Bound<'py, PyDict>,
    entries: &cai::Entries<'_>,
    stream: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let (py, dict) = (template.py(), template.copy()?);
    dict.set_item(intern!(py, "shape"), PyTuple::new(py, entries.shape.clone())?)?;
    if let Some(strides) = entries.strides.clone() {
        dict.set_item(intern!(py, "strides"), PyTuple::new(py, strides)?)?;
    }
    if let Some(stream) = stream {
        dict.set_item(intern!(py, "stream"), stream)?;
    }
    Ok(dict)
}

const LEGACY: u64 = Stream::Legacy.handle();

/// For each type of [`Dtype::all`], a dict with the stream None and a dict with the legacy default stream.
#[cold]
fn templates(py: Python<'_>) -> PyResult<Vec<[Py<PyDict>; 2]>> {
    let template = |dtype: Dtype, stream: Option<u64>| -> PyResult<_> {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "shape"), py.None())?;
        dict.set_item(intern!(py, "typestr"), dtype.typestr())?;
        dict.set_item(intern!(py, "data"), py.None())?;
        dict.set_item(intern!(py, "version"), cai::VERSION)?;
        dict.set_item(intern!(py, "strides"), py.None())?;
        dict.set_item(intern!(py, "stream"), stream)?;
        Ok(dict.unbind())
    };
    Dtype::all().map(|dtype| Ok([template(dtype, None)?, template(dtype, Some(LEGACY))?])).collect()
}
