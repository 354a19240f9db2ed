//! What a library says of itself, for `convert`; and its arrays by its exchange API.

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple, PyType};

use super::limits::Limits;
use super::to_cai::take_in;
use super::to_dlpack::is_on_gpu;
use crate::dlpack::encode::{self, Keep};
use crate::dlpack::exchange::Table;
use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::lease::{Holding, Tenant};
use crate::py::libraries;
use crate::py::observe::{CallSpan, End, HandOver};
use crate::py::producers::Wanted;
use crate::py::producers::types::{facts, speaks};
use crate::py::streams::Argument;
use crate::py::views::DLPackView;

/// The call, as records and traces name it.
pub(super) const DOOR: &str = "convert";

/// The facts that a library gives.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each asked by its name")]
pub(super) struct ToLibrary {
    /// Its types of arrays.
    pub(super) types: Py<PyTuple>,
    pub(super) method: Method,
    pub(super) current: CurrentStream,
    /// Whether a program registered it: what it makes is looked at.
    pub(super) is_registered: bool,
    /// Whether it has arrays on the host alone, as NumPy: those of a GPU are copied.
    pub(super) is_numpy: bool,
    /// Its function that makes arrays of others' on the host, as "module:name"; `None` for libraries of GPUs alone.
    pub(super) from_host: Option<String>,
    /// Which protocol has to have a word for what it gets.
    pub(super) wanted: Wanted,
    /// What its arrays may be.
    pub(super) limits: Limits,
}

/// What its current stream is.
#[derive(Debug)]
pub(super) enum CurrentStream {
    /// That of a known library, which is asked for, and makes its arrays, without Python.
    Known(Py<libraries::CurrentStream>),
    /// Its own.
    Own,
    /// A default one: each of its calls may name another, as Numba's kernels do.
    Default,
}

/// How it makes an array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    /// By its exchange API, which names its current stream, too.
    Table(Table),
    /// By its `make`, of a view that is for its current stream.
    Make(Class),
    /// The view is the array; its consumers wait for the dict's stream.
    View(Class),
}

/// Which view.
#[derive(Debug, Clone, Copy)]
pub(super) enum Class {
    Cai,
    DLPack,
}

impl ToLibrary {
    /// What `library` says of itself; its types are imported for that.
    pub(super) fn of(library: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = library.py();
        let types = library.getattr(intern!(py, "types"))?.cast_into::<PyTuple>()?;
        let view = library.getattr(intern!(py, "view"))?;
        let class = if view.is(py.get_type::<DLPackView>()) { Class::DLPack } else { Class::Cai };
        let method = if view.is_none() {
            let kind = types.get_item(0)?.cast_into::<PyType>()?;
            let none = || Error::new(Kind::ExchangeTable, "none");
            Method::Table(Table::of(&kind)?.ok_or_else(none)?)
        } else if types.iter().any(|kind| kind.is(&view)) {
            Method::View(class)
        } else {
            Method::Make(class)
        };
        let module = library.get_type().getattr(intern!(py, "__module__"))?;
        let ours = module.extract::<&str>().is_ok_and(|name| name.starts_with("cai_bridge."));
        let current = library.getattr(intern!(py, "current_stream"))?;
        let current = if let Ok(known) = current.cast_into::<libraries::CurrentStream>() {
            CurrentStream::Known(known.unbind())
        } else if library.getattr(intern!(py, "_streams_by_call"))?.is_truthy()? {
            CurrentStream::Default
        } else {
            CurrentStream::Own
        };
        Ok(Self {
            types: types.unbind(),
            method,
            current,
            is_registered: !ours,
            is_numpy: library.getattr(intern!(py, "_host_alone"))?.is_truthy()?,
            from_host: library.getattr(intern!(py, "_from_host"))?.extract()?,
            wanted: wanted(&library.getattr(intern!(py, "_words"))?, method)?,
            limits: Limits::of(library, matches!(method, Method::Table(_)))?,
        })
    }

    /// Whether `x` is one of its own arrays. Numba's arrays of pinned and managed memory are derived from NumPy's, and
    /// none of NumPy's own: work on them may be pending.
    pub(super) fn has(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = x.py();
        if !x.is_instance(self.types.bind(py))? {
            return Ok(false);
        }
        let has_more = self.is_numpy && facts(x)?.is_numpys;
        Ok(!has_more || !speaks(x, intern!(py, "__cuda_array_interface__"))?)
    }

    /// Takes an array in, ready where its producer works, with no consumer yet. `said` is the stream that was said to be
    /// the consumer's.
    pub(super) fn take(
        &self,
        x: &Bound<'_, PyAny>,
        readonly: Option<bool>,
        said: &Argument<'_, '_>,
    ) -> PyResult<Box<Holding>> {
        let arguments = (&Argument::UNSPECIFIED, said);
        let mut source = take_in(DOOR, x, &*facts(x)?, arguments, self.wanted)
            .map_err(|error| self.explain_host(x, error))?;
        self.wanted.check(x.py(), &source)?;
        self.limits.admit(&mut source.array, readonly)?;
        Ok(source)
    }

    /// What is said of an array on the host, which a copy of goes to the GPU.
    #[cold]
    fn explain_host(&self, x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let py = x.py();
        let is_host = || -> PyResult<bool> {
            let may = self.from_host.is_none() && error.is_instance_of::<PyBufferError>(py);
            Ok(may && !x.is_instance_of::<PyCapsule>() && !is_on_gpu(x)?)
        };
        // If the array cannot say where it is, the first refusal stands.
        match answered(py, is_host()) {
            Ok(Some(true)) => Error::new(Kind::CpuConverted, "CPU memory").into(),
            Ok(_) => error,
            Err(interrupt) => interrupt,
        }
    }
}

/// Which protocol has to have a word for what a library gets, as it says, or as what its arrays are made by.
fn wanted(said: &Bound<'_, PyAny>, method: Method) -> PyResult<Wanted> {
    let by_view = match method {
        Method::Make(Class::Cai) | Method::View(Class::Cai) => Wanted::Cai,
        _ => Wanted::DLPack,
    };
    Ok(match said.extract::<Option<&str>>()? {
        None => by_view,
        Some("cai") => Wanted::Cai,
        Some("numpy") => Wanted::Numpy,
        Some("any") => Wanted::Any,
        Some(_) => Wanted::DLPack,
    })
}

/// An array that a library makes itself of a managed tensor, whose deleter gives the memory back.
pub(super) fn give(
    py: Python<'_>,
    mut source: Box<Holding>,
    table: Table,
    span: CallSpan,
) -> PyResult<Bound<'_, PyAny>> {
    let array = source.take_array(End::Deleter);
    source.hand_out(py, &array);
    let (by, stream) = (source.by.as_str(), source.ready.stream());
    let managed = encode::versioned(&array, Keep(Tenant::new(source)))?;
    let made = table.give(py, managed)?;
    span.exchanged(HandOver { door: DOOR, by, array: &array, stream });
    Ok(made)
}
