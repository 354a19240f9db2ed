//! Stream objects: how to read their handles, and which of them keep their streams alive.

use std::rc::Rc;

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple, PyType, PyTypeMethods};

use super::keeper::Keeper;
use super::voucher::Voucher;
use crate::error::{Error, Kind};
use crate::local::local;
use crate::py::by_type::ByType;
use crate::py::habits::{self, Habit};
use crate::py::interpreter::answered;
use crate::py::library::{self, Library, habits_of};
use crate::py::native::{self, ObjectQuestion};
use crate::py::text::{attribute, refused, shown};

pub(crate) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Some(handle) = quickly(object)? {
        return Ok(handle);
    }
    let py = object.py();
    match object.getattr(intern!(py, "__cuda_stream__")) {
        Ok(method) => handle(&method),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => older(object)?.ok_or(error),
        Err(error) => Err(error),
    }
}

/// Reads the handle in the way that suits the object's type. `None` if the caller must find the handle in another way.
#[inline]
pub(super) fn quickly(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = object.py();
    let Some(known) = answered(py, kind_of(object))? else { return Ok(None) };
    match &known.asking {
        Asking::Attribute(attribute) => {
            let answer = answered(py, attribute.answer(object))?;
            Ok(answer
                .as_ref()
                .and_then(native::small)
                .and_then(|handle| u64::try_from(handle).ok()))
        }
        Asking::Method => match native::call_method(object, intern!(py, "__cuda_stream__")) {
            Ok(answer) => named_by(&answer).map(Some),
            Err(error) => not_called(object, error),
        },
        Asking::Unknown => Ok(None),
    }
}

/// Returns `Ok(None)` if `object` lacks the `__cuda_stream__` that its type has, else an error.
#[cold]
fn not_called(object: &Bound<'_, PyAny>, error: PyErr) -> PyResult<Option<u64>> {
    match object.getattr_opt(intern!(object.py(), "__cuda_stream__"))? {
        Some(method) if method.is_callable() => Err(error),
        Some(other) => Err(no_method(&other)),
        None => Ok(None),
    }
}

/// The handle of a stream object without `__cuda_stream__`: PyTorch before 2.10, CuPy before 14, Warp before 1.13,
/// Numba before numba-cuda 0.21.
pub(super) fn older(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = object.py();
    if object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    for kind in object.get_type().mro() {
        let kind = kind.cast_into::<PyType>()?;
        if !kind.name()?.to_string_lossy().ends_with("Stream") {
            continue;
        }
        let module = attribute(&kind, intern!(py, "__module__"))?.unwrap_or_default();
        if let Some(library) = library::of_module(&module) {
            return library.older_handle(object);
        }
    }
    Ok(None)
}

pub(super) fn handle(method: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !method.is_callable() {
        return Err(no_method(method));
    }
    named_by(&method.call0()?)
}

#[cold]
fn no_method(other: &Bound<'_, PyAny>) -> PyErr {
    refused(Kind::StreamProtocol, shown(other).map(|shown| format!("{shown}, which is no method")))
}

fn named_by(answer: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = answer.py();
    let malformed = || refused(Kind::StreamProtocol, shown(answer));
    let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(malformed)?;
    let (version, handle) = (pair.get_item(0)?, pair.get_item(1)?);
    if let (Some(0), Some(handle)) = (native::small(&version), native::small(&handle))
        && let Ok(handle) = u64::try_from(handle)
    {
        return Ok(handle);
    }
    if version.is_instance_of::<PyBool>() || handle.is_instance_of::<PyBool>() {
        return Err(malformed());
    }
    let version = answered(py, version.extract::<i64>())?.ok_or_else(malformed)?;
    if version != 0 {
        return Err(Error::new(Kind::StreamProtocol, format!("version {version}")).into());
    }
    answered(py, handle.extract::<u64>())?.ok_or_else(malformed)
}

/// The GPU that a stream object names, as PyTorch's do (`device_index`, torch 2.11).
pub(super) fn ordinal(object: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    let py = object.py();
    if !kind_of(object)?.has_ordinal {
        return Ok(None);
    }
    let index = object.getattr(intern!(py, "device_index")).and_then(|index| index.extract());
    Ok(answered(py, index)?.filter(|index| *index >= 0))
}

struct StreamKind {
    asking: Asking,
    hint: Hint,
    /// Whether an object that owns its stream may be closed while the bridge holds the object.
    closes: bool,
    has_ordinal: bool,
}

enum Asking {
    /// An attribute that held the handle of `__cuda_stream__` on the first object of the type that this thread asked.
    Attribute(ObjectQuestion),
    Method,
    Unknown,
}

/// Where to read whether an object owns its stream or only wraps a handle.
enum Hint {
    /// Objects of this type count as owners of their streams.
    Nowhere,
    /// In an entry of the object's `__dict__`, such as `external`.
    InDict,
    Attribute,
    /// Objects of this type only wrap handles.
    TypeName,
    /// In the lowest bit of PyTorch's `stream_id`, a C-level attribute.
    Id(ObjectQuestion),
}

fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<Rc<StreamKind>> {
    local! {
        static KINDS: ByType<StreamKind> = const { ByType::new() };
    }
    KINDS.known(object, examine)
}

/// What keeps the stream of `object` alive; `None` if `object` only wraps a handle or cannot be asked.
pub(super) fn keeper(object: &Bound<'_, PyAny>) -> PyResult<Option<Keeper>> {
    let py = object.py();
    let keeper = || {
        let known = kind_of(object)?;
        match &known.hint {
            Hint::Nowhere => owner(object, &known).map(Some),
            Hint::TypeName => Ok(None),
            Hint::InDict => {
                let dict = object.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
                says(object, &known, |name| dict.get_item(name))
            }
            Hint::Attribute => says(object, &known, |name| object.getattr_opt(name)),
            Hint::Id(id) => by_id(&id.answer(object)?),
        }
    };
    Ok(answered(py, keeper())?.flatten())
}

fn owner(object: &Bound<'_, PyAny>, known: &StreamKind) -> PyResult<Keeper> {
    let voucher = Voucher::new(object)?;
    Ok(if known.closes { Keeper::Object(voucher) } else { Keeper::Owner(voucher) })
}

/// An odd stream id of PyTorch (torch 2.11) means a stream of PyTorch's pools, which is never destroyed.
fn by_id(id: &Bound<'_, PyAny>) -> PyResult<Option<Keeper>> {
    Ok((id.extract::<i64>()? & 1 == 1).then_some(Keeper::Always))
}

/// Reads with `get` the attributes that tell who owns the stream: PyTorch's `stream_id`, Numba's `external`, CuPy's
/// `_foreign_stream_ref` (14.2), Warp's `owner` (1.19).
fn says<'py>(
    object: &Bound<'py, PyAny>,
    known: &StreamKind,
    get: impl Fn(&Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>>,
) -> PyResult<Option<Keeper>> {
    let py = object.py();
    if let Some(id) = get(intern!(py, "stream_id"))? {
        return by_id(&id);
    }
    if get(intern!(py, "external"))?.map_or(Ok(false), |external| external.is_truthy())? {
        return Ok(None);
    }
    if !known.closes
        && let Some(other) = get(intern!(py, "_foreign_stream_ref"))?.filter(|it| !it.is_none())
    {
        return keeper(&other);
    }
    let owns = get(intern!(py, "owner"))?.is_none_or(|owner| !owner.is(PyBool::new(py, false)));
    owns.then(|| owner(object, known)).transpose()
}

fn examine(object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<StreamKind> {
    let module = attribute(kind, intern!(kind.py(), "__module__"))?.unwrap_or_default();
    let (habits, _) = habits_of(|_, library| habits::is_of(&module, library));
    let closes = !habits.has(Habit::NeverClosesStreams);
    let has_ordinal = kind.hasattr(intern!(kind.py(), "device_index"))?;
    let asking = asking(object, kind, &module)?;
    Ok(StreamKind { asking, hint: place(kind)?, closes, has_ordinal })
}

/// Prefers a C-level attribute, if it has the handle that `__cuda_stream__` of `object` returns.
fn asking(object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>, module: &str) -> PyResult<Asking> {
    let py = object.py();
    let method = kind.getattr_opt(intern!(py, "__cuda_stream__"))?;
    if object.is_instance_of::<PyType>() || !method.is_some_and(|method| method.is_callable()) {
        return Ok(Asking::Unknown);
    }
    if let Some(name) = library::of_module(module).and_then(Library::handle_attribute)
        && let Some(attribute) = ObjectQuestion::attribute(kind, &PyString::intern(py, name))?
        && attribute.is_native()
    {
        let said = named_by(&native::call_method(object, intern!(py, "__cuda_stream__"))?)?;
        if attribute.answer(object)?.extract::<u64>()? == said {
            return Ok(Asking::Attribute(attribute));
        }
    }
    Ok(Asking::Method)
}

/// Asks the type, because looking up a missing attribute on each object is slow.
fn place(kind: &Bound<'_, PyType>) -> PyResult<Hint> {
    let py = kind.py();
    if let Some(id) = ObjectQuestion::attribute(kind, intern!(py, "stream_id"))? {
        return Ok(if id.is_native() { Hint::Id(id) } else { Hint::Attribute });
    }
    // Types with these names only wrap handles, as in PyTorch, CuPy and cuda.bindings (13.5).
    let name = kind.name()?;
    if ["ExternalStream", "CUstream", "cudaStream_t"].iter().any(|one| name == *one) {
        return Ok(Hint::TypeName);
    }
    let plain = py.get_type::<PyAny>().getattr(intern!(py, "__getattribute__"))?;
    let is_plain = kind.getattr(intern!(py, "__getattribute__"))?.is(&plain)
        && !kind.hasattr(intern!(py, "__getattr__"))?;
    let is_said = kind.hasattr(intern!(py, "external"))? || kind.hasattr(intern!(py, "owner"))?;
    Ok(if !is_plain || is_said {
        Hint::Attribute
    } else if kind.getattr(intern!(py, "__dictoffset__"))?.extract::<isize>()? != 0 {
        Hint::InDict
    } else {
        Hint::Nowhere
    })
}
