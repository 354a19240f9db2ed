//! Warp: each GPU has a current stream. Warp ignores the streams of dicts.

use super::ordinary::Ordinary;
use crate::py::habits::{Habit, known};

pub(super) const WARP: Ordinary = Ordinary::new(
    "warp",
    &[known("warp", Habit::KeepsToDlpack, "1.13", "gpu/test_convert_warp_rmm.py")],
)
.with_handles_in("cuda_stream")
.with_current_stream()
.ignoring_dicts();
