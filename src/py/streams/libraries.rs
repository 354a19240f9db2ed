//! The streams that tvm-ffi and the simulated device's libraries name, each asked by the cheapest
//! way that it has. What a library raises is no answer; an interrupt passes through.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::imported::imported;
use crate::py::interpreter::answered;

/// The stream that tvm-ffi's environment has for a GPU, as the driver names it: functions that are called through it
/// work on that one.
pub(crate) fn tvm_ffis(py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
    let Some(module) = imported(py, intern!(py, "tvm_ffi"))? else { return Ok(None) };
    let native = module
        .call_method1(intern!(py, "device"), ("cuda", ordinal))
        .and_then(|device| module.call_method1(intern!(py, "get_raw_stream"), (device,)))
        .and_then(|native| native.extract::<u64>());
    answered(py, native)
}

/// The streams that the simulated device's libraries work on, and whether each ignores those of dicts.
pub(super) fn simulated(py: Python<'_>, ordinal: i32) -> PyResult<Vec<(Bound<'_, PyAny>, bool)>> {
    let name = intern!(py, "cai_bridge.testing");
    let Some(testing) = imported(py, name)? else { return Ok(vec![]) };
    let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
    Ok(answered(py, streams.and_then(|streams| streams.extract()))?.unwrap_or_default())
}
