//! Decides what is pending on an array whose dict names no stream.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::readiness::{of_producer, work_stream};
use super::types::{self, ProducerKind, TypeFacts};
use super::{dlpack, host_wait};
use crate::device::Place;
use crate::driver::Handle;
use crate::py::habits::Habit;
use crate::py::interpreter::answered;
use crate::py::lease::Readiness;
use crate::py::streams::current;
use crate::py::this_thread::is_asked;
use crate::stream::{Ready, Stream};

pub(super) fn settle(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    owner: &Bound<'_, PyAny>,
    driver: &Handle,
    place: Place,
    door: &'static str,
    ordered: bool,
) -> PyResult<Readiness> {
    let py = x.py();
    let native = if facts.producer == ProducerKind::Dict {
        work_stream(py, &*types::facts(owner)?, driver, place.ordinal)?
    } else {
        work_stream(py, facts, driver, place.ordinal)?
    };
    if let Some(native) = native {
        let alive = current::named(py, native, place);
        return of_producer(py, door, driver, alive, place, true);
    }
    // A class may implement `__dlpack__` by passing its dict to the bridge. Asking the object again would recurse.
    let orders = facts.has_dlpack && !facts.has(Habit::OrdersNothing) && !is_asked(x);
    if orders && answered(py, dlpack::make_ready(x, facts, driver, place))?.is_some() {
        return Ok(Readiness::told(Ready::On(Stream::Legacy)));
    }
    if ordered {
        host_wait::wait(owner, true, driver, place, door)?;
    }
    Ok(Readiness::told(Ready::Nothing))
}

/// Whether `dict` has no stream because the owner's library never names one, even while work is pending. With
/// [`Habit::AlwaysNamesNone`], None counts as no stream, too.
pub(super) fn never_names_stream(of_owner: &TypeFacts, dict: &Bound<'_, PyDict>) -> PyResult<bool> {
    let is_none = of_owner.has(Habit::AlwaysNamesNone);
    if !is_none && !of_owner.has(Habit::NeverNamesStream) {
        return Ok(false);
    }
    let named = dict.get_item(intern!(dict.py(), "stream"))?;
    Ok(named.is_none_or(|named| is_none && named.is_none()))
}
