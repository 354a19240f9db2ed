//! Makes the host wait where no stream can wait instead.

use pyo3::prelude::*;

use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::Failure;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::observe::CallSpan;
use crate::stream::Alive;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    SilentDict,
    StreamGone,
    /// The garbage collector may be clearing the memory's owner, and the producer's stream is unknown.
    OwnerCollected,
    ConsumerUnknown,
    HostReader,
    /// At the end: what the consumer queued outside a capture, which its stream or the producer's is in.
    Captured,
    /// At the end of a call: Python code that the bridge asked raised an interrupt.
    Interrupted,
}

impl WaitReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::SilentDict => "the dict names no stream; the host waited for the context",
            Self::StreamGone => {
                "the array's stream may be destroyed; the host waited for the context"
            }
            Self::OwnerCollected => {
                "the garbage collector ends the owner as well; the host waited for the context"
            }
            Self::ConsumerUnknown => {
                "nothing keeps the consumer's stream alive; the host waited for the context"
            }
            Self::HostReader => "the CPU may read the memory; the host waited for the context",
            Self::Captured => {
                "no stream can wait outside the graph capture; the host waited for the context"
            }
            Self::Interrupted => {
                "the end of a call was interrupted; the host waited for the context"
            }
        }
    }
}

/// Makes the host wait, without the interpreter's lock, for all work in the context of `place`.
pub(crate) fn wait_for_all(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    place: Place,
    reason: WaitReason,
) -> Result<()> {
    let (calls, span) = (driver.get()?, CallSpan::begin());
    detach(py, || order::wait_on_host(calls, place))?;
    span.waited(door, place.ordinal, reason.as_str(), reason == WaitReason::StreamGone);
    Ok(())
}

/// Lists `place` and the place (GPU and context) of each stream, without duplicates.
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

impl From<Failure<PyErr>> for PyErr {
    fn from(trouble: Failure<PyErr>) -> Self {
        match trouble {
            Failure::Failed(error) => error.into(),
            Failure::Interrupted(error) => error,
        }
    }
}
