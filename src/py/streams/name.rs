//! Names of streams. A name with the driver's number tells a stream from a later stream with the same handle.

use crate::capture::CaptureStatus;
use crate::driver::Handle;
use crate::error::Result;
use crate::order;
use crate::stream::{Alive, Stream};

/// A stream's name, with the driver's number for the stream, if that is known.
///
/// The driver reuses a destroyed stream's handle at once, even while work of the first stream is pending (50 of 50
/// times, H200, driver 580, 2026-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName {
    stream: Stream,
    number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Of(u64),
    /// No number: this driver has none, or the bridge did not ask for it.
    None,
    /// The stream was in the capture with this number. Asking the driver for the stream's own number would have ended
    /// the capture.
    Captured(u64),
    Unasked,
}

impl StreamName {
    /// The name of a stream that is alive now. During a capture the name has the capture's number. It has no number for
    /// a default stream, or if the driver does not number streams.
    pub(crate) fn of(driver: &Handle, alive: Alive<'_>) -> Result<Self> {
        Ok(Self { stream: alive.stream(), number: number(driver, alive)? })
    }

    pub(crate) const fn unnumbered(stream: Stream) -> Self {
        Self { stream, number: Number::None }
    }

    /// The driver or a library could not tell which stream it is. [`Self::is`] returns false for every stream.
    pub(crate) const fn unasked(stream: Stream) -> Self {
        Self { stream, number: Number::Unasked }
    }

    pub(crate) const fn stream(self) -> Stream {
        self.stream
    }

    /// Whether this name means `other`. False if that cannot be told: the name is [`Self::unasked`], or the stream
    /// entered or left a capture since. A name without a number means each stream with its handle.
    pub(crate) fn is(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        Ok(self.stream == other.stream()
            && match self.number {
                Number::None => true,
                Number::Unasked => false,
                known => known == number(driver, other)?,
            })
    }

    /// Whether this name certainly does not mean `other`, which has the same handle.
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
