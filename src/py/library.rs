//! What a library's file in `libraries` tells the bridge, and the list of the known libraries. This module does not
//! name the libraries: [`know`] registers them at run time, before the first array is imported.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use super::habits::{About, HabitRow, Habits, is_of};
use super::native::ObjectQuestion;
use crate::stream::{Ready, Stream};

/// The default methods are for a library that does what the protocols say.
pub(super) trait Library: Sync + fmt::Debug {
    /// The dotted name of the library's package, such as `torch`. A name in angle brackets is not a package's.
    fn name(&self) -> &'static str;

    /// A row can name another package that has classes of the library, such as `jaxlib` for JAX.
    fn habits(&self) -> &'static [HabitRow] {
        &[]
    }

    fn current(&self) -> Option<&dyn Current> {
        None
    }

    fn functions(&self) -> Option<&dyn Functions> {
        None
    }

    /// Each stream object, and whether its library ignores the streams that dicts name.
    fn simulated_streams<'py>(
        &self,
        _py: Python<'py>,
        _ordinal: i32,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        Ok(Vec::new())
    }

    /// The handle of the stream on which the library's arrays are ready now; `None` if the library does not say.
    fn ready_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }

    fn pool(&self) -> Option<&dyn StreamPool> {
        None
    }

    fn handle_attribute(&self) -> Option<&'static str> {
        None
    }

    /// The handle of a stream object without `__cuda_stream__`, as in older releases of the library.
    fn older_handle(&self, stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let Some(name) = self.handle_attribute() else { return Ok(None) };
        stream.getattr_opt(name)?.map(|handle| handle.extract()).transpose()
    }

    /// The stream that a library with the habit `DefaultStreamUnnamed` means if its dict names none.
    fn default_stream(&self, _py: Python<'_>) -> PyResult<Stream> {
        Ok(Stream::Legacy)
    }

    /// How to read arrays of `kind`, the type of `x`, by their attributes; `None` to read their dict.
    fn attributes(
        &'static self,
        _x: &Bound<'_, PyAny>,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<AttributeQuestions>> {
        Ok(None)
    }

    fn capsules(
        &'static self,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<&'static dyn Capsules>> {
        Ok(None)
    }

    /// A context manager inside which attributes can be read even if the array's class forbids all operations.
    fn unwrapping<'py>(&self, _py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// The search for the program's source line skips frames whose file path contains this text.
    fn frames(&self) -> Option<&'static str> {
        None
    }

    fn makes(&self, _make: &Bound<'_, PyAny>) -> Option<Box<dyn Makes>> {
        None
    }
}

pub(super) trait Current: Sync + fmt::Debug {
    /// The stream's driver handle; `None` if the library is not imported or does not say.
    fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>>;

    fn object<'py>(&self, _py: Python<'py>, _ordinal: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// Whether the library, as a consumer, ignores the streams that dicts name.
    fn ignores_dicts(&self) -> bool {
        false
    }
}

pub(super) trait Functions: Sync + fmt::Debug {
    /// The module that a program imports to use the library; `None` for the registered libraries.
    fn module(&self) -> Option<&'static str>;

    /// Each function takes a GPU's ordinal and returns a stream object, a handle other than 0, or None for no stream.
    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>>;

    fn ignore_dicts(&self) -> bool {
        false
    }
}

/// Streams that a library never destroys, and hands out in turn.
pub(super) trait StreamPool: Sync + fmt::Debug {
    /// The handles of the pool's streams on a GPU. `None` if the library is not imported, has not initialised CUDA, or
    /// lacks the GPU.
    fn list(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>>;

    /// Whether the library computes on a stream outside the pool, as JAX does.
    fn is_apart(&self) -> bool {
        false
    }

    /// The stream outside the pool on which the library computes; `None` if the library does not say.
    fn computes_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }
}

/// A quick way to get the capsules of a library's arrays, used only after a comparison with `__dlpack__`.
pub(super) trait Capsules: Sync + fmt::Debug {
    /// `None` if the quick way cannot export `x`, or has not passed the comparison with `__dlpack__`.
    fn quickly<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// Returns the capsule that `public` gets from `__dlpack__`. Until the quick way was compared, can also get a
    /// capsule the quick way, and compare the two.
    fn compared<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
        public: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

pub(super) trait Makes: Send + Sync {
    /// Makes an array over the memory of `view`, whose parts are `parts`. The array keeps `view` alive.
    fn make<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        parts: ArrayParts<'py>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

#[derive(Debug)]
pub(crate) struct ArrayParts<'py> {
    /// The address of the first item; 0 if the array has no items.
    pub(super) ptr: u64,
    /// The size of all items in bytes, without gaps.
    pub(super) nbytes: i64,
    /// The ID in DLPack's device pair; for memory of a GPU, the GPU's ordinal.
    pub(super) device: i32,
    pub(super) shape: Bound<'py, PyTuple>,
    pub(super) dtype: Bound<'py, PyAny>,
    /// The strides in bytes; `None` if the array is C-contiguous.
    pub(super) strides: Option<Bound<'py, PyTuple>>,
}

#[derive(Debug)]
pub(super) struct AttributeQuestions {
    pub(super) shape: ObjectQuestion,
    /// Asks whether the array is C-contiguous. If so, the strides are not read.
    pub(super) contiguous: Option<ObjectQuestion>,
    pub(super) strides: ObjectQuestion,
    pub(super) dtype: ObjectQuestion,
    pub(super) address: Box<dyn Address>,
}

pub(super) trait Address: Send + Sync + fmt::Debug {
    /// `None` if the array's dict must be read.
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>>;

    /// What the array says about its pending work, and whether the library or the array names the stream. `None` if the
    /// array's CAI dict must be read.
    fn stream<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Option<(Ready, NamedBy<'py>)>>;
}

#[derive(Debug)]
pub(super) enum NamedBy<'py> {
    /// The library, by its current stream on the array's GPU.
    Library(&'static dyn Current),
    /// The array itself, with its stream's object if it has one.
    Array(Option<Bound<'py, PyAny>>),
}

struct LibraryLists {
    all: &'static [&'static dyn Library],
    current: Vec<&'static dyn Current>,
    functions: Vec<(Option<Py<PyString>>, &'static dyn Functions)>,
    pools: Vec<&'static dyn StreamPool>,
}

struct Libraries {
    known: OnceLock<LibraryLists>,
    are_registered: AtomicBool,
    forgotten: AtomicBool,
}

static LIBRARIES: Libraries = Libraries {
    known: OnceLock::new(),
    are_registered: AtomicBool::new(false),
    forgotten: AtomicBool::new(false),
};

/// Registers the libraries. Only the first call counts.
pub(super) fn know(py: Python<'_>, all: &'static [&'static dyn Library]) {
    let with_module = |functions: &'static dyn Functions| {
        let name = functions.module().map(|name| PyString::intern(py, name).unbind());
        (name, functions)
    };
    LIBRARIES.known.get_or_init(|| LibraryLists {
        all,
        current: all.iter().filter_map(|library| library.current()).collect(),
        functions: all.iter().filter_map(|library| library.functions()).map(with_module).collect(),
        pools: all.iter().filter_map(|library| library.pool()).collect(),
    });
}

/// All libraries, in the order of lookups: the first that knows the type or module is taken. Empty before [`know`].
pub(super) fn all() -> &'static [&'static dyn Library] {
    LIBRARIES.known.get().map_or(&[], |known| known.all)
}

pub(super) fn of_module(module: &str) -> Option<&'static dyn Library> {
    all().iter().copied().find(|library| is_of(module, library.name()))
}

pub(super) fn capsules(kind: &Bound<'_, PyType>) -> PyResult<Option<&'static dyn Capsules>> {
    for library in all() {
        let found = library.capsules(kind)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[inline]
pub(super) fn current() -> &'static [&'static dyn Current] {
    LIBRARIES.known.get().map_or(&[], |known| &known.current)
}

pub(super) fn set_registered(are: bool) {
    LIBRARIES.are_registered.store(are, Ordering::Release);
}

#[inline]
pub(super) fn are_registered() -> bool {
    LIBRARIES.are_registered.load(Ordering::Acquire)
}

#[inline]
pub(super) fn functions() -> &'static [(Option<Py<PyString>>, &'static dyn Functions)] {
    LIBRARIES.known.get().map_or(&[], |known| &known.functions)
}

pub(super) fn pools() -> &'static [&'static dyn StreamPool] {
    LIBRARIES.known.get().map_or(&[], |known| &known.pools)
}

pub(super) fn rows() -> impl Iterator<Item = &'static HabitRow> {
    all().iter().flat_map(|library| library.habits())
}

/// From now on, [`habits_of`] finds nothing: the bridge knows no habits of a type that it examines later. Types that it
/// examined before keep their habits. Tests use this to show that the guarantees do not depend on habits.
#[pyfunction]
pub(super) fn _forget_habits() {
    LIBRARIES.forgotten.store(true, Ordering::Relaxed);
}

/// Every known habit as (library, habit, version it was seen on, test file that shows it). For the tests; one checks
/// that each test file exists.
#[pyfunction]
pub(super) fn _habits() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let row =
        |known: &HabitRow| (known.library, format!("{:?}", known.habit), known.version, known.test);
    rows().map(row).collect()
}

/// The habits of a class, and the first library with a row that applies to the class. A row applies if `are_of` returns
/// true for the row. Finds nothing after [`_forget_habits`].
pub(super) fn habits_of(
    are_of: impl Fn(About, &str) -> bool,
) -> (Habits, Option<&'static dyn Library>) {
    if LIBRARIES.forgotten.load(Ordering::Relaxed) {
        return (Habits::NONE, None);
    }
    let has = |row: &HabitRow| are_of(row.habit.about(), row.library);
    // If a row of an inner package applies to the class, no row of the outer package does. JAX's callback buffers
    // (`jax.experimental.buffer_callback`), for instance, have no habits of `jax`.
    let is_inner =
        |row: &HabitRow, outer: &str| row.library != outer && is_of(row.library, outer) && has(row);
    let known = rows().filter(|row| has(row) && !rows().any(|other| is_inner(other, row.library)));
    let first = all().iter().find(|library| library.habits().iter().any(has));
    (known.fold(Habits::NONE, Habits::and), first.copied())
}
