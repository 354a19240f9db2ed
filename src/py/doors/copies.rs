//! What `convert` does besides plain imports: copies, detached tensors, and results that were made on a given stream.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyInt};

use super::Optional;
use super::batch::ArrayBatch;
use super::converter::Converter;
use super::from_cai::ready_on;
use super::library_traits::LibraryTraits;
use super::to_dlpack::{is_on_host, to_dlpack};
use super::tree::{ConvertOptions, Tree};
use crate::error::{Error, Kind};
use crate::py::interpreter::{Answer, entry};
use crate::py::item_error::{ItemError, about};
use crate::py::producers::dlpack;
use crate::py::streams::StreamArgument;
use crate::py::views::BaseView;

pub(super) type ArrayList<'py> = Vec<Bound<'py, PyAny>>;

impl Converter {
    pub(super) fn other<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        how: &ConvertOptions<'_, 'py>,
    ) -> Answer<'py> {
        let (py, traits) = (x.py(), self.traits(x.py())?);
        let is_own = traits.has(x)?;
        let x = if how.detach == Some(true) { detached(x)? } else { x.clone() };
        let mut batch = if is_own {
            let own = std::slice::from_ref(&x);
            self.admit_own(own, how)?;
            self.own(py, own, how)?
        } else if is_on_host(&x)? {
            return self.of_host(&x, how);
        } else {
            self.foreign(py, vec![x], how)?
        };
        batch.consume(py)?;
        batch.made.pop().ok_or_else(|| Error::new(Kind::Released, "no array").into())
    }

    pub(super) fn leaves<'py>(
        &self,
        py: Python<'py>,
        tree: &Tree<'py>,
        how: &ConvertOptions<'_, 'py>,
    ) -> Result<ArrayBatch<'py>, ItemError> {
        let arrays = if how.detach == Some(true) {
            tree.arrays.iter().map(detached).collect::<PyResult<ArrayList<'_>>>()?
        } else {
            tree.arrays.clone()
        };
        let of = |numbers: &[usize]| -> ArrayList<'py> {
            numbers.iter().map(|number| arrays[*number].clone()).collect()
        };
        let mut made = vec![None; arrays.len()];
        if !tree.hosts.is_empty() {
            StreamArgument::parse(how.stream)?;
        }
        for &number in &tree.hosts {
            made[number] = Some(self.of_host(&arrays[number], how).map_err(about(number))?);
        }
        let mut is_foreign = vec![true; arrays.len()];
        tree.hosts.iter().chain(&tree.own).for_each(|number| is_foreign[*number] = false);
        let foreign: Vec<_> = (0..arrays.len()).filter(|number| is_foreign[*number]).collect();
        let own = of(&tree.own);
        if !own.is_empty() {
            self.admit_own(&own, how).map_err(|wrong| wrong.among(&tree.own))?;
        }
        let others = self.foreign(py, of(&foreign), how);
        let others = others.map_err(|wrong| wrong.among(&foreign))?;
        let mut all = ArrayBatch::default();
        all.add(others, &foreign, &mut made);
        if !own.is_empty() {
            let owned = self.own(py, &own, how).map_err(|wrong| wrong.among(&tree.own))?;
            all.add(owned, &tree.own, &mut made);
        }
        all.made = made.into_iter().flatten().collect();
        Ok(all)
    }

    fn foreign<'py>(
        &self,
        py: Python<'py>,
        mut given: ArrayList<'py>,
        how: &ConvertOptions<'_, 'py>,
    ) -> Result<ArrayBatch<'py>, ItemError> {
        let mut unconsumed = Vec::new();
        if let Some(copy) = how.copy {
            let copied = self.copies(py, given, copy, how)?;
            (given, unconsumed) = (copied.made, copied.unconsumed);
        }
        if let Some(made_on) = how.made_on {
            let taken = taken(py, &given)?;
            unconsumed.extend(taken.unconsumed);
            for (item, view) in taken.made.iter().enumerate() {
                given[item] = ready_on(view, made_on).map_err(about(item))?;
            }
        }
        let how = ConvertOptions { stream: waited_for(how.stream, how.copy), ..*how };
        let mut batch = self.several(py, &given, &how)?;
        unconsumed.append(&mut batch.unconsumed);
        batch.unconsumed = unconsumed;
        Ok(batch)
    }

    /// Replaces arrays by capsules with their copies, where [`Self::copied`] makes copies. The caller consumes
    /// `unconsumed`, the given capsules that were copied.
    fn copies<'py>(
        &self,
        py: Python<'py>,
        arrays: ArrayList<'py>,
        copy: bool,
        how: &ConvertOptions<'_, 'py>,
    ) -> Result<ArrayBatch<'py>, ItemError> {
        StreamArgument::parse(how.stream)?;
        let traits = self.traits(py)?;
        let mut batch = ArrayBatch { made: arrays, ..ArrayBatch::default() };
        if how.readonly == Some(true) && traits.limits.writes {
            return Ok(batch);
        }
        let mut capsules = Vec::new();
        for (item, x) in batch.made.iter_mut().enumerate() {
            if !traits.is_numpy && x.is_exact_instance_of::<PyCapsule>() {
                capsules.push(item);
            } else {
                *x = self.copied(traits, x, copy, how.stream).map_err(about(item))?;
            }
        }
        if copy && !capsules.is_empty() {
            let given: Vec<_> = capsules.iter().map(|item| batch.made[*item].clone()).collect();
            let argument = StreamArgument::parse(how.stream)?;
            for (capsule, item) in given.iter().zip(&capsules) {
                dlpack::check_capsule(capsule, &argument).map_err(about(*item))?;
            }
            let taken =
                views_of_capsules(py)?.get().several(py, &given, &ConvertOptions::default());
            let taken = taken.map_err(|wrong| wrong.among(&capsules))?;
            batch.unconsumed = taken.unconsumed;
            for ((number, _), item) in batch.unconsumed.iter_mut().zip(&capsules) {
                *number = *item;
            }
            for (item, view) in capsules.iter().zip(taken.made) {
                let copied = self.copied(traits, &view, copy, how.stream);
                batch.made[*item] = copied.map_err(about(*item))?;
            }
        }
        Ok(batch)
    }

    /// If `copy` is true, returns a capsule with a copy of `x`, else `x` itself. For NumPy, returns `x` itself if
    /// `copy` is true, and fails if `copy` is false.
    pub(super) fn copied<'py>(
        &self,
        traits: &LibraryTraits,
        x: &Bound<'py, PyAny>,
        copy: bool,
        stream: Optional<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        if traits.is_numpy && !copy {
            let said =
                "copy: got False; allowed: None or True: a NumPy array is a copy in host memory";
            return Err(PyValueError::new_err(said));
        }
        if traits.is_numpy || !copy {
            return Ok(x.clone());
        }
        let stream = waited_for(stream, Some(copy));
        let view = to_dlpack(x, stream, None)?;
        let on = self.stream_on(py, device_of(&view)?, stream)?;
        let asked = PyDict::new(py);
        // Without a consumer's stream, the copy is made ready on the legacy default stream.
        let on = if on.is_none() { 1_i32.into_pyobject(py)?.into_any() } else { on };
        asked.set_item(intern!(py, "stream"), on)?;
        asked.set_item(intern!(py, "max_version"), (1, 3))?;
        asked.set_item(intern!(py, "copy"), true)?;
        view.call_method(intern!(py, "__dlpack__"), (), Some(&asked))
    }
}

impl<'py> ArrayBatch<'py> {
    fn add(&mut self, other: Self, among: &[usize], made: &mut [Option<Bound<'py, PyAny>>]) {
        for (number, array) in among.iter().zip(other.made) {
            made[*number] = Some(array);
        }
        let unconsumed = other.unconsumed.into_iter();
        self.unconsumed.extend(unconsumed.map(|(item, capsule)| (among[item], capsule)));
        self.lent.extend(other.lent);
    }
}

/// Leaves out a `stream` of -1 if `copy` is true: the consumer must wait for the copy.
pub(super) fn waited_for<'a, 'py>(
    stream: Optional<'a, 'py>,
    copy: Option<bool>,
) -> Optional<'a, 'py> {
    let is_none = |stream: &&Bound<'_, PyAny>| {
        stream.is_exact_instance_of::<PyInt>()
            && stream.extract::<i64>().is_ok_and(|said| said == -1)
    };
    stream.filter(|stream| !(copy == Some(true) && is_none(stream)))
}

/// Imports arrays as views, with `stream=-1`: no stream waits.
pub(super) fn taken<'py>(
    py: Python<'py>,
    arrays: &[Bound<'py, PyAny>],
) -> Result<ArrayBatch<'py>, ItemError> {
    let nothing = (-1_i32).into_pyobject(py).map_err(PyErr::from)?.into_any();
    any(py)?.get().several(
        py,
        arrays,
        &ConvertOptions { stream: Some(&nothing), ..ConvertOptions::default() },
    )
}

struct OfViews {
    any: PyOnceLock<Py<Converter>>,
    dlpack: PyOnceLock<Py<Converter>>,
}

static OF_VIEWS: OfViews = OfViews { any: PyOnceLock::new(), dlpack: PyOnceLock::new() };

pub(super) fn any(py: Python<'_>) -> PyResult<&Bound<'_, Converter>> {
    views(py, &OF_VIEWS.any, "ANY")
}

fn views_of_capsules(py: Python<'_>) -> PyResult<&Bound<'_, Converter>> {
    views(py, &OF_VIEWS.dlpack, "DLPACK")
}

fn views<'py>(
    py: Python<'py>,
    known: &'static PyOnceLock<Py<Converter>>,
    name: &str,
) -> PyResult<&'py Bound<'py, Converter>> {
    let import = || {
        let library = py.import("cai_bridge._libraries._views")?.getattr(name)?;
        PyResult::Ok(library.getattr(intern!(py, "converter"))?.cast_into::<Converter>()?.unbind())
    };
    known.get_or_try_init(py, import).map(|converter| converter.bind(py))
}

pub(super) fn device_of(view: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(view.cast::<BaseView>()?.get().at().ordinal)
}

/// Returns `x.detach()` if `x` is a tensor that requires gradients. Returns any other object itself, including Warp's
/// arrays: they have gradients but no `detach`.
#[pyfunction]
pub(crate) fn _detached<'py>(x: &Bound<'py, PyAny>) -> Answer<'py> {
    entry(x.py(), || detached(x))
}

pub(super) fn detached<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let requires = match x.getattr_opt(intern!(py, "requires_grad"))? {
        Some(requires) => requires.is_truthy()?,
        None => false,
    };
    let no_stop = |stops: &Bound<'_, PyAny>| stops.is(PyBool::new(py, false));
    let follows =
        requires || x.getattr_opt(intern!(py, "stop_gradient"))?.as_ref().is_some_and(no_stop);
    match x.getattr_opt(intern!(py, "detach"))?.filter(|_| follows) {
        Some(detach) => detach.call0(),
        None => Ok(x.clone()),
    }
}
