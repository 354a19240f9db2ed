//! The host's waits, where no stream can wait: refused while one would end a graph capture.

use pyo3::prelude::*;

use super::current;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::Kind;
use crate::lease::Trouble;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::observe::Began;

/// Why the host has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsaid {
    /// The array's dict names no stream.
    Anything,
    /// The stream that it is ready on may be destroyed.
    ItsStream,
    /// The consumer's stream may be destroyed, at the end.
    ItsConsumers,
}

/// The host waits for all work at `place`. Refused if that would end a capture of a default stream, or of a
/// library's current stream.
pub(crate) fn wait_for_all(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    place: Place,
    unsaid: Unsaid,
) -> std::result::Result<(), Trouble<PyErr>> {
    let (got, why) = match unsaid {
        Unsaid::Anything => (
            "an array that names no stream, so the host would have to wait",
            "the dict names no stream; the host waited for the context",
        ),
        Unsaid::ItsStream => (
            "an array whose stream may be destroyed, so the host would have to wait",
            "the array's stream may be destroyed; the host waited for the context",
        ),
        Unsaid::ItsConsumers => (
            "an end whose consumer's stream nothing keeps alive, so the host would have to wait",
            "nothing keeps the consumer's stream alive; the host waited for the context",
        ),
    };
    check_host_wait(py, driver, place, (Kind::CaptureHostWait, got))?;
    let (calls, began) = (driver.get()?, Began::now());
    detach(py, || order::wait_on_host(calls, place))?;
    began.waited(door, place.ordinal, why, unsaid == Unsaid::ItsStream);
    Ok(())
}

/// Refuses, by an error of `why`, a wait of the host for work at `place` while that would end a capture.
pub(crate) fn check_host_wait(
    py: Python<'_>,
    driver: &Handle,
    place: Place,
    why: (Kind, &str),
) -> std::result::Result<(), Trouble<PyErr>> {
    let mut known = Vec::new();
    current::each(py, driver, place, |alive, _| {
        known.push(alive);
        Ok(())
    })?;
    Ok(order::check_host_wait(driver.get()?, place, &known, why)?)
}

impl From<Trouble<PyErr>> for PyErr {
    fn from(trouble: Trouble<PyErr>) -> Self {
        match trouble {
            Trouble::Failed(error) => error.into(),
            Trouble::Interrupted(error) => error,
        }
    }
}
