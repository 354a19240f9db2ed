//! Names of streams. A name with the driver's number tells a stream from a later stream with the same handle.

use crate::capture::CaptureStatus;
use crate::driver::Handle;
use crate::error::Result;
use crate::order;
use crate::stream::{Alive, Stream};

/// A stream's handle, with the driver's number for the stream if that is known. The driver may reuse a destroyed
/// stream's handle at once, even while the first stream's work is pending (50 of 50 times, H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName {
    stream: Stream,
    number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Of(u64),
    /// Every stream with the handle counts as this stream.
    None,
    /// The number of the graph capture that the stream was in: asking for the stream's own number would invalidate the
    /// capture.
    Captured(u64),
    /// No stream counts as this stream.
    Unasked,
}

impl StreamName {
    pub(crate) fn of(driver: &Handle, alive: Alive<'_>) -> Result<Self> {
        Ok(Self { stream: alive.stream(), number: number(driver, alive)? })
    }

    pub(crate) const fn unnumbered(stream: Stream) -> Self {
        Self { stream, number: Number::None }
    }

    /// A name that matches no stream: [`Self::is`] always returns false.
    pub(crate) const fn unasked(stream: Stream) -> Self {
        Self { stream, number: Number::Unasked }
    }

    pub(crate) const fn stream(self) -> Stream {
        self.stream
    }

    /// Whether this name means `other`. Compares the handles and, if the name has one, the numbers.
    pub(crate) fn is(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        Ok(self.stream == other.stream()
            && match self.number {
                Number::None => true,
                Number::Unasked => false,
                known => known == number(driver, other)?,
            })
    }

    /// Whether the driver's numbers show that this name does not mean `other`, which has the same handle.
    pub(crate) fn is_of_another(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        let Number::Of(mine) = self.number else { return Ok(false) };
        Ok(matches!(number(driver, other)?, Number::Of(theirs) if theirs != mine))
    }
}

fn number(driver: &Handle, alive: Alive<'_>) -> Result<Number> {
    let Stream::Handle(_) = alive.stream() else { return Ok(Number::None) };
    let driver = driver.get()?;
    Ok(match order::status_of(driver, alive)? {
        CaptureStatus::Inside(capture) => Number::Captured(capture),
        CaptureStatus::Outside | CaptureStatus::Beside => match driver.stream_number(alive)? {
            0 => Number::None,
            number => Number::Of(number),
        },
    })
}
