//! The streams that the simulated device's libraries name. What a library raises is no answer; an interrupt passes through.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::imported::imported;
use crate::py::interpreter::answered;

/// The streams that the simulated device's libraries work on, and whether each ignores those of dicts.
pub(super) fn simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let name = intern!(py, "cai_bridge.testing");
    let Some(testing) = imported(py, name)? else { return Ok(vec![]) };
    let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
    Ok(answered(py, streams.and_then(|streams| streams.extract()))?.unwrap_or_default())
}
