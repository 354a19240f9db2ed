//! How to make one stream wait for another during a graph capture. Such a wait is an *edge*.
//!
//! If a captured stream waits for work outside the capture, a plain wait invalidates the capture. Using the legacy
//! default stream while a blocking stream is captured also invalidates the capture ("Prohibited and Unhandled
//! Operations" in CUDA's programming guide). Asking for a [`CaptureStatus`] does not, so the bridge asks first.

use crate::error::Kind;
use crate::stream::Stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    Outside,
    /// The stream is captured, by the capture with this number.
    Inside(u64),
    /// The stream is the legacy default stream, and a blocking stream of its context is captured.
    Beside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The stream of a consumer, or of a scope, waits before its work on the memory.
    HandOver,
    /// The producer named no stream, so the consumer's stream waits for the legacy default stream.
    Unsaid,
    /// The memory goes back to the producer: the producer's stream waits for the consumer's.
    GiveBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Plain,
    /// A plain wait for captured work, which is an edge of the graph. The waiting stream joins the capture if it is in
    /// none.
    Edge,
    /// The wait becomes a node of the graph, which waits for the event at each launch of the graph.
    External,
    /// No wait is made, and no error returned: the wait would order nothing, or would invalidate a capture.
    Pointless,
    Refused(Kind),
}

/// How to make the host wait for a stream. Captured work does not run, so the host cannot wait for it.
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
        (CaptureStatus::Inside(one), CaptureStatus::Inside(other)) if one == other => Route::Edge,
        (CaptureStatus::Inside(_), _) if direction == Direction::GiveBack => Route::Pointless,
        (CaptureStatus::Inside(_), CaptureStatus::Inside(_)) => Route::Refused(Kind::CaptureOther),
        (CaptureStatus::Inside(_), CaptureStatus::Outside) if to == Stream::Legacy => {
            Route::Refused(Kind::CaptureLegacy)
        }
        (CaptureStatus::Inside(_), CaptureStatus::Outside) => Route::Edge,
        (CaptureStatus::Outside, CaptureStatus::Outside) => Route::Plain,
    }
}
