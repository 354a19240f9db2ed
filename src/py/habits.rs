//! What known libraries do that their protocols do not say: one table, asked once a type.
//!
//! Each row names the version it was seen on and the test that shows it, so that it can be looked at again
//! when the library moves on.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

/// Something that a library does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Its arrays never change, which a legacy capsule cannot say.
    Immutable,
    /// Its `__dlpack__` ignores the stream that it is asked for. Its arrays are ready on the stream that its
    /// environment has.
    IgnoresStream,
    /// Its arrays are ready on its current stream, which a function of its own names where it has no exchange API. Its
    /// `__dlpack__` makes a stream wait for that one, and does not name it.
    ReadyOnCurrent,
    /// Its dict is cheaper than its `__dlpack__`, and names the stream that the other would order after: its
    /// current one. Nothing but that stream's object, which it has, keeps it alive.
    NamesCurrentStream,
    /// Its dict has no strides for arrays whose strides are those of a contiguous one but for some that are 0, as a
    /// broadcast array's.
    LeavesOutStrides,
    /// Its arrays have their stream's object as `stream`, which says at less cost than their dict that it
    /// lives.
    KeepsStreamObject,
    /// Its dict has version 2, without a stream, and is slower to read than its exchange API.
    SilentDict,
    /// A class of its tensors may refuse every question but the export, by a `__torch_function__` of its own.
    WrapsTensors,
    /// Its stream objects have no way to be closed: each keeps its stream for as long as it is held.
    NeverClosesStreams,
    /// Its dict names no stream, or the stream 0, for arrays on its default stream.
    DefaultStreamUnnamed,
    /// It is numba-cuda-mlir, whose settings are its own, not Numba's.
    HasMlirSettings,
    /// Its dict of version 3 has None as `stream` where nothing is pending, as the specification says.
    NoneIsNothing,
    /// Its dict is of version 3 and has no `stream`, whatever is pending.
    NeverNamesStream,
    /// The same, and its dict has None as `stream`.
    AlwaysNamesNone,
    /// Its `__dlpack__` does as DLPack says: the stream that it is asked for waits, and the memory is where it says.
    KeepsToDlpack,
    /// Its `__dlpack__` orders nothing, whatever stream it is asked for.
    OrdersNothing,
    /// It hands out a dict that it read of another array before: nothing keeps the stream that the dict names.
    StoresDict,
    /// Its `__dlpack__` refuses every stream but None, which stands for the legacy default one.
    TakesNoStream,
    /// Its `__dlpack__` makes one capsule in an array's life; its dict says as much each time.
    OneCapsule,
    /// It works on a default stream, unless it is told another, and ignores the streams of dicts. `library` is the
    /// module that is imported where it is used.
    IgnoresDicts,
}

/// What of a class a habit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Its `__dlpack__`.
    Dlpack,
    /// Its dict.
    Cai,
    /// Each of them.
    Both,
    /// Neither.
    Library,
}

impl Habit {
    const fn bit(self) -> u32 {
        1 << self as u32
    }

    const fn about(self) -> About {
        match self {
            Self::Immutable
            | Self::IgnoresStream
            | Self::KeepsToDlpack
            | Self::OrdersNothing
            | Self::TakesNoStream
            | Self::OneCapsule => About::Dlpack,
            Self::KeepsStreamObject
            | Self::SilentDict
            | Self::LeavesOutStrides
            | Self::DefaultStreamUnnamed
            | Self::NoneIsNothing
            | Self::NeverNamesStream
            | Self::AlwaysNamesNone
            | Self::StoresDict => About::Cai,
            Self::NamesCurrentStream => About::Both,
            Self::ReadyOnCurrent
            | Self::WrapsTensors
            | Self::NeverClosesStreams
            | Self::HasMlirSettings
            | Self::IgnoresDicts => About::Library,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct HabitRow {
    /// What the names of its modules begin with.
    pub(crate) library: &'static str,
    pub(crate) habit: Habit,
    /// The version that it was seen on.
    pub(crate) version: &'static str,
    /// The test that shows it, below `tests`.
    pub(crate) test: &'static str,
}

const fn known(
    library: &'static str,
    habit: Habit,
    version: &'static str,
    test: &'static str,
) -> HabitRow {
    HabitRow { library, habit, version, test }
}

/// The table.
pub(crate) const HABITS: [HabitRow; 51] = [
    known("torch", Habit::KeepsToDlpack, "2.11.0", "gpu/test_races.py"),
    known("jax", Habit::KeepsToDlpack, "0.11.2", "gpu/test_races.py"),
    known("jaxlib", Habit::KeepsToDlpack, "0.11.2", "gpu/test_races.py"),
    known("cupy", Habit::KeepsToDlpack, "14.2.0", "gpu/test_races.py"),
    known("warp", Habit::KeepsToDlpack, "1.13", "gpu/test_convert_warp_rmm.py"),
    known("tvm_ffi", Habit::KeepsToDlpack, "0.1.15", "python/test_tvm_ffi.py"),
    known("cai_bridge.testing", Habit::KeepsToDlpack, "0.2.0", "python/test_strangers.py"),
    known("cai_bridge.testing", Habit::NoneIsNothing, "0.2.0", "python/test_strangers.py"),
    known("nanobind", Habit::OrdersNothing, "2.9", "python/test_nanobind.py"),
    known("torch", Habit::SilentDict, "2.11.0", "gpu/test_habits.py"),
    known("torch", Habit::WrapsTensors, "2.15", "python/test_strangers.py"),
    known("torch", Habit::ReadyOnCurrent, "2.9", "gpu/test_old_torch.py"),
    known("jax", Habit::Immutable, "0.11.2", "gpu/test_jax.py"),
    known("jaxlib", Habit::Immutable, "0.11.2", "gpu/test_jax.py"),
    known("jax", Habit::Immutable, "0.12", "python/test_strangers.py"),
    known(
        "jax.experimental.buffer_callback",
        Habit::OrdersNothing,
        "0.10.2",
        "python/test_producers_known.py",
    ),
    known("jaxlib._jax.ffi", Habit::OrdersNothing, "0.8", "python/test_producers_known.py"),
    known("tvm_ffi", Habit::IgnoresStream, "0.1.15", "python/test_tvm_ffi.py"),
    known("cupy", Habit::NamesCurrentStream, "14.2.0", "gpu/test_habits.py"),
    known("numba", Habit::DefaultStreamUnnamed, "0.30.4", "gpu/test_habits.py"),
    known("numba", Habit::LeavesOutStrides, "0.30.4", "gpu/test_habits.py"),
    known("numba", Habit::KeepsStreamObject, "0.30.4", "gpu/test_habits.py"),
    known("numba", Habit::NeverClosesStreams, "0.30.4", "gpu/test_habits.py"),
    known("numba_cuda_mlir", Habit::DefaultStreamUnnamed, "0.6.0", "python/test_numba_arrays.py"),
    known("numba_cuda_mlir", Habit::HasMlirSettings, "0.6.0", "python/test_numba_arrays.py"),
    known("numba_cuda_mlir", Habit::LeavesOutStrides, "0.6.0", "python/test_numba_arrays.py"),
    known("numba_cuda_mlir", Habit::KeepsStreamObject, "0.6.0", "python/test_numba_arrays.py"),
    known("numba_cuda_mlir", Habit::NeverClosesStreams, "0.6.0", "python/test_numba_arrays.py"),
    known("cupy", Habit::NeverClosesStreams, "14.2.0", "gpu/test_habits.py"),
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
    known("cuda.core._memory", Habit::OrdersNothing, "1.0", "python/test_producers_known.py"),
    known(
        "cuda.core.experimental._memory",
        Habit::OrdersNothing,
        "0.4",
        "python/test_producers_known.py",
    ),
    known("cuml", Habit::StoresDict, "26.10", "python/test_systems.py"),
    known("pylibcudf", Habit::StoresDict, "26.10", "python/test_producers_known.py"),
    known("amrex", Habit::AlwaysNamesNone, "26.10", "python/test_producers_known.py"),
    known("tensorflow", Habit::Immutable, "2.20", "python/test_producers_known.py"),
    known("tensorflow", Habit::TakesNoStream, "2.20", "python/test_producers_known.py"),
    known("nvidia.nvimgcodec", Habit::OneCapsule, "0.6", "python/test_producers_known.py"),
    known("holoscan", Habit::IgnoresDicts, "3.10", "python/test_systems.py"),
];

/// The table, for the test that each row's test exists: library, habit, version, test.
#[pyfunction]
pub(crate) fn _habits() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let row =
        |known: &HabitRow| (known.library, format!("{:?}", known.habit), known.version, known.test);
    HABITS.iter().map(row).collect()
}

/// Whether the table counts as empty.
static FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// Makes every library an unknown one, for the tests that what is promised holds without the table. Types that were
/// looked at before stay known.
#[pyfunction]
pub(crate) fn _forget_habits() {
    FORGOTTEN.store(true, Ordering::Relaxed);
}

/// Whether a module of that name is of `library`.
pub(crate) fn is_of(module: &str, library: &str) -> bool {
    module.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Some of them, which is asked several times at each import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits(u32);

impl Habits {
    /// Those where `are_of` tells whether what they are about is of a library.
    pub(crate) fn of(are_of: impl Fn(About, &str) -> bool) -> Self {
        if FORGOTTEN.load(Ordering::Relaxed) {
            return Self(0);
        }
        let has = |row: &HabitRow| are_of(row.habit.about(), row.library);
        // A library inside another, as JAX's buffers of a callback, has its own rows alone.
        let is_inner = |row: &HabitRow, outer: &str| {
            row.library != outer && is_of(row.library, outer) && has(row)
        };
        let known = HABITS
            .iter()
            .filter(|row| has(row) && !HABITS.iter().any(|other| is_inner(other, row.library)));
        Self(known.fold(0, |all, row| all | row.habit.bit()))
    }

    pub(crate) const fn has(self, habit: Habit) -> bool {
        self.0 & habit.bit() != 0
    }

    /// Whether nothing is known of it.
    pub(crate) const fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is known to do anything but what the protocols say.
    pub(crate) const fn are_peculiar(self) -> bool {
        self.0 & !(Habit::KeepsToDlpack.bit() | Habit::NoneIsNothing.bit()) != 0
    }
}
