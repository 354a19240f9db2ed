//! The context that a stream belongs to: whether it is still the same one, and what its legacy default stream waits for.

use crate::capture::Part;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::codes::is_gone;
use crate::error::Result;
use crate::order::{context_of, within};
use crate::stream::{Alive, Stream};

/// The life of the context that a handle's stream belongs to; 0 for a default stream, which every life has.
pub(super) fn life(driver: &Handle, stream: Stream, place: Place) -> Result<u64> {
    match stream {
        Stream::Handle(_) => life_at(driver, place),
        _ => Ok(0),
    }
}

/// The life of the context of `place`.
pub(super) fn life_at(driver: &Handle, place: Place) -> Result<u64> {
    let driver = driver.get()?;
    driver.life(context_of(driver, place)?)
}

/// Whether a context that was in its life `before` is in it `now`: not where it is gone.
pub(super) fn goes_on(now: Result<u64>, before: u64) -> Result<bool> {
    match now {
        Ok(now) => Ok(now == before),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the legacy default stream of the place of `given` is ordered after it by itself.
pub(super) fn follows_legacy(driver: &Handle, given: Alive<'_>) -> Result<bool> {
    let driver = driver.get()?;
    within(driver, given.place(), |_| {
        Ok(driver.part(given)? == Part::Outside
            && driver.is_blocking(given)?
            && driver.stream_context(given)? == context_of(driver, given.place())?)
    })
}
