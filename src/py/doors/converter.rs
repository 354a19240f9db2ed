//! How `convert` makes the arrays of a library.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};

use super::Optional;
use super::consumer_stream::ConsumerStream;
use super::library_traits::{CurrentStreamRoute, DOOR, LibraryTraits, Method, ViewClass, give};
use super::to_dlpack::is_on_host;
use super::tree::{ConvertOptions, Converted, Root};
use crate::lease::WordHasher;
use crate::py::by_type::KEPT;
use crate::py::flag;
use crate::py::interpreter::{Answer, act, entry};
use crate::py::lease::HeldMemory;
use crate::py::library::Makes;
use crate::py::native;
use crate::py::observe::CallSpan;
use crate::py::producers::types::facts;
use crate::py::streams::StreamArgument;
use crate::py::views::{BaseView, CaiView, DLPackView};

/// Makes a library's arrays. Asks the `Library` object once for its traits, and keeps them.
#[pyclass(frozen, module = "cai_bridge", name = "_Converter")]
#[allow(missing_debug_implementations, reason = "a cell of PyO3 has none")]
pub(crate) struct Converter {
    /// The `Library`.
    #[pyo3(get)]
    pub(super) library: Py<PyAny>,
    traits: PyOnceLock<LibraryTraits>,
    quick: PyOnceLock<Box<dyn Makes>>,
    foreign: [PyOnceLock<Py<PyType>>; MOST],
    /// Other libraries' types that did not fit into `foreign`.
    more_foreign: Mutex<ForeignTypes>,
    /// Set after an import in a tree failed for an array on the host. While this is set, a walk asks each array where
    /// it is.
    pub(super) meets_hosts: AtomicBool,
}

const MOST: usize = 16;

/// The types are kept alive, so that no other type gets their addresses.
type ForeignTypes = HashMap<usize, Py<PyType>, BuildHasherDefault<WordHasher>>;

#[pymethods]
impl Converter {
    #[new]
    fn new(library: Py<PyAny>) -> Self {
        Self {
            library,
            traits: PyOnceLock::new(),
            quick: PyOnceLock::new(),
            foreign: [const { PyOnceLock::new() }; MOST],
            more_foreign: Mutex::default(),
            meets_hosts: AtomicBool::new(false),
        }
    }

    /// Converts other libraries' arrays for one call, all or none, usable on `stream` or the library's current stream.
    /// Returns the new arrays, and a callable for each loan, which ends the loan.
    #[pyo3(signature = (xs, stream=None, readonly=None))]
    fn lend<'py>(
        slf: &Bound<'py, Self>,
        xs: &Bound<'py, PyList>,
        stream: Optional<'_, 'py>,
        readonly: Optional<'_, 'py>,
    ) -> Answer<'py> {
        let py = slf.py();
        let xs: Vec<_> = xs.iter().collect();
        entry(py, || {
            let readonly = flag::parse("readonly", readonly)?;
            let how =
                ConvertOptions { stream, readonly, for_call: true, ..ConvertOptions::default() };
            let mut batch = slf.get().several(py, &xs, &how)?;
            batch.consume(py)?;
            (batch.made, PyList::new(py, batch.lent)?).into_pyobject(py)
        })
    }

    /// Converts the GPU arrays among a call's arguments, all or none. Host arrays stay as they are. If a capsule is
    /// among the arguments, `binds` is called first, and fails for arguments that the function does not take. Returns
    /// the arguments, the array whose library the results get (`None` without one), the new arrays, and a callable for
    /// each loan, which ends the loan.
    fn arguments<'py>(
        slf: &Bound<'py, Self>,
        all: &Bound<'py, PyTuple>,
        names: &Bound<'py, PyAny>,
        stream: Optional<'_, 'py>,
        readonly: Optional<'_, 'py>,
        binds: Optional<'_, 'py>,
    ) -> Answer<'py> {
        let py = slf.py();
        entry(py, || {
            let readonly = flag::parse("readonly", readonly)?;
            let how = ConvertOptions {
                stream,
                readonly,
                for_call: true,
                binds,
                ..ConvertOptions::default()
            };
            let converted = slf.get().tree(all, &Root::Call(names), &how)?;
            let Some(Converted { tree, arrays, mut made, lent }) = converted else {
                return Ok(py.None().into_bound(py));
            };
            // Numba's pinned and managed arrays are NumPy arrays by type. Do not choose NumPy as the results' library
            // because of them.
            let is_like = |x: &&Bound<'py, PyAny>| !facts(x).is_ok_and(|facts| facts.is_numpys);
            let mut given = arrays.iter();
            made.retain(|array| !given.next().is_some_and(|x| x.is(array)));
            let first = arrays.iter().find(is_like).cloned();
            let parts = (tree, first, made, PyList::new(py, lent)?);
            Ok(parts.into_pyobject(py)?.into_any())
        })
    }

    /// Converts the GPU arrays of a call's result, all or none. Their pending work is on `made_on`, if that is given.
    fn result<'py>(
        slf: &Bound<'py, Self>,
        x: &Bound<'py, PyAny>,
        made_on: Optional<'_, 'py>,
    ) -> Answer<'py> {
        entry(slf.py(), || {
            let how = ConvertOptions { made_on, ..ConvertOptions::default() };
            let converted = slf.get().tree(x, &Root::Result, &how)?;
            Ok(converted.map(|converted| converted.tree))
        })
    }

    /// Fails for a malformed `stream` or `readonly`.
    #[pyo3(signature = (stream=None, readonly=None))]
    fn admit<'py>(
        slf: &Bound<'py, Self>,
        stream: Optional<'_, 'py>,
        readonly: Optional<'_, 'py>,
    ) -> Answer<'py> {
        act(slf.py(), || {
            StreamArgument::parse(stream)?;
            flag::parse("readonly", readonly).map(drop)
        })
    }

    /// The library's current stream on a GPU; `None` if the library has none.
    fn works_on<'py>(slf: &Bound<'py, Self>, ordinal: i32) -> Answer<'py> {
        entry(slf.py(), || slf.get().stream_on(slf.py(), ordinal, None))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.library)
    }
}

impl Converter {
    pub(super) fn traits(&self, py: Python<'_>) -> PyResult<&LibraryTraits> {
        self.traits.get_or_try_init(py, || LibraryTraits::of(self.library.bind(py)))
    }

    /// The stream that the caller passed, else the library's current stream; Python's `None` if there is none.
    pub(super) fn stream_on<'py>(
        &self,
        py: Python<'py>,
        ordinal: i32,
        stream: Optional<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let library = self.library.bind(py);
        let asked = ConsumerStream::of(library, self.traits(py)?, ordinal, stream)?;
        asked.argument().map_err(|error| asked.explain(library, error))?;
        asked.into_python(py)
    }

    /// Returns `None` if `x` needs [`Self::tree`] or [`Self::other`]. `how.copy` and `how.detach` must be `None`.
    pub(super) fn single<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        how: &ConvertOptions<'_, 'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = x.py();
        let traits = self.traits(py)?;
        if !self.is_foreign(x, traits)? {
            let itself = how.stream.is_none() && how.readonly.is_none();
            if !itself || !traits.has(x)? {
                return Ok(None);
            }
            if let Ok(view) = x.cast::<BaseView>() {
                view.get().check_leased()?;
            }
            return Ok(Some(x.clone()));
        }
        let readonly = how.readonly.or(traits.limits.readonly);
        let named = StreamArgument::parse(how.stream)?;
        let mut source = match traits.take(x, readonly, &named) {
            Err(error)
                if traits.from_host.is_some()
                    && error.is_instance_of::<PyBufferError>(py)
                    && is_on_host(x)? =>
            {
                return self.of_host(x, how).map(Some);
            }
            taken => taken?,
        };
        let asked = self.hand_over(py, traits, &mut source, named, how.stream)?;
        self.make(py, traits, source, readonly, asked.answer.as_ref()).map(Some)
    }

    /// Whether the type of `x` is an array type of another library. False for capsules and dicts.
    pub(super) fn is_foreign(
        &self,
        x: &Bound<'_, PyAny>,
        traits: &LibraryTraits,
    ) -> PyResult<bool> {
        let (py, kind) = (x.py(), x.get_type());
        let mut known = self.foreign.iter().map_while(|known| known.get(py));
        if known.any(|known| known.is(&kind)) || self.is_more_foreign(&kind) {
            return Ok(true);
        }
        if traits.has(x)? || !facts(x)?.is_array() {
            return Ok(false);
        }
        // Do not keep NumPy's array type or a subclass: some of the type's objects may be NumPy's own arrays.
        if !facts(x)?.is_numpys {
            match self.foreign.iter().find(|known| known.get(py).is_none()) {
                Some(free) => drop(free.set(py, kind.unbind())),
                None => self.add_foreign(kind),
            }
        }
        Ok(true)
    }

    #[inline]
    fn is_more_foreign(&self, kind: &Bound<'_, PyType>) -> bool {
        self.foreign.last().is_some_and(|last| last.get(kind.py()).is_some())
            && self.more_foreign().contains_key(&kind.as_ptr().addr())
    }

    #[cold]
    fn add_foreign(&self, kind: Bound<'_, PyType>) {
        let gone = {
            let mut more = self.more_foreign();
            let gone = (more.len() == KEPT).then(|| std::mem::take(&mut *more));
            more.insert(kind.as_ptr().addr(), kind.unbind());
            gone
        };
        // Dropping a type can run arbitrary code, so the lock is released first.
        drop(gone);
    }

    fn more_foreign(&self) -> MutexGuard<'_, ForeignTypes> {
        self.more_foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call this after the hand-over of `source` to `stream`.
    pub(super) fn make<'py>(
        &self,
        py: Python<'py>,
        traits: &LibraryTraits,
        source: Box<HeldMemory>,
        readonly: Option<bool>,
        stream: Optional<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let span = CallSpan::begin();
        let (class, calls) = match traits.method {
            Method::Table(table) => return give(py, source, table, span),
            Method::Make(class) => (class, true),
            Method::View(class) => (class, false),
        };
        let mut source = source;
        let alone = source.array.dtype().is_cais_alone();
        if calls {
            source.register_whole(py);
        }
        let view = match class {
            ViewClass::Cai => BaseView::object::<CaiView>(py, source)?.into_super(),
            ViewClass::DLPack => BaseView::object::<DLPackView>(py, source)?.into_super(),
        };
        span.exchanged(view.get().passed_in(DOOR));
        if !calls {
            return Ok(view.into_any());
        }
        let library = self.library.bind(py);
        if !alone && let Some(quick) = self.quick.get(py) {
            return quick.make(view.as_any(), view.get().parts(py)?);
        }
        let make = if alone { intern!(py, "_make_by_dict") } else { intern!(py, "make") };
        let made = library.call_method1(make, (&view, stream))?;
        if traits.is_registered {
            check_made(&made, &view, class)?;
        }
        if traits.is_numpy && readonly == Some(true) {
            made.getattr(intern!(py, "flags"))?.setattr(intern!(py, "writeable"), false)?;
        }
        if !alone
            && let CurrentStreamRoute::Known(known) = &traits.current
            && let Some(quick) = known.get().library.makes(&library.getattr(intern!(py, "make"))?)
        {
            self.quick.get_or_init(py, || quick);
        }
        Ok(made)
    }
}

/// Fails if `made` is None. Also fails if nothing else holds `view`, a `CaiView` with elements: the array would not
/// keep its memory alive.
fn check_made(
    made: &Bound<'_, PyAny>,
    view: &Bound<'_, BaseView>,
    class: ViewClass,
) -> PyResult<()> {
    let got = if made.is_none() {
        "None"
    } else if matches!(class, ViewClass::Cai)
        && view.get().array.ptr() != 0
        && native::is_held_by_nobody_else(view)
    {
        "an array that does not hold its view"
    } else {
        return Ok(());
    };
    let allowed = "an array of the library, which holds the view as long as it uses the memory";
    Err(PyTypeError::new_err(format!("make: got {got}; allowed: {allowed}")))
}
