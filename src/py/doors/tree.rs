//! Trees of lists, tuples and dicts, which most are, without a call of Python's for each part. Whatever else is in a
//! tree, a capsule, an array on the host or of the library itself, or another container, makes it one for `_trees.py`,
//! which knows them all.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType,
};

use super::Optional;
use super::item::item_of;
use super::library::ToLibrary;
use super::maker::Maker;
use super::to_dlpack::{is_on_gpu, says_as_taken};
use crate::py::interpreter::answered;

/// How many containers around a part are taken apart here.
const DEEPEST: usize = 16;

/// The containers around a part.
struct Around<'a> {
    /// Its address.
    container: usize,
    outer: Option<&'a Self>,
}

/// A part of a tree.
enum Part<'py> {
    /// An array, which is converted.
    Array,
    /// What stays as it is.
    Same(Bound<'py, PyAny>),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Dict(Vec<(Bound<'py, PyAny>, Self)>),
}

/// A tree that was converted.
pub(super) struct Converted<'py> {
    pub(super) tree: Bound<'py, PyAny>,
    /// The first of its arrays, as it was.
    pub(super) first: Bound<'py, PyAny>,
    /// What was made of its arrays.
    pub(super) made: Vec<Bound<'py, PyAny>>,
}

impl Maker {
    /// Converts the arrays of a tree, all or none, and makes the tree again of them; `None` where it is not that
    /// plain, or has no arrays. What is refused is named by its place, as `say_at` of `_trees.py` has it of `root`. To
    /// `lent` a `CallArgument` is added for each.
    pub(super) fn tree<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        root: &Bound<'py, PyAny>,
        (stream, readonly): (Optional<'_, 'py>, Optional<'_, 'py>),
        lent: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Option<Converted<'py>>> {
        let py = x.py();
        let to_library = self.to_library(py)?;
        if to_library.types.bind(py).contains(x.get_type())? {
            return Ok(None);
        }
        let (mut arrays, mut keys) = (Vec::with_capacity(x.len()?.min(64)), Vec::new());
        let tree = match self.apart(to_library, x, (&mut arrays, &mut keys), None) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                return Err(said_at(error, root, keys)?);
            }
            tree => tree?,
        };
        let Some(tree) = tree.filter(|_| !arrays.is_empty()) else { return Ok(None) };
        match self.several(py, &arrays, (stream, readonly), lent, None) {
            Ok(made) => {
                let tree = tree.rebuild(py, &made, &mut 0)?;
                Ok(Some(Converted { tree, first: arrays.swap_remove(0), made }))
            }
            Err(error) => {
                let item = item_of(py, &error);
                let is_left = |item| arrays.get(item).map_or(Ok(false), Self::is_on_host);
                if item.map(is_left).transpose()? == Some(true) {
                    return Ok(None);
                }
                Err(tree.named(root, error, item)?)
            }
        }
    }

    /// The same of a result, which may be one array.
    pub(super) fn converted_result<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        root: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = x.py();
        if is_container(x) {
            let converted = self.tree(x, root, (None, None), None)?;
            return Ok(converted.map(|converted| converted.tree));
        }
        let single = || {
            let is_one = self.is_foreign(x, self.to_library(py)?)? && is_on_gpu(x)?;
            if is_one { self.single(x, None, None) } else { Ok(None) }
        };
        match single() {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                Err(said_at(error, root, Vec::new())?)
            }
            made => made,
        }
    }

    /// Whether an array that was refused is one on the host, which `_trees.py` knows what to do with. Where it cannot say
    /// that, the refusal stands.
    #[cold]
    fn is_on_host(x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(says_as_taken(x)? && answered(x.py(), is_on_gpu(x))? == Some(false))
    }

    /// Takes a part apart, and adds its arrays; where that fails, `keys` has the way to the array that failed. Its
    /// containers may change meanwhile: what they had first counts.
    fn apart<'py>(
        &self,
        to_library: &ToLibrary,
        x: &Bound<'py, PyAny>,
        (arrays, keys): (&mut Vec<Bound<'py, PyAny>>, &mut Vec<Bound<'py, PyAny>>),
        outer: Option<&Around<'_>>,
    ) -> PyResult<Option<Part<'py>>> {
        let before = arrays.len();
        let around = Around { container: x.as_ptr() as usize, outer };
        let mut part = |part: &Bound<'py, PyAny>, key: &dyn Fn() -> PyResult<Bound<'py, PyAny>>| {
            let found = self.apart(to_library, part, (&mut *arrays, &mut *keys), Some(&around));
            if found.is_err() {
                keys.insert(0, key()?);
            }
            found
        };
        let mut all = |parts: &Bound<'py, PyTuple>| {
            let number = |at: usize| Ok(at.into_pyobject(x.py())?.into_any());
            let numbered = parts.iter_borrowed().enumerate();
            numbered.map(|(at, one)| part(&one, &|| number(at))).collect::<PyResult<Option<_>>>()
        };
        let found = if is_plain(x) {
            return Ok(Some(Part::Same(x.clone())));
        } else if !is_container(x) {
            if !self.is_foreign(x, to_library)? || !(says_as_taken(x)? || is_on_gpu(x)?) {
                return Ok(None);
            }
            arrays.push(x.clone());
            return Ok(Some(Part::Array));
        } else if around.is_refused() {
            None
        } else if let Ok(list) = x.cast_exact::<PyList>() {
            all(&list.to_tuple())?.map(Part::List)
        } else if let Ok(tuple) = x.cast_exact::<PyTuple>() {
            all(tuple)?.map(Part::Tuple)
        } else {
            let dict = x.cast_exact::<PyDict>()?.copy()?;
            // One of the CUDA Array Interface is refused, by name.
            if dict.contains(intern!(x.py(), "typestr"))? {
                return Ok(None);
            }
            let parts = dict
                .iter()
                .map(|(key, one)| Ok(part(&one, &|| Ok(key.clone()))?.map(|part| (key, part))));
            parts.collect::<PyResult<Option<_>>>()?.map(Part::Dict)
        };
        let is_empty = arrays.len() == before;
        Ok(found.map(|found| if is_empty { Part::Same(x.clone()) } else { found }))
    }
}

impl Around<'_> {
    /// Whether the innermost container is among those around it, or too deep.
    fn is_refused(&self) -> bool {
        let outer = || std::iter::successors(self.outer, |around| around.outer);
        outer().any(|around| around.container == self.container) || outer().count() >= DEEPEST
    }
}

impl<'py> Part<'py> {
    /// The same again, of the arrays that were made: the next one is at `next`.
    fn rebuild(
        &self,
        py: Python<'py>,
        made: &[Bound<'py, PyAny>],
        next: &mut usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut all = |parts: &[Self]| {
            parts.iter().map(|part| part.rebuild(py, made, next)).collect::<PyResult<Vec<_>>>()
        };
        match self {
            Self::Same(x) => Ok(x.clone()),
            Self::List(parts) => Ok(PyList::new(py, all(parts)?)?.into_any()),
            Self::Tuple(parts) => Ok(PyTuple::new(py, all(parts)?)?.into_any()),
            Self::Dict(parts) => {
                let dict = PyDict::new(py);
                for (key, part) in parts {
                    dict.set_item(key, part.rebuild(py, made, next)?)?;
                }
                Ok(dict.into_any())
            }
            Self::Array => {
                let array = made[*next].clone();
                *next += 1;
                Ok(array)
            }
        }
    }

    /// An error with the place in front of the array that it is about, if it is about one.
    fn named(
        &self,
        root: &Bound<'py, PyAny>,
        error: PyErr,
        item: Option<usize>,
    ) -> PyResult<PyErr> {
        let mut keys = Vec::new();
        if let Some(mut item) = item
            && self.find(root.py(), &mut item, &mut keys)?
        {
            return said_at(error, root, keys);
        }
        Ok(error)
    }

    /// Whether the array so many arrays further is in this part. Then `keys` has the way to it.
    fn find(
        &self,
        py: Python<'py>,
        further: &mut usize,
        keys: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<bool> {
        let parts: Vec<(Bound<'py, PyAny>, &Self)> = match self {
            Self::Same(_) => return Ok(false),
            Self::Array => {
                let is_it = *further == 0;
                *further = further.saturating_sub(1);
                return Ok(is_it);
            }
            Self::Dict(parts) => parts.iter().map(|(key, part)| (key.clone(), part)).collect(),
            Self::List(parts) | Self::Tuple(parts) => {
                let numbered = parts.iter().enumerate();
                let keyed = |(at, part)| Ok((usize::into_pyobject(at, py)?.into_any(), part));
                numbered.map(keyed).collect::<PyResult<_>>()?
            }
        };
        for (key, part) in parts {
            keys.push(key);
            if part.find(py, further, keys)? {
                return Ok(true);
            }
            keys.pop();
        }
        Ok(false)
    }
}

/// The error, with that place in front. One that cannot be shown stays as it is.
fn said_at<'py>(
    error: PyErr,
    root: &Bound<'py, PyAny>,
    keys: Vec<Bound<'py, PyAny>>,
) -> PyResult<PyErr> {
    let py = root.py();
    let trees = py.import(intern!(py, "cai_bridge._trees"))?;
    answered(py, trees.call_method1(intern!(py, "say_at"), (error.value(py), root, keys)))?;
    Ok(error)
}

macro_rules! plain {
    ($($type:ty),+) => {
        /// Whether `x` is no array and holds none, of which there may be very many.
        fn is_plain(x: &Bound<'_, PyAny>) -> bool {
            x.is_none() $(|| x.is_exact_instance_of::<$type>())+
        }

        /// The types of what is plain, for `_trees.py`.
        #[pyfunction]
        pub(crate) fn _plain_types(py: Python<'_>) -> Vec<Bound<'_, PyType>> {
            vec![py.None().bind(py).get_type(), $(py.get_type::<$type>()),+]
        }
    };
}

plain!(PyInt, PyFloat, PyString, PyBool, PyBytes, PyComplex);

/// Whether `x` may be a tree that is taken apart here.
pub(super) fn is_container(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyList>()
        || x.is_exact_instance_of::<PyDict>()
        || x.is_exact_instance_of::<PyTuple>()
}
