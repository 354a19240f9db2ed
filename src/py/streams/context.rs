//! A stream's context: whether the context still exists, and whether its legacy default stream waits for the stream.

use crate::capture::CaptureStatus;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::codes::is_gone;
use crate::error::Result;
use crate::order::{context_of, within};
use crate::stream::{Alive, Stream};

/// The number (`cuCtxGetId`) of the context of `place`; 0 for a default stream.
pub(super) fn life(driver: &Handle, stream: Stream, place: Place) -> Result<u64> {
    match stream {
        Stream::Handle(_) => life_at(driver, place),
        _ => Ok(0),
    }
}

/// The number (`cuCtxGetId`) of the context of `place`; 0 if the driver does not number contexts.
pub(super) fn life_at(driver: &Handle, place: Place) -> Result<u64> {
    let driver = driver.get()?;
    driver.life(context_of(driver, place)?)
}

/// Whether the context with the number `before` still exists. `now` is the number of the context in its place.
pub(super) fn goes_on(now: Result<u64>, before: u64) -> Result<bool> {
    match now {
        Ok(now) => Ok(now == before),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether CUDA itself makes the legacy default stream of the place of `given` wait for `given`. False if `given` is in
/// a graph capture.
pub(super) fn follows_legacy(driver: &Handle, given: Alive<'_>) -> Result<bool> {
    let driver = driver.get()?;
    within(driver, given.place(), |_| {
        Ok(driver.capture_status(given)? == CaptureStatus::Outside
            && driver.is_blocking(given)?
            && driver.stream_context(given)? == context_of(driver, given.place())?)
    })
}
