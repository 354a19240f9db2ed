//! Streams of the simulated device, dead ones too: it reports those instead of dying of them.
#![allow(unsafe_code)]

use cai_bridge::device::Place;
use cai_bridge::driver::simulated::{Call, Simulated};
use cai_bridge::stream::{Alive, Stream};

/// The first device's primary context.
pub const HERE: Place = Place::gpu(0);
pub const THERE: Place = Place::gpu(1);

/// A stream of a simulated device at `place`.
pub fn at(place: Place, stream: Stream) -> Alive<'static> {
    // SAFETY: given to simulated devices alone, which know their streams.
    unsafe { Alive::kept(stream, place) }
}

/// One of the first device.
pub fn alive(stream: Stream) -> Alive<'static> {
    at(HERE, stream)
}

/// A new stream of the first device.
pub fn new(cuda: &Simulated, blocking: bool) -> Stream {
    Stream::Handle(cuda.create_stream(0, blocking).unwrap())
}

/// How often `call` was made.
pub fn calls(cuda: &Simulated, call: Call) -> usize {
    cuda.calls().iter().filter(|made| made.call == call).count()
}
