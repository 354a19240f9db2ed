//! The fields of an event, stored without Python objects, and their conversion to a dict.

use std::fmt::{Debug, Write as _};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::Event;
use tracing::field::{Field, Visit};

pub(super) struct ReportFields {
    pub(super) values: Vec<(&'static str, Value)>,
    /// The message; empty if `with_text` is false.
    pub(super) text: String,
    with_text: bool,
}

pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    Flag(bool),
    Text(Box<str>),
}

impl ReportFields {
    pub(super) fn of(event: &Event<'_>, with_text: bool) -> Self {
        let count = event.metadata().fields().len();
        let mut fields = Self { values: Vec::with_capacity(count), text: String::new(), with_text };
        event.record(&mut fields);
        fields
    }
}

pub(super) fn dict(
    py: Python<'_>,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in fields {
        match value {
            Value::Signed(value) => dict.set_item(name, value)?,
            Value::Unsigned(value) => dict.set_item(name, value)?,
            Value::Flag(value) => dict.set_item(name, value)?,
            Value::Text(value) => dict.set_item(name, &*value)?,
        }
    }
    Ok(dict)
}

impl Visit for ReportFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "message" {
            self.values.push((field.name(), Value::Text(format!("{value:?}").into())));
        } else if self.with_text {
            // Ignore the result: writing to a `String` cannot fail.
            let _ = write!(self.text, "{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.values.push((field.name(), Value::Text(value.into())));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.values.push((field.name(), Value::Flag(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.values.push((field.name(), Value::Unsigned(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.values.push((field.name(), Value::Signed(value)));
    }
}
