//! Streams of the simulated device, dead ones too: it reports those instead of dying of them.
#![allow(unsafe_code)]

use cai_bridge::device::Place;
use cai_bridge::stream::{Alive, Stream};

/// The first device's primary context.
pub const HERE: Place = Place::gpu(0);

/// A stream of a simulated device at `place`.
pub fn at(place: Place, stream: Stream) -> Alive<'static> {
    // SAFETY: given to simulated devices alone, which know their streams.
    unsafe { Alive::kept(stream, place) }
}

/// One of the first device.
pub fn alive(stream: Stream) -> Alive<'static> {
    at(HERE, stream)
}
