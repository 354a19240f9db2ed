//! The proof that a stream is alive.
//!
//! A handle is a bare address, and to touch it once its stream is destroyed ends the process (SIGSEGV on
//! `cuEventRecord`, H200, driver 580, 2026-11). So the driver's calls take an [`Alive`] stream only, whose
//! lifetime is that of whatever keeps the stream: an object that is held, a library that never destroys
//! its streams, or the call that a handle was given to.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Stream, Thread};
use crate::device::{Context, Place};

/// A stream that is alive as long as `'a`, and where it is.
#[derive(Debug, Clone, Copy)]
pub struct Alive<'a> {
    stream: Stream,
    /// Its place, in parts: these and the flag take no more room than the parts.
    context: Option<Context>,
    ordinal: i32,
    stands_in: bool,
    voucher: PhantomData<&'a ()>,
}

impl Alive<'_> {
    /// The legacy default stream of `place`. Default streams live as long as their context, which a call
    /// that is made in it has to find there ([`crate::order::within`]).
    pub const fn legacy(place: Place) -> Self {
        Self::new(Stream::Legacy, place)
    }

    /// The legacy default stream of `place`, where it stands in for one of the blocking streams there that
    /// has no name any more: it follows that stream and that stream follows it, but only by work of its
    /// own.
    pub const fn standing_in(place: Place) -> Self {
        Self { stands_in: true, ..Self::new(Stream::Legacy, place) }
    }

    const fn new(stream: Stream, place: Place) -> Self {
        let Place { ordinal, context } = place;
        Self { stream, context, ordinal, stands_in: false, voucher: PhantomData }
    }

    /// The calling thread's per-thread default stream of `place`.
    pub fn per_thread(place: Place) -> Self {
        Self::new(Stream::PerThread(Thread::current()), place)
    }

    /// `stream`, where it is a default one.
    pub const fn default_stream(stream: Stream, place: Place) -> Option<Self> {
        match stream {
            Stream::Handle(_) => None,
            stream => Some(Self::new(stream, place)),
        }
    }

    /// A stream that another owner keeps alive.
    ///
    /// # Safety
    ///
    /// The stream of a handle is not destroyed as long as `'a`.
    pub const unsafe fn kept(stream: Stream, place: Place) -> Self {
        Self::new(stream, place)
    }

    /// Its name.
    pub const fn stream(self) -> Stream {
        self.stream
    }

    /// Where it is. For a handle that is where it is expected: it names its own context.
    pub const fn place(self) -> Place {
        Place { ordinal: self.ordinal, context: self.context }
    }

    /// The stream, as the calling thread can name it.
    pub fn named_here(self) -> Stream {
        match self.stream {
            Stream::PerThread(_) => self.stream.seen_from(Thread::current()),
            named => named,
        }
    }

    /// Its handle for the driver, as the calling thread names it.
    pub fn native(self) -> u64 {
        self.named_here().handle()
    }

    /// Whether it is there for another stream.
    pub const fn stands_in(self) -> bool {
        self.stands_in
    }

    /// Whether both are one stream. A handle is one wherever it is expected to be.
    pub fn is(self, other: Alive<'_>) -> bool {
        self.is_at(other.stream, other.place())
    }

    /// Whether it is the stream `stream` of `place`, alive or not.
    pub fn is_at(self, stream: Stream, place: Place) -> bool {
        self.stream == stream && (matches!(stream, Stream::Handle(_)) || self.place() == place)
    }
}
