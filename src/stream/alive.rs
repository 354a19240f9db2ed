//! The proof that a stream is alive. Using a handle after its stream is destroyed can kill the process (SIGSEGV in
//! `cuEventRecord`, H200, driver 580, 2026-11). So the driver's calls on a stream take only an [`Alive`] stream.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Stream, Thread};
use crate::device::{Context, Place};

/// A stream that is alive for `'a`, and its place.
#[derive(Debug, Clone, Copy)]
pub struct Alive<'a> {
    stream: Stream,
    context: Option<Context>,
    ordinal: i32,
    stands_in: bool,
    voucher: PhantomData<&'a ()>,
}

impl Alive<'_> {
    /// The legacy default stream of `place`, which exists as long as the context of `place` does.
    pub const fn legacy(place: Place) -> Self {
        Self::new(Stream::Legacy, place)
    }

    /// The legacy default stream of `place`, in place of blocking streams that may be destroyed or are unknown.
    pub const fn standing_in(place: Place) -> Self {
        Self { stands_in: true, ..Self::new(Stream::Legacy, place) }
    }

    const fn new(stream: Stream, place: Place) -> Self {
        let Place { ordinal, context } = place;
        Self { stream, context, ordinal, stands_in: false, voucher: PhantomData }
    }

    /// The calling thread's per-thread default stream in the context of `place`.
    pub fn per_thread(place: Place) -> Self {
        Self::new(Stream::PerThread(Thread::current()), place)
    }

    /// The default stream `stream` of `place`. `None` if `stream` is a stream with a handle.
    pub const fn default_stream(stream: Stream, place: Place) -> Option<Self> {
        match stream {
            Stream::Handle(_) => None,
            stream => Some(Self::new(stream, place)),
        }
    }

    /// A stream that something else keeps alive.
    ///
    /// # Safety
    ///
    /// The stream must not be destroyed during `'a`.
    pub const unsafe fn kept(stream: Stream, place: Place) -> Self {
        Self::new(stream, place)
    }

    /// Which stream this is.
    pub const fn stream(self) -> Stream {
        self.stream
    }

    /// The stream's device and context, as the constructor's caller stated them.
    pub const fn place(self) -> Place {
        Place { ordinal: self.ordinal, context: self.context }
    }

    /// The stream as this thread can name it: another thread's per-thread default stream becomes the legacy one.
    pub fn named_here(self) -> Stream {
        match self.stream {
            Stream::PerThread(_) => self.stream.seen_from(Thread::current()),
            named => named,
        }
    }

    /// The stream's handle for the driver, as the calling thread names it.
    pub fn native(self) -> u64 {
        self.named_here().handle()
    }

    /// Whether this legacy default stream is used in place of blocking streams that may be destroyed or are unknown.
    pub const fn stands_in(self) -> bool {
        self.stands_in
    }

    /// Whether both are the same stream. Two streams with the same handle are the same, whatever their places. Default
    /// streams at different places differ.
    pub fn is(self, other: Alive<'_>) -> bool {
        self.is_at(other.stream, other.place())
    }

    /// Whether this is the stream `stream` of `place`. `stream` need not be alive.
    pub fn is_at(self, stream: Stream, place: Place) -> bool {
        self.stream == stream && (matches!(stream, Stream::Handle(_)) || self.place() == place)
    }
}
