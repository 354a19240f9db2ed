//! What only a trace shows: each exchange, release and copy, and how long the host was at it.
//!
//! These are events of level `TRACE`, which `logging` is not given. While no trace is open each costs
//! one load, at [`CallSpan::begin`]: nothing is formatted, and no clock is read.

use std::time::Instant;

use pyo3::prelude::*;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::trace::clock;
use crate::descriptor::Descriptor;
use crate::py::text::{error_text, place_text, tuple_text};
use crate::stream::{Stream, Thread};

/// A call, and when it began where a trace is open: what comes of it is told by its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSpan(Option<Instant>);

/// An array that goes through a door of the bridge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandOver<'a> {
    /// The door, by the name that its orders' events give it.
    pub(crate) door: &'static str,
    /// In or as what.
    pub(crate) by: &'static str,
    /// The array.
    pub(crate) array: &'a Descriptor,
    /// The stream that it is ready on there.
    pub(crate) stream: Option<Stream>,
}

/// What an array came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The exchange API.
    ExchangeApi,
    /// `__dlpack__`.
    Dlpack,
    /// A capsule.
    Capsule,
    /// A dict of the CUDA Array Interface, of that version.
    Cai(i64),
    /// A view of the bridge's own.
    View,
    /// Memory of Rust's.
    Rust,
}

impl By {
    /// Its name, as events give it.
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

/// How something that holds memory ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A call that held it for its own length is over.
    Call,
    /// The last reference to a view went.
    LastReference,
    /// The garbage collector found a view.
    Collected,
    /// The consumer of a capsule or of a managed tensor is done with it.
    Deleter,
    /// The same of one with a copy.
    Copy,
    /// `release()`.
    Release,
    /// The end of a `with` block.
    With,
}

impl End {
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

/// The result of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The memory went back.
    Done,
    /// It could not go back yet, and is kept.
    PutOff,
    /// What was put off is done.
    DoneLater,
    /// It was dropped; no order is possible any more.
    LetGo,
    /// It failed, and everything is as before.
    Failed,
    /// The interpreter had ended, so the memory leaks.
    Lost,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::PutOff => "put off",
            Self::DoneLater => "done later",
            Self::LetGo => "dropped without an order",
            Self::Failed => "failed",
            Self::Lost => "leaked: the interpreter has ended",
        }
    }
}

impl CallSpan {
    /// Starts the clock if the call is traced.
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        if LevelFilter::current() >= LevelFilter::TRACE { Self::observed() } else { Self(None) }
    }

    #[cold]
    fn observed() -> Self {
        Self(tracing::enabled!(target: "cai_bridge", Level::TRACE).then(Instant::now))
    }

    /// Whether the call is traced.
    #[inline]
    pub(crate) const fn is_observed(self) -> bool {
        self.0.is_some()
    }

    /// When, for an event, as the traces' clock has it.
    pub(crate) fn at(self) -> Option<u64> {
        self.0.map(clock)
    }

    /// An array went through.
    #[inline]
    pub(crate) fn exchanged(self, hand_over: HandOver<'_>) {
        if self.0.is_some() {
            self.tell_exchange(hand_over);
        }
    }

    /// The same where it may have been refused instead.
    #[inline]
    pub(crate) fn told<R>(self, hand_over: HandOver<'_>, answer: PyResult<R>) -> PyResult<R> {
        let answer = answer.map_err(|error| self.refused(hand_over.door, error))?;
        self.exchanged(hand_over);
        Ok(answer)
    }

    /// A call of `door` was refused: what it then raises.
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
    fn tell_exchange(self, hand_over: HandOver<'_>) {
        let HandOver { door, by, array, stream } = hand_over;
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

    /// What held the array at `ptr` came to its end.
    #[inline]
    pub(crate) fn released(self, (end, ptr): (End, u64), outcome: Outcome) {
        if self.0.is_some() {
            self.tell_release((end, ptr), outcome);
        }
    }

    #[cold]
    fn tell_release(self, (end, ptr): (End, u64), outcome: Outcome) {
        let what = if end == End::Copy { "copy" } else { "array" };
        tracing::trace!(
            name: "release", target: "cai_bridge", by = end.as_str(), outcome = outcome.as_str(),
            what, ptr, trace.began = self.at(), trace.ended = now(), "memory goes back"
        );
    }

    /// The host waited for all work on a device; `warned` where the caller has to know.
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

    /// A copy of the array at `from` was made at `to`, on the stream and device of `on`; in memory of
    /// the host where that is said. Of no elements, at 0, there is none.
    #[inline]
    pub(crate) fn copied(self, array: &Descriptor, to: u64, on: (Stream, i32), to_host: bool) {
        if self.0.is_some() && to != 0 {
            tracing::trace!(
                name: "copy", target: "cai_bridge", device = on.1,
                ptr = array.ptr(), copy = to, nbytes = array.nbytes(),
                host = if to_host { "the host waited for it" } else { "the host did not wait" },
                trace.stream = on.0.handle(), trace.began = self.at(), trace.ended = now(), "a copy is made"
            );
        }
    }
}

/// What its event's making takes is no part of a call.
pub(crate) fn now() -> u64 {
    clock(Instant::now())
}
