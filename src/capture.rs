//! How one stream can be made to wait for another (an *edge*) during a graph capture.
//!
//! During a capture, work on a stream is recorded into a graph instead of being queued. An event recorded on that
//! stream stands for a point of the graph. Another stream that waits for the event joins the capture: this is how work
//! forks.
//!
//! If a captured stream waits for work outside the capture, a plain wait is an error that invalidates the capture.
//! Using the legacy default stream while a blocking stream is captured does the same ("Prohibited and Unhandled
//! Operations" in CUDA's programming guide). So the bridge first asks for the state of both streams, which is always
//! safe, and [`route`] says what is allowed.
//!
//! An edge with the legacy default stream beside a capture is refused, or left out if the producer named no stream. At
//! a hand-over, edges from one capture to another, or to the legacy default stream, are refused as well. When memory is
//! given back, edges that leave a capture are left out, since they would order nothing.

use crate::error::Kind;
use crate::stream::Stream;

/// The capture status of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    /// The stream is not captured: work queued on it runs.
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
    /// The consumer's stream waits for the legacy default stream, if that stream can take part. For a producer that
    /// named no stream.
    Unsaid,
    /// The producer's stream waits for the consumer's, which is finished with the memory.
    GiveBack,
}

/// How an edge is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By an event and a wait. Inside a capture these become an edge of the graph.
    Plain,
    /// The wait becomes a graph node. At each launch the node waits for work outside the graph.
    External,
    /// No wait is made. When memory is given back, it would order nothing, since the graph runs later, any number of
    /// times. For a producer that named no stream, it would invalidate the capture.
    Pointless,
    /// No wait is possible. The error has this kind.
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
