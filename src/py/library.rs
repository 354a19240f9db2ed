//! What the bridge knows of a library: what its file in `libraries` says of it, and the slot that has all of them.
//!
//! This stands above streams and imports, which ask; the files stand below them. So they come by a slot, which is
//! filled before the first array comes.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use super::habits::{About, HabitRow, Habits, is_of};
use super::native::Question;
use crate::stream::{Ready, Stream};

/// A library that the bridge knows. What it leaves out is as the protocols say.
pub(super) trait Library: Sync + fmt::Debug {
    /// What the names of its modules begin with.
    fn name(&self) -> &'static str;

    /// What it does that its protocols do not say.
    fn habits(&self) -> &'static [HabitRow] {
        &[]
    }

    /// The stream that it works on now, where it has one.
    fn current(&self) -> Option<&dyn Current> {
        None
    }

    /// The functions that give the streams that it works on now, where Python has them.
    fn functions(&self) -> Option<&dyn Functions> {
        None
    }

    /// The streams that it works on now on a simulated GPU, by their objects, and whether it ignores those of dicts.
    fn simulated_streams<'py>(
        &self,
        _py: Python<'py>,
        _ordinal: i32,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        Ok(Vec::new())
    }

    /// The stream that its arrays are ready on now, as the driver names it, where they name none.
    fn ready_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }

    /// The streams that it never destroys.
    fn pool(&self) -> Option<&dyn Pool> {
        None
    }

    /// Where an object of its streams has the handle, which its `__cuda_stream__` answers in newer releases.
    fn handle_attribute(&self) -> Option<&'static str> {
        None
    }

    /// The handle of one of its streams, of a release that is older than `__cuda_stream__`.
    fn older_handle(&self, stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let Some(name) = self.handle_attribute() else { return Ok(None) };
        stream.getattr_opt(name)?.map(|handle| handle.extract()).transpose()
    }

    /// Its default stream, which its dicts do not name.
    fn default_stream(&self, _py: Python<'_>) -> PyResult<Stream> {
        Ok(Stream::Legacy)
    }

    /// The attributes that arrays of `kind`, the type of `x`, are read by in place of their dict.
    fn parts(
        &'static self,
        _x: &Bound<'_, PyAny>,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<Parts>> {
        Ok(None)
    }

    /// How the capsules of arrays of `kind` are had by less than their `__dlpack__`.
    fn capsules(
        &'static self,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<&'static dyn Capsules>> {
        Ok(None)
    }

    /// What lets its arrays be asked whose classes refuse every question: a context manager.
    fn unwrapping<'py>(&self, _py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// What is in the names of its files that run between a line of the program and the bridge.
    fn frames(&self) -> Option<&'static str> {
        None
    }

    /// How its arrays are made without Python, where `make`, of the library as `convert` has it, is that.
    fn makes(&self, _make: &Bound<'_, PyAny>) -> Option<Box<dyn Makes>> {
        None
    }
}

/// The stream that a library works on now.
pub(super) trait Current: Sync + fmt::Debug {
    /// It, as the driver names it; `None` where the library is not imported, or does not say.
    fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>>;

    /// Its object, where it has one.
    fn object<'py>(&self, _py: Python<'py>, _ordinal: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// Whether the library ignores the streams that dicts name.
    fn ignores_dicts(&self) -> bool {
        false
    }
}

/// Functions of Python's that give the stream that a library works on now. They are asked where nobody named the user of
/// memory, and each costs more than a [`Current`].
pub(super) trait Functions: Sync + fmt::Debug {
    /// The module that is imported where there is one to ask; `None` for those that [`set_registered`] tells of.
    fn module(&self) -> Option<&'static str>;

    /// All of them. Each takes a GPU's ordinal, and returns a stream as `stream=` takes it, or None.
    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>>;

    /// Whether their libraries ignore the streams that dicts name.
    fn ignore_dicts(&self) -> bool {
        false
    }
}

/// Streams that a library never destroys. It hands them out in turn.
pub(super) trait Pool: Sync + fmt::Debug {
    /// Their handles on a GPU; `None` where the library does not use that yet: to ask would make it begin.
    fn list(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>>;

    /// Whether the library computes on another stream, which waits for the one of the pool that others are ready on.
    fn is_apart(&self) -> bool {
        false
    }

    /// That stream, as the driver names it; `None` where the library does not say. It is never destroyed.
    fn computes_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }
}

/// Gives capsules of a type of arrays whose `__dlpack__` has no word for no stream.
pub(super) trait Capsules: Sync + fmt::Debug {
    /// That of `x` for a stream, by the quick way; `None` where that is not known to be right, or does not have it.
    fn quickly<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// That which `public` gives, by `__dlpack__`; the first time compared with the quick way's.
    fn compared<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
        public: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Makes arrays of views.
pub(super) trait Makes: Send + Sync {
    /// The array of `view`, which is made of those parts.
    fn make<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        parts: ArrayParts<'py>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// What an array is made of.
#[derive(Debug)]
pub(crate) struct ArrayParts<'py> {
    /// The address of the first item; 0 if there is none.
    pub(super) ptr: u64,
    /// The bytes of all items, gaps not counted.
    pub(super) nbytes: i64,
    /// The number of its GPU.
    pub(super) device: i32,
    pub(super) shape: Bound<'py, PyTuple>,
    pub(super) dtype: Bound<'py, PyAny>,
    /// In bytes, where it is not C-contiguous.
    pub(super) strides: Option<Bound<'py, PyTuple>>,
}

/// The attributes of a type of arrays.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) shape: Question,
    /// Whether the elements lie in C order without gaps, which saves the strides.
    pub(super) contiguous: Option<Question>,
    pub(super) strides: Question,
    pub(super) dtype: Question,
    pub(super) address: Box<dyn Address>,
}

/// Where an array has the address of its first element, and what names the stream that it is ready on.
pub(super) trait Address: Send + Sync + fmt::Debug {
    /// The address; `None` where the array's dict has to be asked.
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>>;

    /// The stream; `None` where the dict has to be asked.
    fn stream<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Option<(Ready, Names<'py>)>>;
}

/// What names the stream that an array is ready on.
#[derive(Debug)]
pub(super) enum Names<'py> {
    /// Its library, by its current stream, which depends on where the array is.
    Library(&'static dyn Current),
    /// The array itself, which may have that stream's object.
    Array(Option<Bound<'py, PyAny>>),
}

/// The libraries.
struct Known {
    all: &'static [&'static dyn Library],
    current: Vec<&'static dyn Current>,
    functions: Vec<(Option<Py<PyString>>, &'static dyn Functions)>,
    pools: Vec<&'static dyn Pool>,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Has these be known.
pub(super) fn know(py: Python<'_>, all: &'static [&'static dyn Library]) {
    let with_module = |functions: &'static dyn Functions| {
        let name = functions.module().map(|name| PyString::intern(py, name).unbind());
        (name, functions)
    };
    KNOWN.get_or_init(|| Known {
        all,
        current: all.iter().filter_map(|library| library.current()).collect(),
        functions: all.iter().filter_map(|library| library.functions()).map(with_module).collect(),
        pools: all.iter().filter_map(|library| library.pool()).collect(),
    });
}

/// All of them, in the order in which they are asked.
pub(super) fn all() -> &'static [&'static dyn Library] {
    KNOWN.get().map_or(&[], |known| known.all)
}

/// The one that a module of that name is of.
pub(super) fn of_module(module: &str) -> Option<&'static dyn Library> {
    all().iter().copied().find(|library| is_of(module, library.name()))
}

/// How the capsules of arrays of `kind` are had by less than their `__dlpack__`.
pub(super) fn capsules(kind: &Bound<'_, PyType>) -> PyResult<Option<&'static dyn Capsules>> {
    for library in all() {
        let found = library.capsules(kind)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The current streams of those that have one.
#[inline]
pub(super) fn current() -> &'static [&'static dyn Current] {
    KNOWN.get().map_or(&[], |known| &known.current)
}

/// Whether programs registered libraries, which is asked each time.
static ARE_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Has their functions be asked, or not.
pub(super) fn set_registered(are: bool) {
    ARE_REGISTERED.store(are, Ordering::Release);
}

/// Whether they have to be.
#[inline]
pub(super) fn are_registered() -> bool {
    ARE_REGISTERED.load(Ordering::Acquire)
}

/// The functions of those that have one, with the name of the module that is imported where there is one to ask.
#[inline]
pub(super) fn functions() -> &'static [(Option<Py<PyString>>, &'static dyn Functions)] {
    KNOWN.get().map_or(&[], |known| &known.functions)
}

/// The pools of those that have one.
pub(super) fn pools() -> &'static [&'static dyn Pool] {
    KNOWN.get().map_or(&[], |known| &known.pools)
}

/// All habits.
pub(super) fn rows() -> impl Iterator<Item = &'static HabitRow> {
    all().iter().flat_map(|library| library.habits())
}

/// Whether nothing is known of any.
static FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// Makes every library an unknown one, for the tests that what is promised holds without what is known. Types that were
/// looked at before stay known.
#[pyfunction]
pub(super) fn _forget_habits() {
    FORGOTTEN.store(true, Ordering::Relaxed);
}

/// All habits, for the test that each row's test exists: library, habit, version, test.
#[pyfunction]
pub(super) fn _habits() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let row =
        |known: &HabitRow| (known.library, format!("{:?}", known.habit), known.version, known.test);
    rows().map(row).collect()
}

/// The habits of a class, where `are_of` tells whether what one is about is of a library; and the first library that has
/// one of them.
pub(super) fn habits_of(
    are_of: impl Fn(About, &str) -> bool,
) -> (Habits, Option<&'static dyn Library>) {
    if FORGOTTEN.load(Ordering::Relaxed) {
        return (Habits::NONE, None);
    }
    let has = |row: &HabitRow| are_of(row.habit.about(), row.library);
    // A library inside another, as JAX's buffers of a callback, has its own rows alone.
    let is_inner =
        |row: &HabitRow, outer: &str| row.library != outer && is_of(row.library, outer) && has(row);
    let known = rows().filter(|row| has(row) && !rows().any(|other| is_inner(other, row.library)));
    let first = all().iter().find(|library| library.habits().iter().any(has));
    (known.fold(Habits::NONE, Habits::and), first.copied())
}
