//! Exporters of CAI dicts that named no stream at import. The bridge asks the exporters again later.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::context::{goes_on, life_at};
use super::exporter::Exporter;
use super::reference::{DictExporter, StreamRef, alive_by};
use super::voucher::Voucher;
use crate::device::Place;
use crate::driver::Handle;
use crate::lease::Failure;
use crate::stream::{Alive, Ready, Stream};

#[derive(Debug)]
pub(crate) struct Unnamed(Box<(Exporter, Place)>);

impl Unnamed {
    /// `is_idle` says whether a dict without a stream means that nothing is pending.
    pub(crate) fn new(
        driver: &Handle,
        place: Place,
        exporter: &Bound<'_, PyAny>,
        ptr: u64,
        is_idle: bool,
    ) -> PyResult<Self> {
        let (voucher, life) = (Voucher::new(exporter)?, life_at(driver, place)?);
        let exporter = Exporter { voucher, ptr, moves: true, none_is_nothing: is_idle, life };
        Ok(Self(Box::new((exporter, place))))
    }

    /// The stream that the exporter's dict names now, if the context still exists.
    pub(crate) fn now(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        let (exporter, place) = &*self.0;
        let Some(Ready::On(stream)) = exporter.ask(py, Stream::Legacy)? else { return Ok(None) };
        let lives = goes_on(life_at(driver, *place), exporter.life)?;
        Ok(lives.then(|| alive_by(exporter, stream, *place)))
    }

    /// Like [`Self::now`], with what keeps the stream alive.
    pub(crate) fn named(&self, py: Python<'_>, driver: &Handle) -> PyResult<Option<StreamRef>> {
        let (exporter, place) = &*self.0;
        let (Some(alive), Some(object)) = (self.now(py, driver)?, exporter.voucher.object(py))
        else {
            return Ok(None);
        };
        let besides = StreamRef::vouched(py, driver, alive.stream(), *place)?;
        let Exporter { ptr, none_is_nothing, .. } = *exporter;
        let by = DictExporter { exporter: object, ptr, moves: true, besides, none_is_nothing };
        StreamRef::exported(driver, alive, by).map(Some)
    }

    pub(crate) fn is_of_garbage(&self, py: Python<'_>) -> bool {
        self.0.0.is_of_garbage(py)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(Box::new((self.0.0.clone_ref(py), self.0.1)))
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.0.visit(visit)
    }
}
