//! Foreign objects in the words of messages.

use pyo3::prelude::*;

use crate::device::{Device, MemoryKind};

/// What `object` is: its `repr`, or its type where that fails.
pub(crate) fn shown(object: &Bound<'_, PyAny>) -> String {
    match object.repr() {
        Ok(text) => text.to_string(),
        Err(_) => an_object(object),
    }
}

/// What `object` is, where its value would say nothing.
pub(crate) fn an_object(object: &Bound<'_, PyAny>) -> String {
    format!("an object of type {}", type_name(object))
}

/// The name of the type of `object`, module included.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// Where memory is.
pub(crate) fn place_text(device: Device) -> String {
    match device.kind {
        MemoryKind::Device => format!("cuda:{}", device.id),
        MemoryKind::Host => "pinned host memory".to_owned(),
        MemoryKind::Managed => "managed memory".to_owned(),
    }
}

/// Integers as a Python tuple.
pub(crate) fn tuple_text(values: &[i64]) -> String {
    let items: Vec<String> = values.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.join(", ")),
    }
}
