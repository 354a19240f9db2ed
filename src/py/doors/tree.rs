//! Trees: nested containers that were taken apart, and the same containers around other arrays.

use std::vec::Drain;

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::Optional;
use super::call_argument::Lent;
use crate::py::interpreter::{Signals, answered};
use crate::py::item_error::ItemError;

/// Which tree it is, by which places in it are named.
#[derive(Debug, Clone, Copy)]
pub(super) enum Root<'a, 'py> {
    /// What `convert` is given, which may be a tree.
    Given,
    /// The arguments of a call: those by place, whose parameters have these names, and those by name.
    Call(&'a Bound<'py, PyAny>),
    /// What the call returned.
    Result,
}

impl<'py> Root<'_, 'py> {
    /// As `say_at` of `_containers.py` takes it.
    pub(super) fn name(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Self::Given => intern!(py, "x").clone().into_any(),
            Self::Call(names) => (*names).clone(),
            Self::Result => intern!(py, "the result").clone().into_any(),
        }
    }
}

/// How the arrays of a tree are converted.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct How<'a, 'py> {
    pub(super) stream: Optional<'a, 'py>,
    pub(super) readonly: Option<bool>,
    pub(super) copy: Option<bool>,
    pub(super) detach: Option<bool>,
    /// The stream that their pending work is on, whatever stream their library has now.
    pub(super) made_on: Optional<'a, 'py>,
    /// Whether they are for one call, at whose end each loan ends.
    pub(super) for_call: bool,
    /// They are the arguments of a function, which this refuses where it does not take them.
    pub(super) binds: Optional<'a, 'py>,
}

impl How<'_, '_> {
    /// Whether nothing is asked that a library's arrays are not made by.
    pub(super) fn is_plain(&self) -> bool {
        self.copy.is_none() && self.detach != Some(true) && self.made_on.is_none()
    }
}

/// A tree that was taken apart.
#[derive(Debug, Default)]
pub(super) struct Tree<'py> {
    /// Its parts, each container before its own.
    pub(super) parts: Vec<Part<'py>>,
    pub(super) arrays: Vec<Bound<'py, PyAny>>,
    /// Which of the arrays are on the host.
    pub(super) hosts: Vec<usize>,
    /// Which of them are of the library that they are converted for.
    pub(super) own: Vec<usize>,
    pub(super) has_capsules: bool,
    /// Whether there was an array on the host that would have said so as it was taken in.
    pub(super) met_host: bool,
    /// Whether a container is among its own parts that has arrays, or others that were not asked where they are.
    pub(super) may_loop: bool,
    /// How many containers with arrays are in several places.
    pub(super) shared: usize,
}

/// A part of a tree.
#[derive(Debug)]
pub(super) enum Part<'py> {
    /// The next of the arrays.
    Array,
    /// What stays as it is.
    Same(Bound<'py, PyAny>),
    /// A container that has arrays, and so many parts, which come next; and its number among those that come again.
    Container(Kind<'py>, usize, Option<usize>),
    /// The container of that number, once more.
    Again(usize),
}

/// How a container is made again.
#[derive(Debug)]
pub(super) enum Kind<'py> {
    List,
    Tuple,
    /// A dict of these keys.
    Dict(Vec<Bound<'py, PyAny>>),
    /// One that `_containers.py` knows.
    Other {
        keys: Bound<'py, PyAny>,
        /// Shows a key as a program has it.
        shown: Bound<'py, PyAny>,
        again: Bound<'py, PyAny>,
    },
}

/// A step on the way to a part: how its key is shown, if that is not as an item, and the key.
pub(super) type Step<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);

/// A tree that was converted.
pub(super) struct Converted<'py> {
    pub(super) tree: Bound<'py, PyAny>,
    /// Its arrays, as they were.
    pub(super) arrays: Vec<Bound<'py, PyAny>>,
    /// What was made of them.
    pub(super) made: Vec<Bound<'py, PyAny>>,
    /// What ends the loan of each, where they are for one call.
    pub(super) lent: Lent<'py>,
}

impl<'py> Tree<'py> {
    /// Whether each array is one of another library's on a GPU.
    pub(super) fn is_foreign(&self) -> bool {
        self.hosts.is_empty() && self.own.is_empty()
    }

    /// The same tree, of what was made of the arrays.
    pub(super) fn rebuild(
        &self,
        py: Python<'py>,
        root: &Root<'_, 'py>,
        made: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (mut made, mut place) = (made.iter(), Cursor::default());
        // The parts of the containers that are not whole yet.
        let mut new = Vec::with_capacity(self.parts.len());
        let (mut shared, mut signals) = (vec![None; self.shared], Signals::default());
        for part in &self.parts {
            signals.look(py)?;
            match part {
                Part::Array => new.extend(made.next().cloned()),
                Part::Same(x) => new.push(x.clone()),
                Part::Container(kind, parts, number) => {
                    place.enter(kind, *parts, *number);
                    continue;
                }
                Part::Again(number) => new.extend(shared[*number].clone()),
            }
            while let Some((kind, parts, number)) = place.pass() {
                let again = kind.again(py, new.drain(new.len() - parts..));
                let whole = again.or_else(|e| Err(said_at(e, &root.name(py), place.way(py))?))?;
                if let Some(number) = number {
                    shared[number] = Some(whole.clone());
                }
                new.push(whole);
            }
        }
        Ok(new.pop())
    }

    /// An error with the place in front of the array that it is about, if it is about one.
    #[cold]
    pub(super) fn named(
        &self,
        py: Python<'py>,
        root: &Root<'_, 'py>,
        ItemError { item, error }: ItemError,
    ) -> PyResult<PyErr> {
        let Some(mut further) = item else { return Ok(error) };
        let mut place = Cursor::default();
        for part in &self.parts {
            match part {
                Part::Container(kind, parts, number) => {
                    place.enter(kind, *parts, *number);
                    continue;
                }
                Part::Array if further == 0 => {
                    return said_at(error, &root.name(py), place.way(py));
                }
                Part::Array => further -= 1,
                Part::Same(_) | Part::Again(_) => {}
            }
            while place.pass().is_some() {}
        }
        Ok(error)
    }
}

/// A place in a tree: the innermost container, if there is one, and those around it. Most trees have one container.
#[derive(Default)]
struct Cursor<'a, 'py> {
    inner: Option<Passed<'a, 'py>>,
    around: Vec<Passed<'a, 'py>>,
}

/// A container, and how many of its parts are behind.
struct Passed<'a, 'py> {
    kind: &'a Kind<'py>,
    parts: usize,
    number: Option<usize>,
    behind: usize,
}

impl<'a, 'py> Cursor<'a, 'py> {
    /// Goes into a container.
    fn enter(&mut self, kind: &'a Kind<'py>, parts: usize, number: Option<usize>) {
        if let Some(outer) = self.inner.replace(Passed { kind, parts, number, behind: 0 }) {
            self.around.push(outer);
        }
    }

    /// Passes a part. Where it was the last one of a container, gives that, which is left then and is the next to pass.
    fn pass(&mut self) -> Option<(&'a Kind<'py>, usize, Option<usize>)> {
        let inner = self.inner.as_mut()?;
        inner.behind += 1;
        if inner.behind < inner.parts {
            return None;
        }
        let whole = (inner.kind, inner.parts, inner.number);
        self.inner = self.around.pop();
        Some(whole)
    }

    #[cold]
    fn way(&self, py: Python<'py>) -> PyResult<Vec<Step<'py>>> {
        let open = self.around.iter().chain(&self.inner);
        open.map(|open| open.kind.step(py, open.behind)).collect()
    }
}

impl<'py> Kind<'py> {
    /// The step from the container to a part.
    pub(super) fn step(&self, py: Python<'py>, at: usize) -> PyResult<Step<'py>> {
        let number = || PyResult::Ok(at.into_pyobject(py)?.into_any());
        Ok(match self {
            Self::List | Self::Tuple => (None, number()?),
            Self::Dict(keys) => (None, keys.get(at).cloned().map_or_else(number, Ok)?),
            // A class may name fewer parts than it has.
            Self::Other { keys, shown, .. } => {
                let key = answered(py, keys.get_item(at))?;
                (Some(shown.clone()), key.map_or_else(number, Ok)?)
            }
        })
    }

    fn again(
        &self,
        py: Python<'py>,
        parts: Drain<'_, Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::List => Ok(PyList::new(py, parts)?.into_any()),
            Self::Tuple => Ok(PyTuple::new(py, parts)?.into_any()),
            Self::Dict(keys) => {
                let dict = PyDict::new(py);
                keys.iter().zip(parts).try_for_each(|(key, part)| dict.set_item(key, part))?;
                Ok(dict.into_any())
            }
            Self::Other { again, .. } => again.call1((PyList::new(py, parts)?,)),
        }
    }
}

/// The Python that knows containers and shows places.
pub(super) fn containers(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CONTAINERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let import = || Ok(py.import(intern!(py, "cai_bridge._containers"))?.into_any().unbind());
    CONTAINERS.get_or_try_init(py, import).map(|module| module.bind(py))
}

/// The error, with the place in front at the end of that way. One that cannot be shown stays as it is.
#[cold]
pub(super) fn said_at<'py>(
    error: PyErr,
    root: &Bound<'py, PyAny>,
    way: PyResult<Vec<Step<'py>>>,
) -> PyResult<PyErr> {
    let py = root.py();
    if error.is_instance_of::<PyException>(py) {
        let arguments = (error.value(py), error.traceback(py), root, way?);
        let said = containers(py)?.call_method1(intern!(py, "say_at"), arguments);
        answered(py, said)?;
    }
    Ok(error)
}
