//! Trees: nested containers, which are taken apart and rebuilt around other arrays.

use std::vec::Drain;

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::Optional;
use super::call_argument::Loans;
use crate::py::interpreter::{Signals, answered};
use crate::py::item_error::ItemError;

/// Where a tree comes from. Host arrays are converted only in a tree that is [`Root::Given`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Root<'a, 'py> {
    Given,
    /// The arguments of a call: a tuple and a dict, with the names of the positional parameters.
    Call(&'a Bound<'py, PyAny>),
    Result,
}

impl<'py> Root<'_, 'py> {
    pub(super) fn name(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Self::Given => intern!(py, "x").clone().into_any(),
            Self::Call(names) => (*names).clone(),
            Self::Result => intern!(py, "the result").clone().into_any(),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ConvertOptions<'a, 'py> {
    pub(super) stream: Optional<'a, 'py>,
    pub(super) readonly: Option<bool>,
    pub(super) copy: Option<bool>,
    pub(super) detach: Option<bool>,
    /// The stream on which the arrays of a call's result have pending work.
    pub(super) made_on: Optional<'a, 'py>,
    pub(super) for_call: bool,
    pub(super) binds: Optional<'a, 'py>,
}

impl ConvertOptions<'_, '_> {
    pub(super) fn is_plain(&self) -> bool {
        self.copy.is_none() && self.detach != Some(true) && self.made_on.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct Tree<'py> {
    /// Each [`TreePart::Container`] is followed by its parts.
    pub(super) parts: Vec<TreePart<'py>>,
    pub(super) arrays: Vec<Bound<'py, PyAny>>,
    pub(super) hosts: Vec<usize>,
    pub(super) own: Vec<usize>,
    pub(super) has_capsules: bool,
    /// Whether the walk asked a host array for which [`says_as_taken`](super::to_dlpack::says_as_taken) is true where
    /// it is.
    pub(super) met_host: bool,
    /// Whether the walk must be repeated: a container with arrays seems to contain itself.
    pub(super) may_loop: bool,
    /// How many containers with arrays to convert are in several places of the tree.
    pub(super) shared: usize,
}

#[derive(Debug)]
pub(super) enum TreePart<'py> {
    Array,
    Same(Bound<'py, PyAny>),
    /// A container with arrays: its kind, the number of its parts, and its number if it is in several places.
    Container(ContainerKind<'py>, usize, Option<usize>),
    Again(usize),
}

#[derive(Debug)]
pub(super) enum ContainerKind<'py> {
    List,
    Tuple,
    Dict(Vec<Bound<'py, PyAny>>),
    Other {
        keys: Bound<'py, PyAny>,
        /// A function that shows a key as the program writes it.
        shown: Bound<'py, PyAny>,
        again: Bound<'py, PyAny>,
    },
}

/// A step of a path: the function that shows the key (`None` in a plain list, tuple or dict), and the key or index.
pub(super) type PathStep<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);

pub(super) struct Converted<'py> {
    pub(super) tree: Bound<'py, PyAny>,
    pub(super) arrays: Vec<Bound<'py, PyAny>>,
    pub(super) made: Vec<Bound<'py, PyAny>>,
    pub(super) lent: Loans<'py>,
}

impl<'py> Tree<'py> {
    pub(super) fn is_foreign(&self) -> bool {
        self.hosts.is_empty() && self.own.is_empty()
    }

    pub(super) fn rebuild(
        &self,
        py: Python<'py>,
        root: &Root<'_, 'py>,
        made: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (mut made, mut place) = (made.iter(), Cursor::default());
        let mut new = Vec::with_capacity(self.parts.len());
        let (mut shared, mut signals) = (vec![None; self.shared], Signals::default());
        for part in &self.parts {
            signals.look(py)?;
            match part {
                TreePart::Array => new.extend(made.next().cloned()),
                TreePart::Same(x) => new.push(x.clone()),
                TreePart::Container(kind, parts, number) => {
                    place.enter(kind, *parts, *number);
                    continue;
                }
                TreePart::Again(number) => new.extend(shared[*number].clone()),
            }
            while let Some(Passed { kind, parts, number, .. }) = place.pass() {
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
                TreePart::Container(kind, parts, number) => {
                    place.enter(kind, *parts, *number);
                    continue;
                }
                TreePart::Array if further == 0 => {
                    return said_at(error, &root.name(py), place.way(py));
                }
                TreePart::Array => further -= 1,
                TreePart::Same(_) | TreePart::Again(_) => {}
            }
            while place.pass().is_some() {}
        }
        Ok(error)
    }
}

#[derive(Default)]
struct Cursor<'a, 'py> {
    inner: Option<Passed<'a, 'py>>,
    around: Vec<Passed<'a, 'py>>,
}

struct Passed<'a, 'py> {
    kind: &'a ContainerKind<'py>,
    parts: usize,
    number: Option<usize>,
    behind: usize,
}

impl<'a, 'py> Cursor<'a, 'py> {
    fn enter(&mut self, kind: &'a ContainerKind<'py>, parts: usize, number: Option<usize>) {
        if let Some(outer) = self.inner.replace(Passed { kind, parts, number, behind: 0 }) {
            self.around.push(outer);
        }
    }

    /// Moves past a part. If the part was the last of its container, leaves and returns the container.
    fn pass(&mut self) -> Option<Passed<'a, 'py>> {
        let inner = self.inner.as_mut()?;
        inner.behind += 1;
        if inner.behind < inner.parts {
            return None;
        }
        std::mem::replace(&mut self.inner, self.around.pop())
    }

    #[cold]
    fn way(&self, py: Python<'py>) -> PyResult<Vec<PathStep<'py>>> {
        let open = self.around.iter().chain(&self.inner);
        open.map(|open| open.kind.step(py, open.behind)).collect()
    }
}

impl<'py> ContainerKind<'py> {
    pub(super) fn step(&self, py: Python<'py>, at: usize) -> PyResult<PathStep<'py>> {
        let number = || PyResult::Ok(at.into_pyobject(py)?.into_any());
        Ok(match self {
            Self::List | Self::Tuple => (None, number()?),
            Self::Dict(keys) => (None, keys.get(at).cloned().map_or_else(number, Ok)?),
            // A container class may have fewer keys than parts.
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

pub(super) fn containers(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CONTAINERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let import = || Ok(py.import(intern!(py, "cai_bridge._containers"))?.into_any().unbind());
    CONTAINERS.get_or_try_init(py, import).map(|module| module.bind(py))
}

/// If `error` is an `Exception`, tries to add the path `way` to its message.
#[cold]
pub(super) fn said_at<'py>(
    error: PyErr,
    root: &Bound<'py, PyAny>,
    way: PyResult<Vec<PathStep<'py>>>,
) -> PyResult<PyErr> {
    let py = root.py();
    if error.is_instance_of::<PyException>(py) {
        let said = way.and_then(|way| {
            let arguments = (error.value(py), error.traceback(py), root, way);
            containers(py)?.call_method1(intern!(py, "say_at"), arguments)
        });
        answered(py, said)?;
    }
    Ok(error)
}
