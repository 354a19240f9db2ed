//! What a `Library` object says about its library.

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple, PyType};

use super::limits::Limits;
use super::to_cai::take_in;
use super::to_dlpack::is_on_gpu;
use crate::dlpack::encode::{self, Keep};
use crate::dlpack::exchange::ExchangeTable;
use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::lease::{HeldMemory, MemoryGuard};
use crate::py::libraries;
use crate::py::observe::{CallSpan, EndedBy, PassedArray};
use crate::py::producers::types::{facts, speaks};
use crate::py::producers::{ImportFor, Wanted};
use crate::py::streams::StreamArgument;
use crate::py::views::DLPackView;

/// The name of `convert` in logs and traces, and of the conversions of an adapted function's arguments and result.
pub(super) const DOOR: &str = "convert";

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each asked by its name")]
pub(super) struct LibraryTraits {
    pub(super) types: Py<PyTuple>,
    pub(super) method: Method,
    pub(super) current: CurrentStreamRoute,
    pub(super) is_registered: bool,
    pub(super) is_numpy: bool,
    /// The function that makes the library's array from a host array, as "module:name".
    pub(super) from_host: Option<String>,
    pub(super) wanted: Wanted,
    pub(super) limits: Limits,
}

/// How to find a library's current stream, if the library's method is [`Method::Make`].
#[derive(Debug)]
pub(super) enum CurrentStreamRoute {
    Known(Py<libraries::CurrentStream>),
    Own,
    /// The library's default stream. Each call may name another stream, as Numba's kernels do.
    Default,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    /// Through the library's exchange API, which also returns the library's current stream.
    Table(ExchangeTable),
    Make(ViewClass),
    /// `convert` returns a view of this class.
    View(ViewClass),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ViewClass {
    Cai,
    DLPack,
}

impl LibraryTraits {
    pub(super) fn of(library: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = library.py();
        let types = library.getattr(intern!(py, "types"))?.cast_into::<PyTuple>()?;
        let view = library.getattr(intern!(py, "view"))?;
        let class =
            if view.is(py.get_type::<DLPackView>()) { ViewClass::DLPack } else { ViewClass::Cai };
        let method = if view.is_none() {
            let kind = types.get_item(0)?.cast_into::<PyType>()?;
            let none = || Error::new(Kind::ExchangeTable, "none");
            Method::Table(ExchangeTable::of(&kind)?.ok_or_else(none)?)
        } else if types.iter().any(|kind| kind.is(&view)) {
            Method::View(class)
        } else {
            Method::Make(class)
        };
        let module = library.get_type().getattr(intern!(py, "__module__"))?;
        let ours = module.extract::<&str>().is_ok_and(|name| name.starts_with("cai_bridge."));
        let current = library.getattr(intern!(py, "current_stream"))?;
        let current = if let Ok(known) = current.cast_into::<libraries::CurrentStream>() {
            CurrentStreamRoute::Known(known.unbind())
        } else if library.getattr(intern!(py, "_streams_by_call"))?.is_truthy()? {
            CurrentStreamRoute::Default
        } else {
            CurrentStreamRoute::Own
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

    /// Whether `x` is one of the library's own arrays. Numba's pinned and managed arrays do not count as NumPy's.
    pub(super) fn has(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = x.py();
        if !x.is_instance(self.types.bind(py))? {
            return Ok(false);
        }
        let has_more = self.is_numpy && facts(x)?.is_numpys;
        Ok(!has_more || !speaks(x, intern!(py, "__cuda_array_interface__"))?)
    }

    /// Imports an array, and checks that the library can take the array. The caller hands the array over later.
    pub(super) fn take(
        &self,
        x: &Bound<'_, PyAny>,
        readonly: Option<bool>,
        consumer: &StreamArgument<'_, '_>,
    ) -> PyResult<Box<HeldMemory>> {
        let asked = ImportFor {
            door: DOOR,
            argument: &StreamArgument::UNSPECIFIED,
            consumer,
            wanted: self.wanted,
        };
        let mut source =
            take_in(x, &*facts(x)?, asked).map_err(|error| self.explain_host(x, error))?;
        self.wanted.check(x.py(), &source)?;
        self.limits.admit(&mut source.array, readonly)?;
        Ok(source)
    }

    /// If the library has no host arrays and `x` is one, returns an error that names `copy=True`, else `error` or an
    /// interrupt.
    #[cold]
    fn explain_host(&self, x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let py = x.py();
        let is_host = || -> PyResult<bool> {
            let may = self.from_host.is_none() && error.is_instance_of::<PyBufferError>(py);
            Ok(may && !x.is_instance_of::<PyCapsule>() && !is_on_gpu(x)?)
        };
        match answered(py, is_host()) {
            Ok(Some(true)) => Error::new(Kind::CpuConverted, "CPU memory").into(),
            Ok(_) => error,
            Err(interrupt) => interrupt,
        }
    }
}

fn wanted(said: &Bound<'_, PyAny>, method: Method) -> PyResult<Wanted> {
    let by_view = match method {
        Method::Make(ViewClass::Cai) | Method::View(ViewClass::Cai) => Wanted::Cai,
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

/// Makes the library's array from a managed tensor, whose deleter gives the memory back.
pub(super) fn give(
    py: Python<'_>,
    mut source: Box<HeldMemory>,
    table: ExchangeTable,
    span: CallSpan,
) -> PyResult<Bound<'_, PyAny>> {
    let array = source.take_array(EndedBy::Deleter);
    source.register(py, &array);
    let (by, stream) = (source.by.as_str(), source.ready.stream());
    let managed = encode::versioned(&array, Keep(MemoryGuard::new(source)))?;
    let made = table.give(py, managed)?;
    span.exchanged(PassedArray { door: DOOR, by, array: &array, stream });
    Ok(made)
}
