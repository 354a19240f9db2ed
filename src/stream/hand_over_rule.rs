//! Which stream waits for which. Pure: it calls no driver.

use super::{Alive, Ready, Request};

/// Why no wait is made at a hand-over, or when memory is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elided {
    /// Producer and consumer use one stream, which runs in order.
    SameStream,
    /// The producer has nothing pending.
    NothingPending,
    /// The consumer asked for no order (-1).
    NotAsked,
    /// The producer named no stream. The legacy default stream may hold its work, but nothing may wait for that
    /// stream while a blocking stream is captured.
    UnsaidInCapture,
    /// The consumer is told the producer's stream, and orders its own work after that stream.
    StreamPassedOn,
    /// Another array of the same call is ready on the same stream. Its wait, or its reason to need none, holds for this
    /// array too.
    Together,
    /// At the end: the memory had no consumer.
    NoConsumer,
    /// At the end: the consumer's work is captured into a graph, or may be, and the producer's stream takes no part in
    /// that capture. Each launch runs the work later, so an edge made now cannot order the work.
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

/// Why a consumer with this `request` need not wait for memory that is `ready`. `None` means that [`between`] decides,
/// from the two streams.
pub const fn plan(ready: Ready, request: Request) -> Option<Elided> {
    match (ready, request) {
        (Ready::Nothing, _) => Some(Elided::NothingPending),
        (_, Request::NoOrder) => Some(Elided::NotAsked),
        (_, Request::Unspecified) => Some(Elided::StreamPassedOn),
        (Ready::Unsaid | Ready::On(_), Request::On(_)) => None,
    }
}

/// Why work queued on `to` follows work queued on `from` without an event. `None` means that the calling thread must
/// record an event on `from` and make `to` wait for it.
///
/// If the legacy default stream stands in for two streams, an event is needed too: the event follows the first stream's
/// work, and the second stream's later work follows the event.
///
/// The driver itself orders the legacy default stream after the blocking streams of its context ("Stream
/// synchronization behavior" in CUDA's driver API). An event is needed all the same: a user on the legacy stream may
/// pass the memory on to a blocking stream, which follows only work and waits that are queued on the legacy stream
/// (`tests/gpu/test_driver_twins.py`).
pub fn between(from: Alive<'_>, to: Alive<'_>) -> Option<Elided> {
    (from.is(to) && !from.stands_in()).then_some(Elided::SameStream)
}
