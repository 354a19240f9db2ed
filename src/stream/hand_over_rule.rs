//! Which stream waits for which. Pure: it calls no driver.

use super::{Alive, Ready, Request};

/// Why the bridge skips a wait, at a hand-over or when memory is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elided {
    /// Producer and consumer use one stream, which runs in order.
    SameStream,
    /// The producer has nothing pending.
    NothingPending,
    /// The consumer asked for no order (-1).
    NotAsked,
    /// The producer named no stream, and a capture of a blocking stream forbids a wait for the legacy default stream.
    UnsaidInCapture,
    /// The consumer is told the producer's stream, and must order its own work after that stream.
    StreamPassedOn,
    /// Another array of the call is ready on the same stream. One wait, or one reason for none, serves both arrays.
    Together,
    /// At the end: the memory had no consumer.
    NoConsumer,
    /// At the end: the consumer's work may be captured in a graph. A wait made now cannot order the graph's later
    /// launches.
    Captured,
}

impl Elided {
    /// The text for the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameStream => "same stream",
            Self::NothingPending => "nothing pending",
            Self::NotAsked => "no order asked for",
            Self::UnsaidInCapture => "no stream named, and a blocking stream is being captured",
            Self::StreamPassedOn => "the consumer is told the producer's stream",
            Self::Together => "ordered together with another array",
            Self::NoConsumer => "no consumer",
            Self::Captured => "the consumer's work is part of a graph",
        }
    }
}

/// Why a consumer with this `request` need not wait for `ready` memory. `None` leaves the decision to [`between`].
pub const fn plan(ready: Ready, request: Request) -> Option<Elided> {
    match (ready, request) {
        (Ready::Nothing, _) => Some(Elided::NothingPending),
        (_, Request::NoOrder) => Some(Elided::NotAsked),
        (_, Request::Unspecified) => Some(Elided::StreamPassedOn),
        (Ready::Unsaid | Ready::On(_), Request::On(_)) => None,
    }
}

/// Why work queued on `to` follows work queued on `from` without an event. `None` means that `to` must wait for an
/// event on `from`.
///
/// An event is needed between the legacy default stream and a blocking stream, too, although CUDA orders the two: a
/// user may pass the memory on to another blocking stream (`tests/gpu/test_driver_twins.py`).
pub fn between(from: Alive<'_>, to: Alive<'_>) -> Option<Elided> {
    (from.is(to) && !from.stands_in()).then_some(Elided::SameStream)
}
