//! Text for messages. Describing an object may run the object's code, so an interrupt is returned as an error.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::interpreter::{Answer, answered, entry};
use super::native;
use crate::device::{Device, MemoryKind};
use crate::error::{Error, Kind, SHOWN};

#[cold]
pub(crate) fn refused(kind: Kind, got: PyResult<String>) -> PyErr {
    got.map_or_else(|interrupt| interrupt, |got| Error::new(kind, got).into())
}

/// The beginning of the object's `repr`. If `repr` raises an ordinary exception, names the object's type instead.
pub(crate) fn shown(object: &Bound<'_, PyAny>) -> PyResult<String> {
    written(object, object.repr())
}

/// Like [`shown`], for messages made in Python.
#[pyfunction]
pub(crate) fn _shown<'py>(x: &Bound<'py, PyAny>) -> Answer<'py> {
    entry(x.py(), || shown(x))
}

pub(crate) fn printed(object: &Bound<'_, PyAny>) -> PyResult<String> {
    written(object, object.str())
}

fn written(object: &Bound<'_, PyAny>, text: PyResult<Bound<'_, PyString>>) -> PyResult<String> {
    answered(object.py(), text)?.map_or_else(|| an_object(object), |text| beginning(&text))
}

pub(crate) fn an_object(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(format!("an object of type {}", type_name(object)?))
}

pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> PyResult<String> {
    class_name(&object.get_type())
}

/// The name of a class, with the module unless that is `builtins` or `__main__`.
pub(crate) fn class_name(kind: &Bound<'_, PyType>) -> PyResult<String> {
    let py = kind.py();
    let module = attribute(kind, intern!(py, "__module__"))?;
    let name = attribute(kind, intern!(py, "__qualname__"))?.unwrap_or_else(|| "?".to_owned());
    Ok(match module.as_deref() {
        None | Some("builtins" | "__main__") => name,
        Some(module) => format!("{module}.{name}"),
    })
}

pub(crate) fn error_text(py: Python<'_>, error: &PyErr) -> PyResult<String> {
    let (class, value) = (error.get_type(py), error.value(py));
    let class = attribute(&class, intern!(py, "__qualname__"))?.unwrap_or_default();
    let text = answered(py, value.str())?.map(|text| native::beginning(&text, MESSAGE));
    Ok(match text.transpose()? {
        Some(text) => format!("{class}: {}", text.to_string_lossy()),
        None => class,
    })
}

const MESSAGE: usize = 5 * SHOWN;

/// The beginning of a string attribute; `None` if the attribute cannot be read or is not a string.
pub(crate) fn attribute(
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<String>> {
    let value = answered(object.py(), object.getattr(name))?;
    value.as_ref().and_then(|value| value.cast().ok()).map(beginning).transpose()
}

/// Copies up to one character more than a message shows, so that the message marks a longer text as cut.
pub(crate) fn beginning(text: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(native::beginning(text, SHOWN + 1)?.to_string_lossy().into_owned())
}

pub(crate) fn place_text(device: Device) -> String {
    match device.kind {
        MemoryKind::Device => format!("cuda:{}", device.id),
        MemoryKind::Host => "pinned host memory".to_owned(),
        MemoryKind::Managed => "managed memory".to_owned(),
    }
}

pub(crate) fn tuple_text(values: &[i64]) -> String {
    let items: Vec<String> = values.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.join(", ")),
    }
}
