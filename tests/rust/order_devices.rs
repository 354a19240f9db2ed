//! Orders between streams of two devices and contexts, as managed, pinned and peer memory needs them.

use std::sync::Arc;

use cai_bridge::device::{Context, MemoryKind, Place};
use cai_bridge::driver::simulated::{Call, CaptureMode, Simulated, Span};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::error::Kind;
use cai_bridge::order::{Purpose, check_device, connect};
use cai_bridge::stream::{Alive, Stream, Thread};

use crate::alive::{at, calls};

/// A stream by its name, on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Legacy,
    PerThread,
    Blocking,
    NonBlocking,
}

const NAMES: [Name; 4] = [Name::Legacy, Name::PerThread, Name::Blocking, Name::NonBlocking];
const DOORS: [Purpose; 2] = [Purpose::hand_over("test"), Purpose::give_back("test")];

fn stream(cuda: &Simulated, name: Name, context: Context) -> Stream {
    match name {
        Name::Legacy => Stream::Legacy,
        Name::PerThread => Stream::PerThread(Thread::current()),
        name => {
            let blocking = name == Name::Blocking;
            Stream::Handle(cuda.create_stream_in(context, blocking).unwrap())
        }
    }
}

/// Two devices, a context beside the first one's primary one, and managed memory. The caller is at home on
/// neither of the first two.
struct Machine {
    cuda: Arc<Simulated>,
    block: u64,
    /// Two places on the first device and one on the second, and the context of each.
    places: [(Place, Context); 3],
}

impl Machine {
    fn new() -> Self {
        let cuda = Simulated::new(3);
        let block = cuda.alloc(0, 8, MemoryKind::Managed, "x").unwrap();
        let own = cuda.create_context(0).unwrap();
        let primary = |ordinal| (Place::gpu(ordinal), cuda.primary_context(ordinal).unwrap());
        let places = [primary(0), (Place::new(0, Some(own)), own), primary(1)];
        cuda.set_device(2).unwrap();
        Self { cuda, block, places }
    }

    fn alive(&self, name: Name, at_place: usize) -> Alive<'static> {
        let (place, context) = self.places[at_place];
        at(place, stream(&self.cuda, name, context))
    }

    /// Queues a write, or a read, on a stream.
    fn work(&self, stream: Alive<'_>, write: bool) {
        let span = [Span { ptr: self.block, len: 8 }];
        let (reads, writes): (&[Span], &[Span]) = if write { (&[], &span) } else { (&span, &[]) };
        let context = cai_bridge::order::context_of(&*self.cuda, stream.place()).unwrap();
        self.cuda.push_context(context).unwrap();
        self.cuda.launch(stream.stream(), "work", reads, writes, |_| ()).unwrap();
        self.cuda.pop_context().unwrap();
    }

    fn connect(&self, door: Purpose, from: Alive<'_>, to: Alive<'_>) {
        let driver = Handle::Simulated(Arc::clone(&self.cuda));
        connect(door, &driver, from, to, |call| call()).unwrap();
        assert_eq!(self.cuda.device(), Some(2), "the caller's device is current again");
    }
}

/// The reports after a write on the one stream and a read on the other, ordered, with the next `left_out`
/// call left out.
fn races(door: Purpose, from: (Name, usize), to: (Name, usize), left_out: Option<&str>) -> usize {
    let m = Machine::new();
    let (from, to) = (m.alive(from.0, from.1), m.alive(to.0, to.1));
    m.work(from, true);
    if let Some(call) = left_out {
        m.cuda.suppress(call, 1).unwrap();
    }
    m.connect(door, from, to);
    m.work(to, false);
    m.cuda.reports().len()
}

#[test]
fn streams_of_two_contexts_are_ordered_whatever_streams_they_are_and_each_in_its_own_context() {
    for door in DOORS {
        for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            for from in NAMES {
                for to in NAMES {
                    let races = |left_out| races(door, (from, one), (to, other), left_out);
                    let case = format!("{from:?} of {one} before {to:?} of {other}");
                    assert_eq!(races(None), 0, "{case}");
                    for call in ["cuEventRecord", "cuStreamWaitEvent"] {
                        assert_eq!(races(Some(call)), 1, "{case}, {call} left out");
                    }
                }
            }
        }
    }
}

#[test]
fn a_stream_is_recorded_in_its_own_context_wherever_it_was_expected() {
    let m = Machine::new();
    let (expected, context) = (m.places[0].0, m.places[2].1);
    let from = at(expected, stream(&m.cuda, Name::NonBlocking, context));
    let to = m.alive(Name::NonBlocking, 0);
    m.cuda.launch(from.stream(), "write", &[], &[Span { ptr: m.block, len: 8 }], |_| ()).unwrap();
    m.connect(DOORS[0], from, to);
    m.work(to, false);
    assert!(m.cuda.reports().is_empty());
    // The event that could not be recorded there is to spare.
    m.cuda.clear_calls();
    let first = m.cuda.primary_context(0).unwrap();
    m.cuda.take_event(first).unwrap();
    assert!(m.cuda.calls().is_empty());
}

#[test]
fn a_capture_beside_a_default_stream_is_looked_for_in_its_own_context() {
    for (captured, refused) in [(0, false), (1, false), (2, true)] {
        for (from, to) in [(0, 2), (2, 0)] {
            let m = Machine::new();
            let beside = m.alive(Name::Blocking, captured).stream();
            m.cuda.begin_capture(beside, CaptureMode::Relaxed).unwrap();
            // The legacy default stream of the second device, and a stream of the first.
            let name = |place| if place == 2 { Name::Legacy } else { Name::NonBlocking };
            let (from, to) = (m.alive(name(from), from), m.alive(name(to), to));
            let driver = Handle::Simulated(Arc::clone(&m.cuda));
            for door in DOORS {
                let made = connect(door, &driver, from, to, |call| call());
                assert_eq!(made.is_err(), refused, "captured at {captured}");
                if let Err(error) = made {
                    assert_eq!(error.kind(), Kind::CaptureLegacy);
                }
            }
            m.cuda.end_capture(beside).unwrap();
        }
    }
}

#[test]
fn a_streams_device_is_compared_with_the_one_that_it_is_expected_on() {
    let m = Machine::new();
    check_device(&*m.cuda, m.alive(Name::Legacy, 0)).unwrap();
    for (expected, is, refused) in
        [(0, 0, false), (0, 1, false), (1, 0, false), (0, 2, true), (1, 2, true), (2, 0, true)]
    {
        let stream = stream(&m.cuda, Name::NonBlocking, m.places[is].1);
        m.cuda.clear_calls();
        let checked = check_device(&*m.cuda, at(m.places[expected].0, stream));
        assert_eq!(checked.is_err(), refused, "{expected} {is}");
        if let Err(error) = checked {
            assert_eq!(error.kind(), Kind::StreamDevice);
            let [is, expected] = [is, expected].map(|place| m.places[place].0.ordinal);
            let said = format!("of device {is} for an array on device {expected}");
            assert!(error.got().ends_with(&said), "{error}");
        }
        // The arrays' own context needs no look into another.
        assert_eq!(calls(&m.cuda, Call::CtxGetDevice) == 0, is == expected, "{expected} {is}");
    }
    assert_eq!(m.cuda.device(), Some(2));
}
