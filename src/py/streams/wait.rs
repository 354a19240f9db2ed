//! The host's waits, where no stream can wait: refused while one would end a graph capture.

use pyo3::prelude::*;

use super::current;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::{Kind, Result};
use crate::lease::Failure;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::observe::CallSpan;
use crate::stream::{Alive, Stream};

/// Why the host has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The array's dict names no stream.
    SilentDict,
    /// The stream that it is ready on may be destroyed.
    StreamGone,
    /// The garbage collector is about to end the memory's owner, and nobody knows the owner's stream.
    OwnerCollected,
    /// The consumer's stream may be destroyed, at the end.
    ConsumerUnknown,
    /// Whoever takes the array may read it on the CPU.
    HostReader,
}

/// The host waits for all work at `place`. Refused if that would end a capture of a default stream, of a
/// library's current stream, or of one of `streams`, which whoever calls knows.
pub(crate) fn wait_for_all(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    place: Place,
    (reason, streams): (WaitReason, &[Alive<'_>]),
) -> std::result::Result<(), Failure<PyErr>> {
    let (kind, got, why) = match reason {
        WaitReason::SilentDict => (
            Kind::CaptureHostWait,
            "an array that names no stream, so the host would have to wait",
            "the dict names no stream; the host waited for the context",
        ),
        WaitReason::StreamGone => (
            Kind::CaptureHostWait,
            "an array whose stream may be destroyed, so the host would have to wait",
            "the array's stream may be destroyed; the host waited for the context",
        ),
        WaitReason::OwnerCollected => (
            Kind::CaptureUnkept,
            "an end of memory whose owner is garbage as well, so the host would have to wait",
            "the garbage collector ends the owner as well; the host waited for the context",
        ),
        WaitReason::ConsumerUnknown => (
            Kind::CaptureUnkept,
            "an end whose consumer's stream nothing keeps alive, so the host would have to wait",
            "nothing keeps the consumer's stream alive; the host waited for the context",
        ),
        WaitReason::HostReader => (
            Kind::CaptureHostReader,
            "memory that the CPU reaches too, for a consumer without a stream, so the host would have to wait",
            "the CPU may read the memory; the host waited for the context",
        ),
    };
    // The default ones are asked below.
    let is_handle = |alive: &&Alive<'_>| matches!(alive.stream(), Stream::Handle(_));
    let handles: Vec<_> = streams.iter().filter(is_handle).copied().collect();
    order::check_captures(driver.get()?, &handles, (kind, got))?;
    check_host_wait(py, driver, place, (kind, got))?;
    let (calls, span) = (driver.get()?, CallSpan::begin());
    detach(py, || order::wait_on_host(calls, place))?;
    span.waited(door, place.ordinal, why, reason == WaitReason::StreamGone);
    Ok(())
}

/// `place` and where `streams` are besides: the host's wait for one GPU is none for the streams of another.
pub(crate) fn places_of(
    driver: &Handle,
    place: Place,
    streams: &[Alive<'_>],
) -> Result<Vec<Place>> {
    let (calls, mut places) = (driver.get()?, vec![place]);
    for stream in streams {
        let there = order::place_of(calls, *stream)?;
        if !places.contains(&there) {
            places.push(there);
        }
    }
    Ok(places)
}

/// Refuses, by an error of `why`, a wait of the host for work at `place` while that would end a capture.
pub(crate) fn check_host_wait(
    py: Python<'_>,
    driver: &Handle,
    place: Place,
    why: (Kind, &str),
) -> std::result::Result<(), Failure<PyErr>> {
    let objects = current::Objects::default();
    let mut known = Vec::new();
    current::each(py, driver, place, &objects, |alive, _| {
        known.push(alive);
        Ok(())
    })?;
    Ok(order::check_host_wait(driver.get()?, place, &known, why)?)
}

impl From<Failure<PyErr>> for PyErr {
    fn from(trouble: Failure<PyErr>) -> Self {
        match trouble {
            Failure::Failed(error) => error.into(),
            Failure::Interrupted(error) => error,
        }
    }
}
