//! What the bridge knows of a library: what its file in `libraries` says of it, and the slot that has all of them.
//!
//! This stands above streams and imports, which ask; the files stand below them. So they come by a slot, which is
//! filled before the first array comes.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use super::habits::{About, HabitRow, Habits, is_of};

/// A library that the bridge knows. What it leaves out is as the protocols say.
pub(crate) trait Library: Sync + fmt::Debug {
    /// What the names of its modules begin with.
    fn name(&self) -> &'static str;

    /// What it does that its protocols do not say.
    fn habits(&self) -> &'static [HabitRow] {
        &[]
    }
}

static KNOWN: OnceLock<&'static [&'static dyn Library]> = OnceLock::new();

/// Has these be known.
pub(crate) fn know(all: &'static [&'static dyn Library]) {
    KNOWN.get_or_init(|| all);
}

/// All of them, in the order in which they are asked.
#[inline]
pub(crate) fn all() -> &'static [&'static dyn Library] {
    KNOWN.get().copied().unwrap_or_default()
}

/// All habits.
pub(crate) fn rows() -> impl Iterator<Item = &'static HabitRow> {
    all().iter().flat_map(|library| library.habits())
}

/// Whether nothing is known of any.
static FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// Makes every library an unknown one, for the tests that what is promised holds without what is known. Types that were
/// looked at before stay known.
#[pyfunction]
pub(crate) fn _forget_habits() {
    FORGOTTEN.store(true, Ordering::Relaxed);
}

/// All habits, for the test that each row's test exists: library, habit, version, test.
#[pyfunction]
pub(crate) fn _habits() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let row =
        |known: &HabitRow| (known.library, format!("{:?}", known.habit), known.version, known.test);
    rows().map(row).collect()
}

/// The habits of a class, where `are_of` tells whether what one is about is of a library.
pub(crate) fn habits_of(are_of: impl Fn(About, &str) -> bool) -> Habits {
    if FORGOTTEN.load(Ordering::Relaxed) {
        return Habits::NONE;
    }
    let has = |row: &HabitRow| are_of(row.habit.about(), row.library);
    // A library inside another, as JAX's buffers of a callback, has its own rows alone.
    let is_inner =
        |row: &HabitRow, outer: &str| row.library != outer && is_of(row.library, outer) && has(row);
    let known = rows().filter(|row| has(row) && !rows().any(|other| is_inner(other, row.library)));
    known.fold(Habits::NONE, Habits::and)
}
