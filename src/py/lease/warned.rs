//! The warning about an end that cannot be ordered: once for each line of the program.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

use crate::device::Place;
use crate::py::interpreter::answered;

/// A line of the program: its file and number.
pub(crate) type Line = (String, u32);

/// The most lines to warn about.
const MOST: usize = 1024;

/// The line that the calling thread is at.
pub(super) fn here(py: Python<'_>) -> PyResult<Option<Line>> {
    let line = || -> PyResult<Line> {
        let frame = py.import("sys")?.call_method0(intern!(py, "_getframe"))?;
        let file = frame.getattr(intern!(py, "f_code"))?.getattr(intern!(py, "co_filename"))?;
        Ok((file.extract()?, frame.getattr(intern!(py, "f_lineno"))?.extract()?))
    };
    answered(py, line())
}

/// Warns of a consumer on a non-blocking stream, named at `line` by a bare handle, that no imported library
/// works on at its end.
#[cold]
pub(super) fn uncovered(place: Place, handle: u64, line: Option<&Line>) {
    static WARNED: Mutex<Option<HashSet<Line>>> = Mutex::new(None);
    // A line that nobody is told of now is told of later.
    if !tracing::enabled!(target: "cai_bridge", tracing::Level::WARN) {
        return;
    }
    let unknown = (String::from("?"), 0);
    let line = line.unwrap_or(&unknown);
    {
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let warned = warned.get_or_insert_default();
        if warned.len() == MOST || !warned.insert(line.clone()) {
            return;
        }
    }
    tracing::warn!(
        name: "impossible", target: "cai_bridge", door = "release", device = place.ordinal,
        order = "impossible", consumer = handle, line = format!("{}:{}", line.0, line.1),
        "the producer's stream cannot wait for the consumer's stream, which was named by a bare handle that nothing \
         keeps alive. Pass the stream object instead, or call release(stream) while the stream exists"
    );
}
