//! Warp: each GPU has a current stream, which a function of Python's gives. It ignores the streams of dicts.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::library::{Functions, Library};

#[derive(Debug)]
pub(super) struct Warp;

const HABITS: &[HabitRow] =
    &[known("warp", Habit::KeepsToDlpack, "1.13", "gpu/test_convert_warp_rmm.py")];

impl Library for Warp {
    fn name(&self) -> &'static str {
        "warp"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }

    fn functions(&self) -> Option<&dyn Functions> {
        Some(self)
    }

    fn handle_attribute(&self) -> Option<&'static str> {
        Some("cuda_stream")
    }
}

impl Functions for Warp {
    fn are_there(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(imported(py, intern!(py, "warp"))?.is_some())
    }

    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let Some(file) = imported(py, intern!(py, "cai_bridge._libraries._warp"))? else {
            return Ok(Vec::new());
        };
        let library = file.getattr(intern!(py, "WARP"))?;
        Ok(vec![library.getattr(intern!(py, "stream_in_use"))?.unbind()])
    }

    fn ignore_dicts(&self) -> bool {
        true
    }
}
