//! Events about exchanges, releases, copies and waits of the host, with the times on the host at which they began and
//! ended. The host's waits have level `WARN` or `DEBUG`, the other events `TRACE`.

use std::time::Instant;

use pyo3::prelude::*;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::trace::clock;
use crate::descriptor::Descriptor;
use crate::py::text::{error_text, place_text, tuple_text};
use crate::stream::{Alive, Stream, Thread};

/// The start time of a call; `None` if `TRACE` events were off then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSpan(Option<Instant>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct PassedArray<'a> {
    pub(crate) door: &'static str,
    pub(crate) by: &'static str,
    pub(crate) array: &'a Descriptor,
    pub(crate) stream: Option<Stream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    ExchangeApi,
    Dlpack,
    Capsule,
    Cai(i64),
    View,
    /// Memory from Rust, or a managed tensor from C.
    Rust,
}

impl By {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ExchangeApi => "exchange API",
            Self::Dlpack => "__dlpack__",
            Self::Capsule => "capsule",
            Self::Cai(0) => "CAI v0",
            Self::Cai(1) => "CAI v1",
            Self::Cai(2) => "CAI v2",
            Self::Cai(_) => "CAI v3",
            Self::View => "view",
            Self::Rust => "Rust",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// None of the others: for example, the call that held the memory returned, or an array in Rust was dropped.
    Call,
    LastReference,
    Collected,
    /// The consumer called the deleter of a managed tensor, or dropped a capsule.
    Deleter,
    Copy,
    Release,
    With,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EndTag {
    pub(crate) by: EndedBy,
    pub(crate) ptr: u64,
}

impl EndedBy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "end of the call",
            Self::LastReference => "last reference",
            Self::Collected => "garbage collector",
            Self::Deleter | Self::Copy => "deleter",
            Self::Release => "release()",
            Self::With => "with",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndOutcome {
    Done,
    PutOff,
    DoneLater,
    /// The end failed for good, for example because the memory's context is destroyed or broken. The bridge dropped its
    /// hold on the memory without an order.
    LetGo,
    /// `release()`, or the end of a `with` block, failed. The view keeps its memory.
    Failed,
    /// The memory leaks: the interpreter has shut down or is shutting down, or a panic stopped the end.
    Lost,
}

impl EndOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::PutOff => "put off",
            Self::DoneLater => "done later",
            Self::LetGo => "dropped without an order",
            Self::Failed => "failed",
            Self::Lost => "leaked: the interpreter has ended, or the end panicked",
        }
    }
}

impl CallSpan {
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        if LevelFilter::current() >= LevelFilter::TRACE { Self::observed() } else { Self(None) }
    }

    #[cold]
    fn observed() -> Self {
        Self(tracing::enabled!(target: "cai_bridge", Level::TRACE).then(Instant::now))
    }

    #[inline]
    pub(crate) const fn is_observed(self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn at(self) -> Option<u64> {
        self.0.map(clock)
    }

    #[inline]
    pub(crate) fn exchanged(self, array: PassedArray<'_>) {
        if self.0.is_some() {
            self.tell_exchange(array);
        }
    }

    /// Returns `answer`; an interrupt during the report replaces the error of `answer`.
    #[inline]
    pub(crate) fn told<R>(self, array: PassedArray<'_>, answer: PyResult<R>) -> PyResult<R> {
        let answer = answer.map_err(|error| self.refused(array.door, error))?;
        self.exchanged(array);
        Ok(answer)
    }

    /// Returns the exception to raise: `refused`, or an interrupt during the report.
    #[inline]
    pub(crate) fn refused(self, door: &'static str, refused: PyErr) -> PyErr {
        if self.0.is_some() { self.tell_refusal(door, refused) } else { refused }
    }

    #[cold]
    fn tell_refusal(self, door: &'static str, refused: PyErr) -> PyErr {
        let ended = now();
        let error = match Python::attach(|py| error_text(py, &refused)) {
            Ok(text) => text,
            Err(interrupt) => return interrupt,
        };
        tracing::trace!(
            name: "exchange", target: "cai_bridge", door, error,
            trace.began = self.at(), trace.ended = ended, "refused"
        );
        refused
    }

    #[cold]
    fn tell_exchange(self, array: PassedArray<'_>) {
        let PassedArray { door, by, array, stream } = array;
        let ended = now();
        tracing::trace!(
            name: "exchange", target: "cai_bridge", door, by, dtype = array.dtype().name(),
            typestr = array.dtype().typestr(), shape = tuple_text(array.cai_shape().as_slice()),
            strides = tuple_text(array.cai_strides().as_slice()), ptr = array.ptr(),
            nbytes = array.nbytes(),
            memory = place_text(array.device()), readonly = array.readonly(),
            stream = stream.map(|stream| stream.seen_from(Thread::current()).handle()),
            trace.began = self.at(), trace.ended = ended, "an array goes through"
        );
    }

    #[inline]
    pub(crate) fn released(self, tag: EndTag, outcome: EndOutcome) {
        if self.0.is_some() {
            self.tell_release(tag, outcome);
        }
    }

    #[cold]
    fn tell_release(self, tag: EndTag, outcome: EndOutcome) {
        let EndTag { by: end, ptr } = tag;
        let what = if end == EndedBy::Copy { "copy" } else { "array" };
        tracing::trace!(
            name: "release", target: "cai_bridge", by = end.as_str(), outcome = outcome.as_str(),
            what, ptr, trace.began = self.at(), trace.ended = now(), "memory goes back"
        );
    }

    /// `what` is the message. The event has level `WARN` if `warned`, else `DEBUG`.
    pub(crate) fn waited(self, door: &'static str, device: i32, what: &'static str, warned: bool) {
        let (began, ended) = (self.at(), now());
        if warned {
            tracing::warn!(
                name: "host wait", target: "cai_bridge", door, device, order = "made",
                why = "host wait", trace.began = began, trace.ended = ended, "{what}"
            );
        } else {
            tracing::debug!(
                name: "host wait", target: "cai_bridge", door, device, order = "made",
                why = "host wait", trace.began = began, trace.ended = ended, "{what}"
            );
        }
    }

    /// `to` is the copy's address. Reports nothing if `to` is 0, as for an empty array.
    #[inline]
    pub(crate) fn copied(self, array: &Descriptor, to: u64, on: Alive<'_>, to_host: bool) {
        if self.0.is_some() && to != 0 {
            tracing::trace!(
                name: "copy", target: "cai_bridge", device = on.place().ordinal,
                ptr = array.ptr(), copy = to, nbytes = array.nbytes(),
                host = if to_host { "the host waited for it" } else { "the host did not wait" },
                trace.stream = on.stream().handle(), trace.began = self.at(), trace.ended = now(), "a copy is made"
            );
        }
    }
}

/// The end time of an observed call. Take it before making the `tracing` event, so that the call's time leaves out the
/// event's cost.
pub(crate) fn now() -> u64 {
    clock(Instant::now())
}
