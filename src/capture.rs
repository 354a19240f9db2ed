//! How to make one stream wait for another during a graph capture. Such a wait is an *edge*.
//!
//! During a capture, work on a captured stream is recorded into a graph instead of being queued. An event recorded on
//! the captured stream stands for a point of the graph. Another stream that waits for the event joins the capture: this
//! is how work forks.
//!
//! If a captured stream waits for work outside the capture, a plain wait is an error that invalidates the capture.
//! Using the legacy default stream while a blocking stream is captured does the same ("Prohibited and Unhandled
//! Operations" in CUDA's programming guide). To ask for a [`CaptureStatus`] invalidates no capture, so the bridge asks
//! first. [`route`] says which edges are allowed:
//!
//! - If one of the streams is the legacy default stream beside a capture, the edge is refused. It is left out if the
//!   producer named no stream.
//! - From a stream outside any capture into a capture, the wait is [external](Route::External).
//! - When memory is given back, an edge that leaves a capture is left out, since it would order nothing.
//! - At a hand-over, an edge from a capture to another capture, or to the legacy default stream, is refused.
//! - All other edges are plain waits.

use crate::error::Kind;
use crate::stream::Stream;

/// The capture status of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    /// The stream is neither captured nor [`Self::Beside`] a capture: work queued on it runs.
    Outside,
    /// The stream is captured, by the capture with this number.
    Inside(u64),
    /// The legacy default stream of a context that has a blocking stream under capture. Nothing may be queued on it
    /// until the capture ends.
    Beside,
}

/// What an edge (one stream's wait for another) is for: the hand-over, with or without a named producer stream, or
/// giving the memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The consumer's stream waits for the producer's.
    HandOver,
    /// The producer named no stream: the consumer's stream waits for the legacy default stream. No wait is made if one
    /// of the two streams is [`CaptureStatus::Beside`].
    Unsaid,
    /// The producer's stream waits for the consumer's, which is finished with the memory.
    GiveBack,
}

/// How to make an edge, or why none is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By an event and a wait. Inside a capture these become an edge of the graph.
    Plain,
    /// The wait becomes a graph node. At each launch the node waits for work outside the graph.
    External,
    /// No wait is made. When memory is given back from a capture, a wait would order nothing, since the graph runs
    /// later, any number of times. If the producer named no stream, a wait that uses the legacy default stream beside a
    /// capture would invalidate the capture.
    Pointless,
    /// No wait is allowed. The error has this kind.
    Refused(Kind),
}

/// How the host can wait for a stream with the capture status `status`: by an event, or not at all. Captured work does
/// not run, however long the host waits, and recording an event on the legacy stream beside a capture invalidates that
/// capture.
pub const fn host_route(status: CaptureStatus) -> Route {
    match status {
        CaptureStatus::Outside => Route::Plain,
        CaptureStatus::Inside(_) | CaptureStatus::Beside => Route::Refused(Kind::CaptureWait),
    }
}

/// How to make the stream `to`, whose capture status is `status`, wait for a stream whose capture status is `from`.
pub fn route(
    direction: Direction,
    from: CaptureStatus,
    to: Stream,
    status: CaptureStatus,
) -> Route {
    match (from, status) {
        (CaptureStatus::Beside, _) | (_, CaptureStatus::Beside)
            if direction == Direction::Unsaid =>
        {
            Route::Pointless
        }
        (CaptureStatus::Beside, _) | (_, CaptureStatus::Beside) => {
            Route::Refused(Kind::CaptureLegacy)
        }
        (CaptureStatus::Outside, CaptureStatus::Inside(_)) => Route::External,
        (CaptureStatus::Inside(one), CaptureStatus::Inside(other)) if one == other => Route::Plain,
        (CaptureStatus::Inside(_), _) if direction == Direction::GiveBack => Route::Pointless,
        (CaptureStatus::Inside(_), CaptureStatus::Inside(_)) => Route::Refused(Kind::CaptureOther),
        (CaptureStatus::Inside(_), CaptureStatus::Outside) if to == Stream::Legacy => {
            Route::Refused(Kind::CaptureLegacy)
        }
        (CaptureStatus::Outside | CaptureStatus::Inside(_), CaptureStatus::Outside) => Route::Plain,
    }
}
