//! Streams that nothing keeps alive, by their names.

use crate::driver::Handle;
use crate::error::Result;
use crate::stream::{Alive, Stream};

/// A stream's name, and the driver's number for the stream, which no other stream has.
///
/// The driver gives the handle of a destroyed stream to the next one at once, even while work of the first is pending
/// (50 of 50 times, H200, driver 580, 2026-11): by its handle alone another stream may be taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName {
    stream: Stream,
    /// 0 where the driver does not tell.
    number: u64,
}

impl StreamName {
    /// The name of a stream that is alive now.
    pub(crate) fn of(driver: &Handle, alive: Alive<'_>) -> Result<Self> {
        Ok(Self { stream: alive.stream(), number: number(driver, alive)? })
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
        let is_named = self.stream == other.stream();
        Ok(is_named && (self.number == 0 || number(driver, other)? == self.number))
    }
}

fn number(driver: &Handle, alive: Alive<'_>) -> Result<u64> {
    match alive.stream() {
        Stream::Handle(_) => driver.get()?.stream_number(alive),
        _ => Ok(0),
    }
}
