//! Fuzzes the integers that name streams, and the plan of which stream waits for which.

#![allow(unsafe_code)]

use cai_bridge::device::Place;
use cai_bridge::error::Kind;
use cai_bridge::stream::{Alive, Elided, Ready, Request, Stream, Thread, between, plan};

use super::choices::Bytes;

const HERE: Thread = Thread::numbered(1);
const THERE: Thread = Thread::numbered(2);

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (said, asked) = (integer(&mut bytes), integer(&mut bytes));
    let native = bytes.address();
    named(native);
    let (ready, request) = (ready(said), request(asked));
    if let (Some(ready), Some(request)) = (ready, request) {
        planned(ready, request);
    }
    let streams = [
        Stream::Legacy,
        Stream::PerThread(HERE),
        Stream::PerThread(THERE),
        Stream::Handle(7),
        Stream::from_native(native, HERE),
    ];
    let places = [Place::gpu(0), Place::gpu(1)];
    let mut alive = || {
        let (stream, place) = (bytes.pick(&streams), bytes.pick(&places));
        match Alive::default_stream(stream, place) {
            Some(default) if stream == Stream::Legacy && bytes.flag() => {
                assert!(default.is(Alive::standing_in(place)));
                Alive::standing_in(place)
            }
            Some(default) => default,
            // SAFETY: no driver is called with the stream.
            None => unsafe { Alive::kept(stream, place) },
        }
    };
    ordered(alive(), alive());
}

/// `None`, or an integer: a default stream, a handle, or neither.
pub fn integer(bytes: &mut Bytes<'_>) -> Option<i128> {
    match bytes.byte() {
        0..=79 => None,
        small @ 80..=199 => Some(i128::from(small % 6) - 2),
        200..=229 => Some(i128::from(bytes.address())),
        _ => Some(i128::from_le_bytes(bytes.take())),
    }
}

/// The stream that an integer names, or the kind of the error. `none` is the kind for integers out
/// of the range of handles.
fn expected(value: i128, none: Kind) -> Result<Stream, Kind> {
    Err(match value {
        1 => return Ok(Stream::Legacy),
        2 => return Ok(Stream::PerThread(HERE)),
        0 => Kind::StreamZero,
        _ => match u64::try_from(value) {
            Ok(handle) => return Ok(Stream::Handle(handle)),
            Err(_) => none,
        },
    })
}

fn ready(value: Option<i128>) -> Option<Ready> {
    let read = Ready::from_cai(value, HERE);
    let kind = read.as_ref().map_err(|error| error.kind()).copied();
    let on = |value| expected(value, Kind::StreamNoOrder).map(Ready::On);
    assert_eq!(kind, value.map_or(Ok(Ready::Nothing), on));
    let ready = read.ok()?;
    assert_eq!(ready.to_cai(HERE).map(i128::from), value, "it is written as it was read");
    let elsewhere = ready.to_cai(THERE).map(i128::from);
    assert_eq!(elsewhere, if value == Some(2) { Some(1) } else { value });
    Some(ready)
}

fn request(value: Option<i128>) -> Option<Request> {
    let read = Request::from_integer(value, HERE);
    let kind = read.as_ref().map_err(|error| error.kind()).copied();
    assert_eq!(
        kind,
        match value {
            None => Ok(Request::Unspecified),
            Some(-1) => Ok(Request::NoOrder),
            Some(value) => expected(value, Kind::StreamNegative).map(Request::On),
        }
    );
    let request = read.ok()?;
    let legacy = if value.is_none() { Request::On(Stream::Legacy) } else { request };
    assert_eq!(request.or_legacy(), legacy);
    Some(request)
}

fn named(native: u64) {
    let stream = Stream::from_native(native, HERE);
    assert_eq!(stream.handle(), native.max(1));
    assert_eq!(stream.seen_from(HERE), stream);
    assert_eq!(stream.seen_from(THERE).handle(), if native == 2 { 1 } else { native.max(1) });
    assert_eq!(Ok(stream), expected(native.max(1).into(), Kind::StreamZero));
}

/// Checks that the plan leaves an order out exactly for these facts, and with these reasons.
fn planned(ready: Ready, request: Request) {
    let expected = match (ready.stream(), request) {
        (None, _) => Some(Elided::NothingPending),
        (_, Request::NoOrder) => Some(Elided::NotAsked),
        (_, Request::Unspecified) => Some(Elided::StreamPassedOn),
        (Some(_), Request::On(_)) => None,
    };
    assert_eq!(plan(ready, request), expected);
}

/// Checks that two streams need an event unless they are one and the same.
fn ordered(from: Alive<'_>, to: Alive<'_>) {
    let one =
        from.stream() == to.stream() && (from.stream().handle() > 2 || from.place() == to.place());
    assert_eq!((from.is(to), to.is(from)), (one, one));
    match between(from, to) {
        Some(Elided::SameStream) => assert!(one && !from.stands_in()),
        Some(why) => panic!("{why:?} is no matter of two streams"),
        None => assert!(!one || from.stands_in(), "an event for one stream"),
    }
}
