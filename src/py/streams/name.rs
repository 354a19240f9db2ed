//! Streams that nothing keeps alive, by their names.

use crate::capture::Part;
use crate::driver::Handle;
use crate::error::Result;
use crate::stream::{Alive, Stream};

/// A stream's name, and the driver's number for the stream, which no other stream has.
///
/// The driver gives the handle of a destroyed stream to the next one at once, even while work of the first is pending
/// (50 of 50 times, H200, driver 580, 2026-11): by its handle alone another stream may be taken for it. A stream that
/// is being captured is known by its handle alone all the same: to ask its number would end the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName {
    stream: Stream,
    /// 0 where the driver does not tell, or was not to be asked.
    number: u64,
}

impl StreamName {
    /// The name of a stream that is alive now.
    pub(crate) fn of(driver: &Handle, alive: Alive<'_>) -> Result<Self> {
        Ok(Self { stream: alive.stream(), number: number(driver, alive)?.unwrap_or(0) })
    }

    /// A stream's name, without its number.
    pub(crate) const fn unnumbered(stream: Stream) -> Self {
        Self { stream, number: 0 }
    }

    /// The name of a stream that could not be asked about: no stream that is met later is known to be this one.
    pub(crate) const fn unasked(stream: Stream) -> Self {
        Self { stream, number: u64::MAX }
    }

    /// The name alone.
    pub(crate) const fn stream(self) -> Stream {
        self.stream
    }

    /// Whether it is the name of `other`.
    pub(crate) fn is(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        if self.stream != other.stream() || self.number == 0 {
            return Ok(self.stream == other.stream());
        }
        Ok(number(driver, other)?.is_none_or(|number| number == self.number))
    }
}

/// The number of a stream, unless it is being captured.
fn number(driver: &Handle, alive: Alive<'_>) -> Result<Option<u64>> {
    let Stream::Handle(_) = alive.stream() else { return Ok(Some(0)) };
    let driver = driver.get()?;
    if driver.part(alive)? != Part::Outside {
        return Ok(None);
    }
    driver.stream_number(alive).map(Some)
}
