//! Finds the stream on which an array is ready, what keeps that stream alive, and the stream that consumers are told.

use pyo3::prelude::*;

use super::types::TypeFacts;
use crate::device::{Device, Place};
use crate::driver::Handle;
use crate::order::{self, Purpose};
use crate::py::habits::Habit;
use crate::py::interpreter::detach;
use crate::py::lease::Readiness;
use crate::py::streams::{KnownStream, StreamArgument, StreamRef};
use crate::stream::{Alive, Ready, Stream};

/// The driver handle of the stream on which the library's arrays are ready; `None` if that stream is unknown.
pub(super) fn work_stream(
    py: Python<'_>,
    facts: &TypeFacts,
    driver: &Handle,
    ordinal: i32,
) -> PyResult<Option<u64>> {
    match facts.table {
        Some(table) => table.current_work_stream(py, Device::cuda(ordinal)).map(Some),
        None if facts.has(Habit::IgnoresStream)
            || (facts.has(Habit::ReadyOnCurrent) && matches!(driver, Handle::Cuda)) =>
        {
            facts.library.map_or(Ok(None), |library| library.ready_on(py, ordinal))
        }
        None => Ok(None),
    }
}

/// Finds what keeps the producer's stream `work` alive. If nothing does and the array is `passed_on` to consumers, the
/// consumers are told the legacy default stream.
pub(super) fn of_producer(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    work: Alive<'_>,
    producer_place: Place,
    passed_on: bool,
) -> PyResult<Readiness> {
    let named = Ready::On(work.stream());
    let (producer, stands_in) = match KnownStream::of(py, driver, work)? {
        KnownStream::Kept(legacy) if legacy.stands_in() => {
            (Some(legacy), work.place().ordinal == producer_place.ordinal)
        }
        KnownStream::Kept(producer) => return Ok(Readiness::of(named, Some(producer))),
        KnownStream::Lost(_) => (None, false),
    };
    let kept = producer.as_ref().map(|legacy| legacy.clone_ref(py));
    if !passed_on {
        return Ok(Readiness { told: named, producer, ready_on: kept });
    }
    if stands_in {
        return Ok(Readiness { told: Ready::On(Stream::Legacy), producer, ready_on: kept });
    }
    let door = Purpose::hand_over(door);
    order::connect(door, driver, work, Alive::legacy(producer_place), |call| detach(py, call))?;
    let ready_on = Some(StreamRef::legacy(producer_place));
    Ok(Readiness { told: Ready::On(Stream::Legacy), producer, ready_on })
}

/// The readiness of an array, by the `stream` that the caller declares. If `stream` names none, nothing is pending.
pub(super) fn declared(
    py: Python<'_>,
    door: &'static str,
    stream: &StreamArgument<'_, '_>,
    driver: &Handle,
    there: Place,
    producer_place: Place,
) -> PyResult<Readiness> {
    let Some(alive) = stream.alive(there) else { return Ok(Readiness::told(Ready::Nothing)) };
    match stream.keep(py, driver, there)? {
        Some(KnownStream::Kept(producer)) if !producer.stands_in() => {
            Ok(Readiness::of(Ready::On(alive.stream()), Some(producer)))
        }
        _ => of_producer(py, door, driver, alive, producer_place, true),
    }
}
