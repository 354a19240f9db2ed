//! Walks through a tree and finds the arrays to convert. `_containers.py` takes apart all containers but plain lists,
//! tuples and dicts.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyList, PyTuple};

use super::converter::Converter;
use super::library_traits::{LibraryTraits, Method};
use super::to_dlpack::{is_array, is_bare_dict, is_on_gpu, is_on_host, says_as_taken};
use super::tree::{
    ContainerKind, ConvertOptions, PathStep, Root, Tree, TreePart, containers, said_at,
};
use crate::error::Error;
use crate::error::Kind::CpuMemory;
use crate::lease::WordHasher;
use crate::py::interpreter::{Signals, answered, program_line, raised};
use crate::py::native;
use crate::py::plain::is_plain;
use crate::py::producers::host;

struct TreeWalk<'a, 'py> {
    converter: &'a Converter,
    traits: &'a LibraryTraits,
    how: &'a ConvertOptions<'a, 'py>,
    root: &'a Root<'a, 'py>,
    /// Whether to ask each array where it is, even if its import would tell.
    asks: bool,
    tree: &'a mut Tree<'py>,
    inner: Option<Open<'py>>,
    around: Vec<Open<'py>>,
    /// Containers that may come up again, by address. `kept` keeps a container alive after the walk has left it.
    met: HashMap<usize, Met, BuildHasherDefault<WordHasher>>,
    kept: Vec<Bound<'py, PyAny>>,
    /// Counts the arrays to convert, and the containers with such arrays that came up again.
    wanted: usize,
}

#[derive(Clone, Copy)]
enum Met {
    /// The walk is inside the container. The number counts the containers around it.
    Open(usize),
    /// The container has arrays to convert. The number is the container's index in [`Tree::parts`].
    Whole(usize),
    Plain,
}

/// A container that is being taken apart. `parts` stays the same if the program changes the container.
struct Open<'py> {
    container: Bound<'py, PyAny>,
    parts: Bound<'py, PyTuple>,
    next: usize,
    at: usize,
    /// [`TreeWalk::wanted`] when the container was entered.
    before: usize,
    is_shared: bool,
    again_at: Option<Vec<PathStep<'py>>>,
}

/// Takes `x` apart into the empty `tree`. Returns false if `x`, the argument of `convert`, is no tree.
pub(super) fn apart<'py>(
    converter: &Converter,
    traits: &LibraryTraits,
    x: &Bound<'py, PyAny>,
    root: &Root<'_, 'py>,
    how: &ConvertOptions<'_, 'py>,
    asks: bool,
    tree: &mut Tree<'py>,
) -> PyResult<bool> {
    let (inner, around) = (None, Vec::new());
    let (met, kept, wanted) = (HashMap::default(), Vec::new(), 0);
    let mut walk =
        TreeWalk { converter, traits, how, root, asks, tree, inner, around, met, kept, wanted };
    let is_given = matches!(root, Root::Given);
    if is_given && walk.is_single(x)? {
        return Ok(false);
    }
    walk.part(x.clone())?;
    if is_given && walk.inner.is_none() {
        return Ok(false);
    }
    let mut signals = Signals::default();
    while let Some(open) = &mut walk.inner {
        signals.look(x.py())?;
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

impl<'py> TreeWalk<'_, 'py> {
    /// Whether `x` is known to be one object without parts, such as a number, an array or a CAI dict.
    fn is_single(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        if is_container(x) {
            let types = self.traits.types.bind(x.py());
            let is_bare = x.is_exact_instance_of::<PyDict>() && is_bare_dict(x)?;
            return Ok(is_bare || types.iter_borrowed().any(|own| own.is(x.get_type())));
        }
        Ok(is_plain(x) || self.traits.has(x)? || is_array(x)?)
    }

    fn part(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        if is_plain(&x) {
            self.same(x);
            return Ok(());
        }
        if is_container(&x) {
            // The dict of a call's keyword arguments is no CAI dict, whatever the arguments are called.
            let is_call = || matches!(self.root, Root::Call(_)) && self.around.is_empty();
            if x.is_exact_instance_of::<PyDict>() && !is_call() && is_bare_dict(&x)? {
                return self.leaf(x, false);
            }
            self.enter(x)
        } else if self.converter.is_foreign(&x, self.traits)? {
            self.leaf(x, true)
        } else if self.was_met(&x)? {
            Ok(())
        } else if is_array(&x)? {
            self.leaf(x, false)
        } else {
            self.other(x)
        }
    }

    fn same(&mut self, x: Bound<'py, PyAny>) {
        self.tree.parts.push(TreePart::Same(x));
    }

    /// Adds the array `x` to the arrays to convert. If `x` is a host array that is not to be converted, leaves `x` as
    /// it is, but refuses `x` if it holds objects that would be converted.
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
                if !is_wanted && self.has_objects(&x)? {
                    return Err(refused(&x)?);
                }
                self.tree.hosts.extend(is_wanted.then_some(item));
                return Ok(is_wanted);
            }
            // A view is tied to the stream that it was made for, so `made_on` needs another view.
            let is_view = matches!(self.traits.method, Method::View(_));
            let is_other = is_foreign || is_view && self.how.made_on.is_some();
            if !is_other && self.traits.has(&x)? {
                self.tree.own.push(item);
            }
            self.tree.has_capsules |= x.is_instance_of::<PyCapsule>();
            Ok(true)
        })();
        if is_wanted.or_else(|error| Err(said_at(error, &self.root.name(x.py()), self.way())?))? {
            self.wanted += 1;
            self.tree.arrays.push(x);
            self.tree.parts.push(TreePart::Array);
        } else {
            self.same(x);
        }
        Ok(())
    }

    /// Whether to convert `x`, a host array or a capsule. If this walk converts host arrays, fails for host memory in a
    /// DLPack capsule.
    fn is_wanted_of_host(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        let may_be = self.how.copy == Some(true) || self.traits.from_host.is_some();
        if !may_be || !matches!(self.root, Root::Given) {
            return Ok(false);
        }
        if x.is_instance_of::<PyCapsule>() {
            // Importing the array would consume the capsule, and a later array of the tree may still be refused.
            let is_hosts = is_on_host(x)?;
            let got = "CPU memory (1, 0) in a capsule, which convert takes alone";
            return if is_hosts { Err(Error::new(CpuMemory, got).into()) } else { Ok(false) };
        }
        Ok(self.traits.is_numpy || host::may_be_shared(x)?)
    }

    fn enter(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        if self.was_met(&x)? {
            return Ok(());
        }
        let (kind, parts) = if let Ok(list) = x.cast_exact::<PyList>() {
            (ContainerKind::List, list.to_tuple())
        } else if let Ok(tuple) = x.cast_exact::<PyTuple>() {
            (ContainerKind::Tuple, tuple.clone())
        } else {
            let dict = x.cast_exact::<PyDict>()?.copy()?;
            let (keys, parts): (Vec<_>, Vec<_>) = dict.iter().unzip();
            for key in keys.iter().filter(|key| !is_plain(key)) {
                self.check_key(&x, key)?;
            }
            (ContainerKind::Dict(keys), PyTuple::new(x.py(), parts)?)
        };
        self.go_in(x, kind, parts);
        Ok(())
    }

    fn go_in(
        &mut self,
        container: Bound<'py, PyAny>,
        kind: ContainerKind<'py>,
        parts: Bound<'py, PyTuple>,
    ) {
        let (at, before) = (self.tree.parts.len(), self.wanted);
        let is_shared = self.is_shared(&container);
        if is_shared {
            self.met.insert(container.as_ptr().addr(), Met::Open(self.around.len() + 1));
        }
        let many = parts.len();
        if self.tree.parts.is_empty() {
            self.tree.parts = Vec::with_capacity(many.max(7) + 1);
            self.tree.arrays = Vec::with_capacity(many.min(64));
        }
        self.tree.parts.push(TreePart::Container(kind, many, None));
        let open = Open { container, parts, next: 0, at, before, is_shared, again_at: None };
        if let Some(outer) = self.inner.replace(open) {
            self.around.push(outer);
        }
    }

    /// Enters `x` if `_containers.py` can take `x` apart. Else refuses `x`, or leaves `x` as it is.
    #[cold]
    fn other(&mut self, x: Bound<'py, PyAny>) -> PyResult<()> {
        let py = x.py();
        let found = containers(py)?.call_method1(intern!(py, "parts_of"), (&x,))?;
        if found.is_exact_instance_of::<PyTuple>() {
            let (keys, parts, shown, again) = found.extract()?;
            self.go_in(x, ContainerKind::Other { keys, shown, again }, parts);
            return Ok(());
        }
        let is_given = matches!(self.root, Root::Given);
        if let Ok(held) = found.cast_exact::<PyList>()
            && !(self.inner.is_none() && is_given)
        {
            for part in held {
                if answered(py, self.would_be_converted(&part))? == Some(true) {
                    return Err(said_at(refused(&x)?, &self.root.name(py), self.way())?);
                }
            }
        } else if let Ok(attributes) = found.cast_exact::<PyDict>()
            && is_given
            && self.inner.is_some()
        {
            self.warn_of_attributes(&x, attributes)?;
        } else if found.is_exact_instance_of::<PyBool>() && is_given {
            self.warn(&x, "warn_of_iterator", None)?;
        }
        self.same(x);
        Ok(())
    }

    fn warn_of_attributes(
        &self,
        x: &Bound<'py, PyAny>,
        attributes: &Bound<'py, PyDict>,
    ) -> PyResult<()> {
        for (name, value) in attributes {
            if answered(x.py(), self.would_be_converted(&value))? == Some(true) {
                return self.warn(x, "warn_of_attribute", Some(name));
            }
        }
        Ok(())
    }

    /// In `convert`, warns about a key that is an array and that `convert` would convert if it were a value.
    #[cold]
    fn check_key(&self, dict: &Bound<'py, PyAny>, key: &Bound<'py, PyAny>) -> PyResult<()> {
        let is_given = matches!(self.root, Root::Given);
        if is_given && answered(dict.py(), self.would_be_converted(key))? == Some(true) {
            let kind = key.get_type().name()?;
            self.warn(dict, "warn_of_key", Some(kind.into_any()))?;
        }
        Ok(())
    }

    #[cold]
    fn warn(
        &self,
        x: &Bound<'py, PyAny>,
        of: &str,
        what: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = x.py();
        let level = program_line(py)?.map_or(1, |line| line.level);
        let about = (x, what, self.root.name(py), self.way()?, level);
        containers(py)?.call_method1(of, about)?;
        Ok(())
    }

    fn has_objects(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        let py = x.py();
        let objects = || -> PyResult<Bound<'py, PyList>> {
            let has = x.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "hasobject"))?;
            if !has.is_truthy()? {
                return Ok(PyList::empty(py));
            }
            let flat = x.call_method0(intern!(py, "ravel"))?;
            Ok(flat.call_method0(intern!(py, "tolist"))?.cast_into()?)
        };
        for one in answered(py, objects())?.iter().flatten() {
            if answered(py, self.would_be_converted(&one))? == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn would_be_converted(&self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        if is_plain(x) || !is_array(x)? {
            return Ok(false);
        }
        Ok(is_on_gpu(x)? || (!self.traits.has(x)? && self.is_wanted_of_host(x)?))
    }

    /// Whether objects other than its container may refer to the part `x`.
    fn is_shared(&self, x: &Bound<'py, PyAny>) -> bool {
        // The tuple and the dict of a call's arguments belong to that call alone.
        if matches!(self.root, Root::Call(_)) && self.around.is_empty() {
            return false;
        }
        // The walk, `parts` and the container each hold one reference to `x`. `parts` may be the container itself.
        let own = |open: &Open<'py>| if open.parts.is(&open.container) { 2 } else { 3 };
        self.inner.as_ref().is_some_and(|open| native::references(x) > own(open))
    }

    /// If the walk has met the container `x` before, adds a part for `x` and returns true.
    fn was_met(&mut self, x: &Bound<'py, PyAny>) -> PyResult<bool> {
        if !self.is_shared(x) {
            return Ok(false);
        }
        let is_outermost = self.open().next().is_some_and(|open| open.container.is(x));
        let known = self.met.get(&x.as_ptr().addr()).copied();
        match if is_outermost { Some(Met::Open(0)) } else { known } {
            None => return Ok(false),
            Some(Met::Open(around)) => {
                let is_first = |open: &Open<'py>| open.again_at.is_none();
                let way = self.open().nth(around).is_some_and(is_first).then(|| self.way());
                if let Some(open) = self.around.iter_mut().chain(&mut self.inner).nth(around)
                    && let Some(way) = way
                {
                    open.again_at = Some(way?);
                }
                self.same(x.clone());
            }
            Some(Met::Plain) => self.same(x.clone()),
            Some(Met::Whole(at)) => {
                if let TreePart::Container(.., number) = &mut self.tree.parts[at] {
                    let number = *number.get_or_insert_with(|| {
                        self.tree.shared += 1;
                        self.tree.shared - 1
                    });
                    self.tree.parts.push(TreePart::Again(number));
                    self.wanted += 1;
                }
            }
        }
        Ok(true)
    }

    /// Leaves the innermost container. A container without arrays to convert stays as it is.
    fn close(&mut self) -> PyResult<()> {
        let outer = self.around.pop();
        let Some(open) = std::mem::replace(&mut self.inner, outer) else { return Ok(()) };
        let is_plain = self.wanted == open.before;
        if open.is_shared {
            let met = if is_plain { Met::Plain } else { Met::Whole(open.at) };
            self.met.insert(open.container.as_ptr().addr(), met);
            self.kept.push(open.container.clone());
        }
        if is_plain {
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

    #[cold]
    fn way(&self) -> PyResult<Vec<PathStep<'py>>> {
        let step = |open: &Open<'py>| match &self.tree.parts[open.at] {
            TreePart::Container(kind, ..) => Some(kind.step(open.container.py(), open.next - 1)),
            _ => None,
        };
        self.open().filter_map(step).collect()
    }

    fn open(&self) -> impl Iterator<Item = &Open<'py>> {
        self.around.iter().chain(&self.inner)
    }
}

#[cold]
fn refused(x: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let kind = x.get_type().name()?;
    let error = PyTypeError::new_err(format!(
        "container: got a {kind} with arrays; allowed: lists, tuples, dicts, dataclasses, UserDict, UserList, \
         ChainMap, deque, and containers registered with JAX or PyTorch: pass dict(x) or list(x)"
    ));
    Ok(raised(x.py(), error))
}

/// Whether `x` is a list, a dict or a tuple, and not of a derived class.
pub(super) fn is_container(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyList>()
        || x.is_exact_instance_of::<PyDict>()
        || x.is_exact_instance_of::<PyTuple>()
}
