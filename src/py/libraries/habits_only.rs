//! Libraries with habits only: the bridge does not make their arrays.

use super::ordinary::Ordinary;
use crate::py::habits::{Habit, HabitRow, known};

pub(super) const HABITS_ONLY: Ordinary = Ordinary::new("<habits only>", HABITS);

const HABITS: &[HabitRow] = &[
    known("nanobind", Habit::OrdersNothing, "2.9", "python/libraries/test_nanobind.py"),
    known("pylibcudf", Habit::NeverNamesStream, "26.10", "python/test_systems.py"),
    known("cudf", Habit::NeverNamesStream, "26.10", "python/test_systems.py"),
    known("pylibraft", Habit::NeverNamesStream, "26.10", "gpu/test_systems.py"),
    known("pylibcudf", Habit::IgnoresDicts, "26.10", "python/test_systems.py"),
    known("pylibraft", Habit::IgnoresDicts, "26.10", "gpu/test_systems.py"),
    known("cuda.compute", Habit::IgnoresDicts, "1.2.1", "python/test_systems.py"),
    known("pyarrow._cuda", Habit::IgnoresDicts, "1.0", "python/test_systems.py"),
    known("pycuda", Habit::IgnoresDicts, "2026.1", "python/test_systems.py"),
    known("nvcv", Habit::IgnoresDicts, "0.15", "python/test_systems.py"),
    known("cvcuda", Habit::IgnoresDicts, "0.15", "python/test_systems.py"),
    known("pycuda", Habit::AlwaysNamesNone, "2026.1", "python/test_systems.py"),
    known("nvcv", Habit::OrdersNothing, "0.15", "python/test_systems.py"),
    known("cvcuda", Habit::OrdersNothing, "0.15", "python/test_systems.py"),
    known("cuml", Habit::StoresDict, "26.10", "python/test_systems.py"),
    known("pylibcudf", Habit::StoresDict, "26.10", "python/test_producers_known.py"),
    known("amrex", Habit::AlwaysNamesNone, "26.10", "python/test_producers_known.py"),
    known("tensorflow", Habit::Immutable, "2.20", "python/test_producers_known.py"),
    known("tensorflow", Habit::TakesNoStream, "2.20", "python/test_producers_known.py"),
    known("nvidia.nvimgcodec", Habit::OneCapsule, "0.6", "python/test_producers_known.py"),
    known("holoscan", Habit::IgnoresDicts, "3.10", "python/test_systems.py"),
];
