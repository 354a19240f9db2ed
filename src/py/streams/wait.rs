//! The host's waits, where no stream can wait: refused while one would end a graph capture.

use pyo3::prelude::*;

use super::current;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::Kind;
use crate::lease::Failure;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::observe::CallSpan;

/// Why the host has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The array's dict says nothing of streams.
    SilentDict,
    /// The stream that it is ready on is gone, or nobody keeps it.
    StreamGone,
    /// The consumer's stream is, at the end.
    ConsumerUnknown,
}

/// The host waits for all work at `place`. Refused while that would end a capture, as far as one is known
/// of: of its default streams, and of those that libraries work on now.
pub(crate) fn wait_for_all(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    place: Place,
    reason: WaitReason,
) -> std::result::Result<(), Failure<PyErr>> {
    let (kind, got, why) = match reason {
        WaitReason::SilentDict => (
            Kind::CaptureHostWait,
            "an array that says nothing of its stream, for which the host would wait",
            "the dict says nothing of streams; the host waited for the context",
        ),
        WaitReason::StreamGone => (
            Kind::CaptureHostWait,
            "an array whose stream is gone, for which the host would wait",
            "the stream that the array is ready on is gone; the host waited for the context",
        ),
        WaitReason::ConsumerUnknown => (
            Kind::CaptureUnkept,
            "the end of an array whose consumer's stream nobody keeps, for which the host would wait",
            "nobody keeps the consumer's stream; the host waited for the context",
        ),
    };
    check_host_wait(py, driver, place, (kind, got))?;
    let (calls, span) = (driver.get()?, CallSpan::begin());
    detach(py, || order::wait_on_host(calls, place))?;
    span.waited(door, place.ordinal, why, reason == WaitReason::StreamGone);
    Ok(())
}

/// Refuses, by an error of `why`, a wait of the host for work at `place` while that would end a capture.
pub(crate) fn check_host_wait(
    py: Python<'_>,
    driver: &Handle,
    place: Place,
    why: (Kind, &str),
) -> std::result::Result<(), Failure<PyErr>> {
    let mut known = Vec::new();
    current::each(py, driver, place, |alive, _| {
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
