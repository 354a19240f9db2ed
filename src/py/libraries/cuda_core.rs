//! cuda.core: the `__dlpack__` of its memory buffers makes no stream wait.

use super::ordinary::Ordinary;
use crate::py::habits::{Habit, HabitRow, known};

pub(super) const CUDA_CORE: Ordinary = Ordinary::new("cuda.core", HABITS);

const HABITS: &[HabitRow] = &[
    known("cuda.core._memory", Habit::OrdersNothing, "1.0", "python/test_producers_known.py"),
    known(
        "cuda.core.experimental._memory",
        Habit::OrdersNothing,
        "0.4",
        "python/test_producers_known.py",
    ),
];
