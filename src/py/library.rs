//! What a library's file in `libraries` tells the bridge, and the list of the known libraries.
//!
//! `streams` and `producers` use this module, and the files in `libraries` use `streams`. So this module does not name
//! the libraries: [`know`] registers them at run time, before the first array is imported.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use super::habits::{About, HabitRow, Habits, is_of};
use super::native::ObjectQuestion;
use crate::stream::{Ready, Stream};

/// A library that the bridge knows. The default methods are for a library that does what the protocols say.
pub(super) trait Library: Sync + fmt::Debug {
    /// The dotted name of the library's package, such as `torch`. [`of_module`] finds the library by this name, for the
    /// package and the modules inside it. A name in angle brackets is no package's.
    fn name(&self) -> &'static str;

    /// The library's habits. A row may name another package that has classes of the library, such as `jaxlib` for JAX.
    fn habits(&self) -> &'static [HabitRow] {
        &[]
    }

    /// How to ask for the library's current stream without the functions of [`Self::functions`]; `None` if there is no
    /// such way.
    fn current(&self) -> Option<&dyn Current> {
        None
    }

    /// Python functions that return the library's current streams; `None` if there are none.
    fn functions(&self) -> Option<&dyn Functions> {
        None
    }

    /// The current streams on a simulated GPU, as objects, each with whether its library ignores the streams that dicts
    /// name.
    fn simulated_streams<'py>(
        &self,
        _py: Python<'py>,
        _ordinal: i32,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        Ok(Vec::new())
    }

    /// The driver handle of the stream on which the library's arrays are ready now; `None` if the arrays name their
    /// streams, or the library does not say.
    fn ready_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }

    /// The library's pool of streams; `None` if it has none.
    fn pool(&self) -> Option<&dyn StreamPool> {
        None
    }

    /// The name of the attribute in which the library's stream objects have their handle, also in releases before
    /// `__cuda_stream__`.
    fn handle_attribute(&self) -> Option<&'static str> {
        None
    }

    /// The handle of a stream object without `__cuda_stream__`, as in older releases of the library. By default it is
    /// the attribute that [`Self::handle_attribute`] names; `None` if the object has no such attribute.
    fn older_handle(&self, stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let Some(name) = self.handle_attribute() else { return Ok(None) };
        stream.getattr_opt(name)?.map(|handle| handle.extract()).transpose()
    }

    /// The library's default stream. A library with the habit `DefaultStreamUnnamed` means this stream if its dict
    /// names none.
    fn default_stream(&self, _py: Python<'_>) -> PyResult<Stream> {
        Ok(Stream::Legacy)
    }

    /// How to read arrays of `kind`, the type of `x`, by their attributes instead of their dict; `None` to read the
    /// dict.
    fn attributes(
        &'static self,
        _x: &Bound<'_, PyAny>,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<AttributeQuestions>> {
        Ok(None)
    }

    /// How to get capsules of arrays of `kind` more cheaply than by `__dlpack__`; `None` if there is no such way.
    fn capsules(
        &'static self,
        _kind: &Bound<'_, PyType>,
    ) -> PyResult<Option<&'static dyn Capsules>> {
        Ok(None)
    }

    /// A context manager inside which an array's attributes can be read even if its class raises for every operation.
    /// `None` if the library has no such context manager.
    fn unwrapping<'py>(&self, _py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// Part of the path of those library files whose code may run between the program and the bridge. The search for
    /// the program's line skips their frames.
    fn frames(&self) -> Option<&'static str> {
        None
    }

    /// A quicker way to make the library's arrays than calling `make`, the function by which `convert` makes them.
    /// `None` if there is no quicker way for this `make`.
    fn makes(&self, _make: &Bound<'_, PyAny>) -> Option<Box<dyn Makes>> {
        None
    }
}

/// A library's current stream.
pub(super) trait Current: Sync + fmt::Debug {
    /// The stream's driver handle; `None` if the library is not imported or does not say.
    fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>>;

    /// The stream's object; `None` if the library is not imported or gives no object.
    fn object<'py>(&self, _py: Python<'py>, _ordinal: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }

    /// Whether the library ignores the streams that dicts name.
    fn ignores_dicts(&self) -> bool {
        false
    }
}

/// Python functions that return the current streams of a library, or of all registered libraries. Calling a function
/// costs more than asking a [`Current`].
pub(super) trait Functions: Sync + fmt::Debug {
    /// The module that a program imports to use the library; `None` for the registered libraries.
    fn module(&self) -> Option<&'static str>;

    /// The functions. Each takes a GPU's ordinal, and returns a library's current stream there: a stream object, or a
    /// handle other than 0. None means that the library names no stream.
    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>>;

    /// Whether the libraries of these functions ignore the streams that dicts name.
    fn ignore_dicts(&self) -> bool {
        false
    }
}

/// Streams that a library never destroys, and hands out in turn.
pub(super) trait StreamPool: Sync + fmt::Debug {
    /// The streams' handles on a GPU. `None` if the library is not imported, has no such GPU, or has not initialised
    /// its GPU side yet: asking would initialise it.
    fn list(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>>;

    /// Whether the library passes a stream of this pool as `stream=`, but computes on a stream outside the pool, as JAX
    /// does. The library itself makes the outside stream wait for the stream that it passed.
    fn is_apart(&self) -> bool {
        false
    }

    /// The driver handle of the stream on which the library computes; `None` if the library does not say. The library
    /// never destroys that stream.
    fn computes_on(&self, _py: Python<'_>, _ordinal: i32) -> PyResult<Option<u64>> {
        Ok(None)
    }
}

/// A quick way to get the capsules of a library's arrays, used only after a comparison with `__dlpack__`. The bridge
/// never passes -1 ("no order") to the `__dlpack__` of these arrays, since JAX's does not accept it.
pub(super) trait Capsules: Sync + fmt::Debug {
    /// Gets the capsule of `x` for a stream by the quick way. `None` if that way cannot export `x`, or if no comparison
    /// has shown yet that it agrees with `__dlpack__`.
    fn quickly<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// Gets the capsule of `x` from `public`, which calls `__dlpack__`. Until one comparison has decided on the quick
    /// way, also compares the two ways' capsules.
    fn compared<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        stream: u64,
        public: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// A quick way to make a library's arrays from views, without a call of the library's `make`.
pub(super) trait Makes: Send + Sync {
    /// Makes an array over the memory of `view` from `parts`, which are the view's. The array keeps `view` alive.
    fn make<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        parts: ArrayParts<'py>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// What a library needs to make an array over existing memory.
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

/// How to read the attributes of a type's arrays.
#[derive(Debug)]
pub(super) struct AttributeQuestions {
    pub(super) shape: ObjectQuestion,
    /// Whether the elements lie in C order without gaps. If so, the strides need not be read.
    pub(super) contiguous: Option<ObjectQuestion>,
    pub(super) strides: ObjectQuestion,
    pub(super) dtype: ObjectQuestion,
    pub(super) address: Box<dyn Address>,
}

/// How to read an array's address, and how to find the stream on which the array is ready.
pub(super) trait Address: Send + Sync + fmt::Debug {
    /// The address; `None` if the array's dict must be read.
    fn read(&self, x: &Bound<'_, PyAny>) -> PyResult<Option<u64>>;

    /// What the array says about its pending work, and who names the stream. With [`NamedBy::Library`] the first value
    /// is not used. `None` if the array's dict must be read.
    fn stream<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Option<(Ready, NamedBy<'py>)>>;
}

/// Who names the stream on which an array is ready.
#[derive(Debug)]
pub(super) enum NamedBy<'py> {
    /// The library, by its current stream on the array's GPU.
    Library(&'static dyn Current),
    /// The array itself, with its stream's object if it has one.
    Array(Option<Bound<'py, PyAny>>),
}

/// The known libraries, and lists of what they provide.
struct LibraryLists {
    all: &'static [&'static dyn Library],
    current: Vec<&'static dyn Current>,
    functions: Vec<(Option<Py<PyString>>, &'static dyn Functions)>,
    pools: Vec<&'static dyn StreamPool>,
}

/// The libraries that the bridge knows.
struct Libraries {
    known: OnceLock<LibraryLists>,
    /// Whether the program has registered libraries.
    are_registered: AtomicBool,
    /// Whether [`habits_of`] finds no habits and no library, for any class.
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

/// The first library to which a module of this name belongs.
pub(super) fn of_module(module: &str) -> Option<&'static dyn Library> {
    all().iter().copied().find(|library| is_of(module, library.name()))
}

/// How to get capsules of arrays of `kind` more cheaply than by `__dlpack__`; `None` if there is no such way.
pub(super) fn capsules(kind: &Bound<'_, PyType>) -> PyResult<Option<&'static dyn Capsules>> {
    for library in all() {
        let found = library.capsules(kind)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The [`Current`] of each library that has one.
#[inline]
pub(super) fn current() -> &'static [&'static dyn Current] {
    LIBRARIES.known.get().map_or(&[], |known| &known.current)
}

/// Records whether the program has registered libraries. If it has, the bridge asks them for their current streams.
pub(super) fn set_registered(are: bool) {
    LIBRARIES.are_registered.store(are, Ordering::Release);
}

/// Whether the program has registered libraries.
#[inline]
pub(super) fn are_registered() -> bool {
    LIBRARIES.are_registered.load(Ordering::Acquire)
}

/// The functions of the libraries that have any, each with its [`Functions::module`].
#[inline]
pub(super) fn functions() -> &'static [(Option<Py<PyString>>, &'static dyn Functions)] {
    LIBRARIES.known.get().map_or(&[], |known| &known.functions)
}

/// The pools of the libraries that have one.
pub(super) fn pools() -> &'static [&'static dyn StreamPool] {
    LIBRARIES.known.get().map_or(&[], |known| &known.pools)
}

/// The rows of all libraries' habits.
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

/// The habits of a class, and the first library with a row that applies to the class. A row applies if `are_of` is true
/// for what its habit is about and for its package. Nothing is found after [`_forget_habits`].
pub(super) fn habits_of(
    are_of: impl Fn(About, &str) -> bool,
) -> (Habits, Option<&'static dyn Library>) {
    if LIBRARIES.forgotten.load(Ordering::Relaxed) {
        return (Habits::NONE, None);
    }
    let has = |row: &HabitRow| are_of(row.habit.about(), row.library);
    // If a row of an inner package applies to the class, no row of the outer package does. For instance, the buffers of
    // a callback in JAX (`jax.experimental.buffer_callback`) have none of the habits of `jax`.
    let is_inner =
        |row: &HabitRow, outer: &str| row.library != outer && is_of(row.library, outer) && has(row);
    let known = rows().filter(|row| has(row) && !rows().any(|other| is_inner(other, row.library)));
    let first = all().iter().find(|library| library.habits().iter().any(has));
    (known.fold(Habits::NONE, Habits::and), first.copied())
}
