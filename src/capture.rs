//! How to make one stream wait for another during a graph capture. Such a wait is an *edge*.
//!
//! If a captured stream waits for work outside the capture, a plain wait invalidates the capture. Using the legacy
//! default stream while a blocking stream is captured does the same ("Prohibited and Unhandled Operations" in CUDA's
//! programming guide). Asking for a [`CaptureStatus`] invalidates no capture, so the bridge asks first.

use crate::error::Kind;
use crate::stream::Stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    /// The stream is neither captured nor [`Self::Beside`] a capture.
    Outside,
    /// The stream is captured, by the capture with this number.
    Inside(u64),
    /// The legacy default stream of a context in which a blocking stream is captured. Nothing may be queued on the
    /// legacy default stream until the capture ends.
    Beside,
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By an event and a wait. Inside a capture these become an edge of the graph.
    Plain,
    /// The wait becomes a graph node. At each launch the node waits for work outside the graph.
    External,
    /// No wait is made, and no error returned: the wait would order nothing, or would invalidate a capture.
    Pointless,
    Refused(Kind),
}

/// How the host can wait for a stream of this status. Captured work does not run while the host waits, and recording an
/// event on the legacy default stream beside a capture invalidates the capture.
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
