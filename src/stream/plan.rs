//! Which stream waits for which. Pure: it calls no driver.

use super::{Alive, Ready, Request};

/// Why a hand-over, or an end, needs no edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elided {
    /// Producer and consumer use one stream, which runs in order.
    SameStream,
    /// The producer has nothing pending.
    NothingPending,
    /// The consumer asked for no order (-1).
    NotAsked,
    /// The producer named no stream, and the legacy default one cannot be waited for while a blocking stream is captured.
    UnsaidInCapture,
    /// The consumer learns the producer's stream and queues its work there.
    StreamPassedOn,
    /// Another array that was ready on the same stream has been ordered by the same call.
    Together,
    /// At the end: the memory had no consumer.
    NoConsumer,
    /// At the end: the consumer's work is being captured into a graph that the producer's stream is no
    /// part of. The graph runs whenever it is launched, which no order of now can come after.
    Captured,
}

impl Elided {
    /// The reason, as events give it.
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

/// Why memory that is `ready` needs no edge for a consumer that makes `request`; `None` where
/// [`between`] the two streams has to tell.
pub const fn plan(ready: Ready, request: Request) -> Option<Elided> {
    match (ready, request) {
        (Ready::Nothing, _) => Some(Elided::NothingPending),
        (_, Request::NoOrder) => Some(Elided::NotAsked),
        (_, Request::Unspecified) => Some(Elided::StreamPassedOn),
        (Ready::Unsaid | Ready::On(_), Request::On(_)) => None,
    }
}

/// Why work queued on `to` comes after work queued on `from` without an edge; `None` where it takes one, an event
/// that is recorded and waited for on the calling thread.
///
/// Another thread's per-thread default stream has no name here. The legacy default stream stands in: an
/// event there follows all that is queued on it, and it follows what is queued here. If it stands in for both
/// streams, an event is needed all the same: it follows the work of the first, and the second follows it. So it
/// is where the legacy stream [stands in](Alive::standing_in) for the blocking stream that was worked on: what
/// comes after is another blocking stream, or the legacy one itself, whose user may go on to another.
///
/// The driver orders the legacy default stream after the blocking streams of its context by itself ("Stream
/// synchronization behavior" in CUDA's driver API). That is not enough: a user there may pass the memory on,
/// and a blocking stream follows what was queued on the legacy one, a bare wait as well
/// (`tests/gpu/test_driver_twins.py`), but not what that one would have followed.
pub fn between(from: Alive<'_>, to: Alive<'_>) -> Option<Elided> {
    (from.is(to) && !from.stands_in()).then_some(Elided::SameStream)
}
