//! `cai_bridge.testing`: its arrays are on the simulated device. Each of its current streams belongs to a simulated
//! library.

use pyo3::intern;
use pyo3::prelude::*;

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::answered;
use crate::py::library::Library;

#[derive(Debug)]
pub(super) struct CaiBridgeTesting;

const HABITS: &[HabitRow] = &[
    known("cai_bridge.testing", Habit::KeepsToDlpack, "0.2.0", "python/test_strangers.py"),
    known("cai_bridge.testing", Habit::NoneIsNothing, "0.2.0", "python/test_strangers.py"),
];

impl Library for CaiBridgeTesting {
    fn name(&self) -> &'static str {
        "cai_bridge.testing"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }

    fn simulated_streams<'py>(
        &self,
        py: Python<'py>,
        ordinal: i32,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        let name = intern!(py, "cai_bridge.testing");
        let Some(testing) = imported(py, name)? else { return Ok(vec![]) };
        let streams = testing.call_method1(intern!(py, "_current_streams"), (ordinal,));
        Ok(answered(py, streams.and_then(|streams| streams.extract()))?.unwrap_or_default())
    }
}
