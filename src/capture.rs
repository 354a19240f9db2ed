//! What a graph capture makes of an edge between two streams.
//!
//! While a stream is being captured its work is kept for a graph, not queued. An event recorded there
//! stands for a point of the graph; a stream outside that waits for it joins the capture, which is how
//! work forks. The other way round a plain wait is an error that ends the capture, and so is touching
//! the legacy default stream beside a blocking stream that is being captured ("Prohibited and
//! Unhandled Operations" in CUDA's programming guide). So both streams are asked first, and [`route`]
//! says what may be done; asking is always safe.
//!
//! Refused: edges between two captures, and with the legacy default stream where it cannot take part.

use crate::error::Kind;
use crate::stream::Stream;

/// A stream's part in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// None: what is queued on it runs.
    Outside,
    /// It is being captured, in the capture of this number.
    Inside(u64),
    /// It is the legacy default stream of a context that has a blocking stream being captured: nothing
    /// may be queued on it until then.
    Beside,
}

/// Whether an edge belongs to the hand-over or to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The consumer's stream waits for the producer's.
    HandOver,
    /// The same for a producer that has named none: the consumer's stream waits for the legacy default one, where that
    /// can take part.
    Unsaid,
    /// The producer's stream waits for the consumer's, which is done.
    GiveBack,
}

/// How an edge is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// An event and a wait. Inside one capture they become an edge of the graph.
    Plain,
    /// The wait becomes a node of the graph that waits for work outside it, whenever the graph runs.
    External,
    /// No edge is made: at the end it would mean nothing, since what is captured runs later, any number of times; for a
    /// producer that named no stream it would end the capture.
    Pointless,
    /// No edge can be made: an error of this kind.
    Refused(Kind),
}

/// How the host waits for the work on a stream with the part `part`: by an event and a wait for it, or not at all. What
/// is captured has not run, however long the host waits, and to record the legacy stream beside a capture ends that.
pub const fn host_route(part: Part) -> Route {
    match part {
        Part::Outside => Route::Plain,
        Part::Inside(_) | Part::Beside => Route::Refused(Kind::CaptureWait),
    }
}

/// How the edge from a stream with the part `from` to the stream `to` with the part `part` is made.
pub fn route(direction: Direction, from: Part, to: Stream, part: Part) -> Route {
    match (from, part) {
        (Part::Beside, _) | (_, Part::Beside) if direction == Direction::Unsaid => Route::Pointless,
        (Part::Beside, _) | (_, Part::Beside) => Route::Refused(Kind::CaptureLegacy),
        (Part::Outside, Part::Inside(_)) => Route::External,
        (Part::Inside(one), Part::Inside(other)) if one == other => Route::Plain,
        (Part::Inside(_), _) if direction == Direction::GiveBack => Route::Pointless,
        (Part::Inside(_), Part::Inside(_)) => Route::Refused(Kind::CaptureOther),
        (Part::Inside(_), Part::Outside) if to == Stream::Legacy => {
            Route::Refused(Kind::CaptureLegacy)
        }
        (Part::Outside | Part::Inside(_), Part::Outside) => Route::Plain,
    }
}
