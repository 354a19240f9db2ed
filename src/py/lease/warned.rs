//! Warns about ends that cannot be ordered. `logging` gets at most one warning for each line of the program.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::device::Place;
use crate::py::interpreter::program_line;
use crate::py::observe::to_logging::is_warning_read;

pub(crate) type Line = (String, u32);

const MOST: usize = 1024;

pub(super) fn here(py: Python<'_>) -> PyResult<Option<Line>> {
    Ok(program_line(py)?.map(|line| (line.file, line.number)))
}

/// `line` is the source line that named the consumer's stream `handle`. If `None`, the warning names the current line.
#[cold]
pub(super) fn uncovered(
    py: Python<'_>,
    place: Place,
    handle: u64,
    line: Option<&Line>,
) -> PyResult<()> {
    static WARNED: Mutex<Option<HashSet<Line>>> = Mutex::new(None);
    if !tracing::enabled!(target: "cai_bridge", tracing::Level::WARN) {
        return Ok(());
    }
    let line = match line {
        Some(line) => line.clone(),
        None => here(py)?.unwrap_or_else(|| (String::from("?"), 0)),
    };
    // If nobody reads the warning, do not record the line: logging can be on at a later end.
    if is_warning_read() {
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let warned = warned.get_or_insert_default();
        if warned.len() == MOST || !warned.insert(line.clone()) {
            return Ok(());
        }
    }
    tracing::warn!(
        name: "impossible", target: "cai_bridge", door = "release", device = place.ordinal,
        order = "impossible", consumer = handle, line = format!("{}:{}", line.0, line.1),
        "the producer's stream cannot wait for the consumer's stream, which was named by a bare handle that nothing \
         keeps alive, or by an object that was closed; or it is JAX's, and not known. Pass the stream object and keep it \
         open, or call release(stream) while the stream exists"
    );
    Ok(())
}
