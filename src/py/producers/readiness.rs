//! Whose stream an array is ready on: what keeps that stream alive, and what others are told.

use pyo3::prelude::*;

use super::types::Facts;
use crate::device::{Device, Place};
use crate::driver::Handle;
use crate::order::{self, Purpose};
use crate::py::habits::Habit;
use crate::py::interpreter::detach;
use crate::py::streams::{Argument, KnownStream, StreamRef};
use crate::stream::{Alive, Ready, Stream};

/// The stream that an array is ready on, as others are told; the producer's stream; and what stands in for it, if
/// nothing keeps it.
pub(super) type Readiness = (Ready, Option<StreamRef>, Option<StreamRef>);

/// The stream that the library of an array of those `facts` works on now, as the driver names it, if it says so.
pub(super) fn work_stream(
    py: Python<'_>,
    facts: &Facts,
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

/// What keeps the producer's stream. If nothing does, and the array is `passed_on` as ready there, the legacy
/// default stream of its GPU, at `home`, waits for it now, and stands in for it; others are told the legacy one, since
/// the handle may be dead when they read it.
pub(super) fn of_producer(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    (work, home): (Alive<'_>, Place),
    passed_on: bool,
) -> PyResult<Readiness> {
    let named = Ready::On(work.stream());
    let (producer, stands_in) = match KnownStream::of(py, driver, work)? {
        KnownStream::Kept(legacy) if legacy.stands_in() => {
            (Some(legacy), work.place().ordinal == home.ordinal)
        }
        KnownStream::Kept(producer) => return Ok((named, Some(producer), None)),
        KnownStream::Lost(_) => (None, false),
    };
    let kept = producer.as_ref().map(|legacy| legacy.clone_ref(py));
    if !passed_on {
        return Ok((named, producer, kept));
    }
    if stands_in {
        return Ok((Ready::On(Stream::Legacy), producer, kept));
    }
    let door = Purpose::hand_over(door);
    order::connect(door, driver, (work, Alive::legacy(home)), |call| detach(py, call))?;
    Ok((Ready::On(Stream::Legacy), producer, Some(StreamRef::legacy(home))))
}

/// The stream `there` that the caller declares by `stream`, for memory whose own streams are at `home`.
pub(super) fn declared(
    py: Python<'_>,
    door: &'static str,
    stream: &Argument<'_, '_>,
    (driver, there, home): (&Handle, Place, Place),
) -> PyResult<Readiness> {
    let Some(alive) = stream.alive(there) else { return Ok((Ready::Nothing, None, None)) };
    match stream.keep(py, driver, there)? {
        Some(KnownStream::Kept(producer)) if !producer.stands_in() => {
            Ok((Ready::On(alive.stream()), Some(producer), None))
        }
        _ => of_producer(py, door, driver, (alive, home), true),
    }
}
