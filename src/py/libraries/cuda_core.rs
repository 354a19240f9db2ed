//! cuda.core: its `__dlpack__` orders nothing.

use crate::py::habits::{Habit, HabitRow, known};
use crate::py::library::Library;

#[derive(Debug)]
pub(super) struct CudaCore;

const HABITS: &[HabitRow] = &[
    known("cuda.core._memory", Habit::OrdersNothing, "1.0", "python/test_producers_known.py"),
    known(
        "cuda.core.experimental._memory",
        Habit::OrdersNothing,
        "0.4",
        "python/test_producers_known.py",
    ),
];

impl Library for CudaCore {
    fn name(&self) -> &'static str {
        "cuda.core"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }
}
