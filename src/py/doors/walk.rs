//! The way through a tree: which of its parts are arrays, and where each is. Lists, tuples and dicts, which most
//! containers are, are taken apart without a call of Python's for each part; `_containers.py` knows the others.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyCapsule, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple,
    PyType,
};

use super::library::{Method, ToLibrary};
use super::maker::Maker;
use super::to_dlpack::{is_array, is_bare_dict, is_on_gpu, says_as_taken};
use super::tree::{How, Kind, Part, Root, Step, Tree, containers, said_at};
use crate::py::interpreter::{answered, raised};
use crate::py::producers::host;

/// A way through a tree.
struct Walk<'a, 'py> {
    maker: &'a Maker,
    to_library: &'a ToLibrary,
    how: &'a How<'a, 'py>,
    root: &'a Root<'a, 'py>,
    /// Whether each array is asked where it is, though it says so as it is taken in.
    asks: bool,
    tree: &'a mut Tree<'py>,
    /// The container of the next part, and those around it. Most trees have one.
    inner: Option<Open<'py>>,
    around: Vec<Open<'py>>,
}

/// A container that is being taken apart. It may change meanwhile: what it had first counts.
struct Open<'py> {
    container: Bound<'py, PyAny>,
    parts: Bound<'py, PyTuple>,
    /// How many of them are behind.
    next: usize,
    /// Its own place among the tree's parts.
    at: usize,
    /// How many arrays were there before.
    before: usize,
    /// Where it was met again in its own parts.
    again_at: Option<Vec<Step<'py>>>,
}

/// Takes a tree apart into `tree`, which is empty; whether there is one: what is given to `convert` may be none.
pub(super) fn apart<'py>(
    (maker, to_library): (&Maker, &ToLibrary),
    x: &Bound<'py, PyAny>,
    root: &Root<'_, 'py>,
    how: &How<'_, 'py>,
    asks: bool,
    tree: &mut Tree<'py>,
) -> PyResult<bool> {
    let (inner, around) = (None, Vec::new());
    let mut walk = Walk { maker, to_library, how, root, asks, tree, inner, around };
    let is_given = matches!(root, Root::Given);
    if is_given && walk.is_single(x)? {
        return Ok(false);
    }
    walk.part(x.clone())?;
    if is_given && walk.inner.is_none() {
        return Ok(false);
    }
    while let Some(open) = &mut walk.inner {
        if open.next == open.parts.len() {
            walk.close()?;
        } else {
            open.next += 1;
            let part = open.parts.get_item(open.next - 1)?;
            walk.part(part)?;
        }
    }
    Ok(true)
}

impl<'py> Walk<'_, 'py> {
    /// Whether it is an array, or one of the library's own, whatever else it is.
    fn is_single(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        if is_container(x) {
            let types = self.to_library.types.bind(x.py());
            let is_bare = x.is_exact_instance_of::<PyDict>() && is_bare_dict(x)?;
            return Ok(is_bare || types.iter_borrowed().any(|own| own.is(x.get_type())));
        }
        Ok(is_plain(x) || self.to_library.has(x)? || is_array(x)?)
    }

    fn part(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        if is_plain(&x) {
            self.same(x);
            return Ok(());
        }
        if is_container(&x) {
            // The names of a call's arguments are no dict's keys.
            let is_call = || matches!(self.root, Root::Call(_)) && self.around.is_empty();
            if x.is_exact_instance_of::<PyDict>() && !is_call() && is_bare_dict(&x)? {
                return self.leaf(x, false);
            }
            self.enter(x)
        } else if self.maker.is_foreign(&x, self.to_library)? {
            self.leaf(x, true)
        } else if self.is_around(&x)? {
            Ok(())
        } else if is_array(&x)? {
            self.leaf(x, false)
        } else {
            self.other(x)
        }
    }

    fn same(&mut self, x: Bound<'py, PyAny>) {
        self.tree.parts.push(Part::Same(x));
    }

    /// Adds an array, if it is one that is converted.
    fn leaf(&mut self, x: Bound<'py, PyAny>, is_foreign: bool) -> PyResult<()> {
        let item = self.tree.arrays.len();
        let is_wanted = (|| {
            let says_so = is_foreign && says_as_taken(&x)?;
            if says_so && !self.asks {
                return Ok(true);
            }
            if !is_on_gpu(&x)? {
                self.tree.met_host |= says_so;
                let is_wanted = self.is_wanted_of_host(&x)?;
                self.tree.hosts.extend(is_wanted.then_some(item));
                return Ok(is_wanted);
            }
            // A view goes on naming the stream that it was made for, so that another is made.
            let is_view = matches!(self.to_library.method, Method::View(_));
            let is_other = is_foreign || is_view && self.how.made_on.is_some();
            if !is_other && self.to_library.has(&x)? {
                self.tree.own.push(item);
            }
            self.tree.has_capsules |= x.is_instance_of::<PyCapsule>();
            Ok(true)
        })();
        if is_wanted.or_else(|error| Err(said_at(error, &self.root.name(x.py()), self.way())?))? {
            self.tree.arrays.push(x);
            self.tree.parts.push(Part::Array);
        } else {
            self.same(x);
        }
        Ok(())
    }

    /// Whether the library is to have an array on the host.
    fn is_wanted_of_host(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        let may_be = self.how.copy == Some(true) || self.to_library.from_host.is_some();
        if !may_be || !matches!(self.root, Root::Given) || x.is_instance_of::<PyCapsule>() {
            return Ok(false);
        }
        Ok(self.to_library.is_numpy || host::may_be_shared(x)?)
    }

    /// Goes into a list, a tuple or a dict.
    fn enter(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        if self.is_around(&x)? {
            return Ok(());
        }
        let (kind, parts) = if let Ok(list) = x.cast_exact::<PyList>() {
            (Kind::List, list.to_tuple())
        } else if let Ok(tuple) = x.cast_exact::<PyTuple>() {
            (Kind::Tuple, tuple.clone())
        } else {
            let dict = x.cast_exact::<PyDict>()?.copy()?;
            let (keys, parts): (Vec<_>, Vec<_>) = dict.iter().unzip();
            (Kind::Dict(keys), PyTuple::new(x.py(), parts)?)
        };
        self.go_in(x, kind, parts);
        Ok(())
    }

    fn go_in(&mut self, container: Bound<'py, PyAny>, kind: Kind<'py>, parts: Bound<'py, PyTuple>) {
        let (at, before) = (self.tree.parts.len(), self.tree.arrays.len());
        let many = parts.len();
        if self.tree.parts.is_empty() {
            self.tree.parts = Vec::with_capacity(many.max(7) + 1);
            self.tree.arrays = Vec::with_capacity(many.min(64));
        }
        self.tree.parts.push(Part::Container(kind, many));
        let open = Open { container, parts, next: 0, at, before, again_at: None };
        if let Some(outer) = self.inner.replace(open) {
            self.around.push(outer);
        }
    }

    /// Goes into another container; what is none stays as it is, and one that cannot be made again if it has no arrays.
    #[cold]
    fn other(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        let py = x.py();
        let found = containers(py)?.call_method1(intern!(py, "parts_of"), (&x,))?;
        if found.is_exact_instance_of::<PyTuple>() {
            let (keys, parts, shown, again) = found.extract()?;
            self.go_in(x, Kind::Other { keys, shown, again }, parts);
            return Ok(());
        }
        if let Ok(held) = found.cast_exact::<PyList>()
            && !(self.inner.is_none() && matches!(self.root, Root::Given))
        {
            let is_one = |part: Bound<'py, PyAny>| Ok(is_array(&part)? && is_on_gpu(&part)?);
            let mut each = held.iter().map(is_one);
            let has_arrays = each.find(|one| !matches!(one, Ok(false))).unwrap_or(Ok(false));
            // One that fails says that it is a container, and is none.
            if answered(py, has_arrays)? == Some(true) {
                let kind = x.get_type().name()?;
                let error = PyTypeError::new_err(format!(
                    "container: got a {kind} with arrays; allowed: lists, tuples, dicts, dataclasses, UserDict, \
                     UserList, ChainMap, deque, and containers registered with JAX or PyTorch: pass dict(x) or list(x)"
                ));
                return Err(said_at(raised(py, error), &self.root.name(py), self.way())?);
            }
        }
        self.same(x);
        Ok(())
    }

    /// Whether it is one of the containers around, which then stays as it is.
    fn is_around(&mut self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        if !self.open().any(|open| open.container.is(x)) {
            return Ok(false);
        }
        let way = self.way()?;
        let mut open = self.around.iter_mut().chain(&mut self.inner);
        if let Some(open) = open.find(|open| open.container.is(x)) {
            open.again_at.get_or_insert(way);
        }
        self.same(x.clone());
        Ok(true)
    }

    /// Leaves the innermost container. One without arrays stays as it is.
    fn close(&mut self) -> PyResult<()> {
        let outer = self.around.pop();
        let Some(open) = std::mem::replace(&mut self.inner, outer) else { return Ok(()) };
        if self.tree.arrays.len() == open.before {
            self.tree.parts.truncate(open.at);
            self.same(open.container);
        } else if let Some(again_at) = open.again_at {
            if !self.asks {
                self.tree.may_loop = true;
                return Ok(());
            }
            let py = open.container.py();
            let places = (self.root.name(py), again_at, self.way()?);
            let error = containers(py)?.call_method1(intern!(py, "in_itself"), places)?;
            return Err(PyErr::from_value(error));
        }
        Ok(())
    }

    /// The way to the part that is looked at.
    #[cold]
    fn way(&self) -> PyResult<Vec<Step<'py>>> {
        let step = |open: &Open<'py>| match &self.tree.parts[open.at] {
            Part::Container(kind, _) => Some(kind.step(open.container.py(), open.next - 1)),
            _ => None,
        };
        self.open().filter_map(step).collect()
    }

    fn open(&self) -> impl Iterator<Item = &Open<'py>> {
        self.around.iter().chain(&self.inner)
    }
}

macro_rules! plain {
    ($($type:ty),+) => {
        /// Whether `x` is no array and holds none, of which there may be very many.
        fn is_plain(x: &Bound<'_, PyAny>) -> bool {
            x.is_none() $(|| x.is_exact_instance_of::<$type>())+
        }

        /// The types of what is plain, of which results of calls may be.
        #[pyfunction]
        pub(crate) fn _plain_types(py: Python<'_>) -> Vec<Bound<'_, PyType>> {
            vec![py.None().bind(py).get_type(), $(py.get_type::<$type>()),+]
        }
    };
}

plain!(PyInt, PyFloat, PyString, PyBool, PyBytes, PyComplex);

/// Whether `x` is a container that is taken apart here.
pub(super) fn is_container(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyList>()
        || x.is_exact_instance_of::<PyDict>()
        || x.is_exact_instance_of::<PyTuple>()
}
