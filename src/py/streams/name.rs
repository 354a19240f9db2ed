//! Streams that nothing keeps alive, by their names.

use crate::capture::Part;
use crate::driver::Handle;
use crate::error::Result;
use crate::order;
use crate::stream::{Alive, Stream};

/// A stream's name, and the driver's number for the stream, which no other stream has.
///
/// The driver gives the handle of a destroyed stream to the next one at once, even while work of the first is pending
/// (50 of 50 times, H200, driver 580, 2026-11): by its handle alone another stream may be taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName {
    stream: Stream,
    number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// The driver's, which no other stream has.
    Of(u64),
    /// The driver tells none, or the stream needs none.
    None,
    /// The stream was being captured, in the capture of this number: to ask for its own would have ended that.
    Captured(u64),
    /// It could not be asked for.
    Unasked,
}

impl StreamName {
    /// The name of a stream that is alive now.
    pub(crate) fn of(driver: &Handle, alive: Alive<'_>) -> Result<Self> {
        Ok(Self { stream: alive.stream(), number: number(driver, alive)? })
    }

    /// A stream's name, without its number.
    pub(crate) const fn unnumbered(stream: Stream) -> Self {
        Self { stream, number: Number::None }
    }

    /// The name of a stream that could not be asked about: no stream that is met later is known to be this one.
    pub(crate) const fn unasked(stream: Stream) -> Self {
        Self { stream, number: Number::Unasked }
    }

    /// The name alone.
    pub(crate) const fn stream(self) -> Stream {
        self.stream
    }

    /// Whether it is known to be the name of `other`. Of a stream that is captured at one of the two times alone that is
    /// not known.
    pub(crate) fn is(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        Ok(self.stream == other.stream()
            && match self.number {
                Number::None => true,
                Number::Unasked => false,
                known => known == number(driver, other)?,
            })
    }

    /// Whether it is known not to be the name of `other`, which has its handle by what was just said.
    pub(crate) fn is_of_another(self, driver: &Handle, other: Alive<'_>) -> Result<bool> {
        let Number::Of(mine) = self.number else { return Ok(false) };
        Ok(matches!(number(driver, other)?, Number::Of(theirs) if theirs != mine))
    }
}

fn number(driver: &Handle, alive: Alive<'_>) -> Result<Number> {
    let Stream::Handle(_) = alive.stream() else { return Ok(Number::None) };
    let driver = driver.get()?;
    Ok(match order::part_of(driver, alive)? {
        Part::Inside(capture) => Number::Captured(capture),
        Part::Outside | Part::Beside => match driver.stream_number(alive)? {
            0 => Number::None,
            number => Number::Of(number),
        },
    })
}
