//! tvm-ffi: its environment has a current stream for each GPU, on which functions called through tvm-ffi are to work.
//! The `__dlpack__` of tvm-ffi makes no stream wait.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::answered;
use crate::py::library::Library;

#[derive(Debug)]
pub(super) struct TvmFfi;

const HABITS: &[HabitRow] = &[
    known("tvm_ffi", Habit::KeepsToDlpack, "0.1.15", "python/libraries/test_tvm_ffi.py"),
    known("tvm_ffi", Habit::IgnoresStream, "0.1.15", "python/libraries/test_tvm_ffi.py"),
];

impl Library for TvmFfi {
    fn name(&self) -> &'static str {
        "tvm_ffi"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }

    fn ready_on(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
        let Some(module) = imported(py, intern!(py, "tvm_ffi"))? else { return Ok(None) };
        let native = module
            .call_method1(intern!(py, "device"), ("cuda", ordinal))
            .and_then(|device| module.call_method1(intern!(py, "get_raw_stream"), (device,)))
            .and_then(|native| native.extract::<u64>());
        answered(py, native)
    }
}
