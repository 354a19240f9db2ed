//! The consumer's stream for converted arrays.

use pyo3::intern;
use pyo3::prelude::*;

use super::Optional;
use super::library_traits::{CurrentStreamRoute, LibraryTraits, Method};
use crate::device::Device;
use crate::py::interpreter::answered;
use crate::py::streams::StreamArgument;
use crate::stream::{Stream, Thread};

/// The stream that the caller passed, else the library's current stream on a GPU, if there is one.
#[derive(Debug)]
pub(super) struct ConsumerStream<'py> {
    pub(super) answer: Option<Bound<'py, PyAny>>,
    native: Option<u64>,
    is_named: bool,
    is_default: bool,
}

impl<'py> ConsumerStream<'py> {
    pub(super) fn of(
        library: &Bound<'py, PyAny>,
        traits: &LibraryTraits,
        ordinal: i32,
        stream: Optional<'_, 'py>,
    ) -> PyResult<Self> {
        let py = library.py();
        let mut asked = Self {
            answer: stream.cloned(),
            native: None,
            is_named: stream.is_some(),
            is_default: matches!(traits.current, CurrentStreamRoute::Default),
        };
        match traits.method {
            _ if asked.is_named => {}
            Method::View(_) => {}
            Method::Table(table) => {
                asked.native = Some(table.current_work_stream(py, Device::cuda(ordinal))?);
            }
            Method::Make(_) => {
                if let CurrentStreamRoute::Known(current) = &traits.current {
                    asked.native = Some(current.get().native(py, ordinal)?);
                    return Ok(asked);
                }
                let answer = library.call_method1(intern!(py, "current_stream"), (ordinal,))?;
                asked.answer = (!answer.is_none()).then_some(answer);
            }
        }
        Ok(asked)
    }

    /// Python's `None` if there is no stream.
    pub(super) fn into_python(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let named = |handle| Stream::from_native(handle, Thread::current()).handle();
        match self.native.map(named) {
            Some(handle) => Ok(handle.into_pyobject(py)?.into_any()),
            None => Ok(self.answer.unwrap_or_else(|| py.None().into_bound(py))),
        }
    }

    /// Puts the library's name into the bridge's own error about a stream, unless the caller passed the stream.
    #[cold]
    pub(super) fn explain(&self, library: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let py = library.py();
        if self.is_named || error.traceback(py).is_some() {
            return error;
        }
        let explain = || -> PyResult<()> {
            let said = error.value(py).str()?.extract::<String>()?;
            let Some(wrong) = said.strip_prefix("stream: ") else { return Ok(()) };
            let name = library.getattr(intern!(py, "name"))?.repr()?;
            let text = format!("current_stream of {name}: {wrong}");
            error.value(py).setattr(intern!(py, "args"), (text,))
        };
        match answered(py, explain()) {
            Ok(_) => error,
            Err(interrupt) => interrupt,
        }
    }

    pub(super) fn argument(&self) -> PyResult<StreamArgument<'_, 'py>> {
        let argument = match self.native {
            Some(handle) => StreamArgument::native(handle),
            None => StreamArgument::parse(self.answer.as_ref())?,
        };
        Ok(if self.is_named { argument } else { argument.by_library(self.is_default) })
    }
}
