//! What the driver is asked for an order, and what its answers mean: captures, marks, devices.

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::{MemoryKind, Place};
use cai_bridge::driver::Handle;
use cai_bridge::driver::simulated::{Call, CaptureMode, Simulated, Span};
use cai_bridge::error::Kind;
use cai_bridge::order::{
    Need, Purpose, Uncaptured, check_captures, check_device, connect, connect_all, is_reached,
    mark, order, wait_on_host,
};
use cai_bridge::stream::{Alive, Elided, Stream, Thread};

use crate::alive::{HERE, alive, at};

const THERE: Place = Place::gpu(1);

fn machine() -> (Arc<Simulated>, [Stream; 2]) {
    let cuda = Simulated::new(2);
    let streams = [(); 2].map(|()| Stream::Handle(cuda.create_stream(0, false).unwrap()));
    (cuda, streams)
}

/// The streams whose part in a capture was asked for, in that order.
fn asked(cuda: &Simulated, direction: Direction, from: Stream, to: Stream) -> Vec<Stream> {
    cuda.clear_calls();
    // What becomes of the order is the tables' matter.
    let (from, to) = (alive(from), alive(to));
    let _ = order(cuda, Need { direction, from, to });
    let calls = cuda.calls();
    let asked = calls.iter().filter(|made| made.call == Call::StreamIsCapturing);
    asked.filter_map(|made| made.arguments.stream).collect()
}

#[test]
fn the_stream_that_is_recorded_is_asked_only_where_its_answer_matters() {
    let (cuda, [from, to]) = machine();
    assert_eq!(asked(&cuda, Direction::HandOver, from, to), [to]);
    assert_eq!(asked(&cuda, Direction::GiveBack, from, to), [to, from]);
    assert_eq!(asked(&cuda, Direction::HandOver, from, Stream::Legacy), [Stream::Legacy, from]);
    assert_eq!(asked(&cuda, Direction::HandOver, Stream::Legacy, to), [to, Stream::Legacy]);
    cuda.begin_capture(to, CaptureMode::Relaxed).unwrap();
    assert_eq!(asked(&cuda, Direction::HandOver, from, to)[..2], [to, from]);
}

#[test]
fn a_mark_is_reached_when_the_work_before_it_is_done_and_its_event_is_then_used_again() {
    let (cuda, [stream, _]) = machine();
    let block = cuda.alloc(0, 8, MemoryKind::Device, "x").unwrap();
    cuda.launch(stream, "write", &[], &[Span { ptr: block, len: 8 }], |_| ()).unwrap();
    cuda.clear_calls();
    let point = mark(&*cuda, alive(stream)).unwrap();
    assert!(!is_reached(&*cuda, &point).unwrap());
    cuda.synchronize_all().unwrap();
    assert!(is_reached(&*cuda, &point).unwrap());
    let again = mark(&*cuda, alive(stream)).unwrap();
    let made = |cuda: &Simulated| {
        cuda.calls().iter().filter(|made| made.call == Call::EventCreate).count()
    };
    assert_eq!(made(&cuda), 1);
    let other = mark(&*cuda, alive(stream)).unwrap();
    assert_eq!(made(&cuda), 2, "one that is not given back is nobody else's");
    assert!(is_reached(&*cuda, &again).unwrap() && is_reached(&*cuda, &other).unwrap());
}

#[test]
fn a_mark_that_fails_gives_its_event_back() {
    let (cuda, [stream, _]) = machine();
    cuda.clear_calls();
    cuda.fail("cuEventRecord", 1, 2).unwrap();
    mark(&*cuda, alive(stream)).unwrap_err();
    mark(&*cuda, alive(stream)).unwrap();
    let made = cuda.calls().iter().filter(|made| made.call == Call::EventCreate).count();
    assert_eq!(made, 1);
}

#[test]
fn a_stream_of_another_device_is_refused_and_one_of_another_context_of_the_device_is_not() {
    let (cuda, [stream, _]) = machine();
    let theirs = Stream::Handle(cuda.create_stream(1, false).unwrap());
    let second = cuda.create_context(0).unwrap();
    let beside = Stream::Handle(cuda.create_stream_in(second, false).unwrap());
    for allowed in [Stream::Legacy, stream, beside] {
        check_device(&*cuda, alive(allowed)).unwrap();
    }
    let error = check_device(&*cuda, alive(theirs)).unwrap_err();
    assert_eq!(error.kind().name(), "StreamDevice");
    assert!(error.got().ends_with("of device 1 for an array on device 0"), "{error}");
    cuda.clear_calls();
    check_device(&*cuda, alive(stream)).unwrap();
    // The arrays' own context needs no look into another.
    assert!(!cuda.calls().iter().any(|made| made.call == Call::CtxGetDevice));
}

/// Orders a stream of device 1 before one of device 0.
fn across(cuda: &Arc<Simulated>, from: Stream, to: Stream) {
    let (door, driver) = (Purpose::hand_over("test"), Handle::Simulated(Arc::clone(cuda)));
    connect(door, &driver, at(THERE, from), alive(to), |call| call()).unwrap();
}

/// A write queued on `from` of device 1, ordered before a stream of device 0, and how many reports a
/// read there makes.
fn read_across(from: fn(&Simulated) -> Stream, without: Option<&str>) -> usize {
    let cuda = Simulated::new(2);
    let (from, to) = (from(&cuda), Stream::Handle(cuda.create_stream(0, false).unwrap()));
    let block = cuda.alloc(1, 8, MemoryKind::Device, "x").unwrap();
    let span = [Span { ptr: block, len: 8 }];
    cuda.on_device(1, || cuda.launch(from, "write", &[], &span, |_| ())).unwrap();
    if let Some(call) = without {
        cuda.suppress(call, 1).unwrap();
    }
    across(&cuda, from, to);
    cuda.launch(to, "read", &span, &[], |_| ()).unwrap();
    assert_eq!(cuda.device(), Some(0), "the caller's device is current again");
    cuda.reports().len()
}

#[test]
fn streams_of_two_devices_are_ordered_each_in_its_own_context() {
    let from: [fn(&Simulated) -> Stream; 3] = [
        |cuda| Stream::Handle(cuda.create_stream(1, false).unwrap()),
        |_| Stream::Legacy,
        |_| Stream::PerThread(Thread::current()),
    ];
    for from in from {
        assert_eq!(read_across(from, None), 0);
        for call in ["cuEventRecord", "cuStreamWaitEvent"] {
            assert_eq!(read_across(from, Some(call)), 1, "{call} left out");
        }
    }
}

#[test]
fn an_event_across_devices_is_of_the_streams_own_context() {
    let cuda = Simulated::new(2);
    let context = cuda.create_context(1).unwrap();
    let from = Stream::Handle(cuda.create_stream_in(context, false).unwrap());
    let to = Stream::Handle(cuda.create_stream(0, false).unwrap());
    across(&cuda, from, to);
}

#[test]
fn what_has_no_place_in_a_capture_is_refused_while_one_of_its_streams_has_part_in_one() {
    let (cuda, [one, other]) = machine();
    let why = Uncaptured { kind: Kind::CaptureCopy, got: "a copy" };
    let check = || check_captures(&*cuda, &[one, other].map(alive), why);
    check().unwrap();
    cuda.begin_capture(other, CaptureMode::Relaxed).unwrap();
    let refused = check().unwrap_err();
    assert_eq!((refused.kind(), refused.got()), (Kind::CaptureCopy, "a copy"));
    cuda.end_capture(other).unwrap();
    check().unwrap();
}

#[test]
fn a_wait_of_the_host_is_made_beside_any_capture_and_ends_none() {
    let (cuda, [known, foreign]) = machine();
    let blocking = Stream::Handle(cuda.create_stream(0, true).unwrap());
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        for captured in [known, Stream::PerThread(Thread::current()), blocking] {
            cuda.launch(foreign, "pending", &[], &[], |_| ()).unwrap();
            cuda.begin_capture(captured, mode).unwrap();
            cuda.launch(captured, "captured", &[], &[], |_| ()).unwrap();
            wait_on_host(&*cuda, HERE).unwrap();
            assert_eq!(cuda.pending(), 0);
            cuda.end_capture(captured).unwrap();
        }
    }
}

#[test]
fn of_several_edges_all_are_asked_before_the_first_is_made() {
    let cuda = Simulated::new(1);
    let driver = Handle::Simulated(Arc::clone(&cuda));
    let [one, other, free, to] = [true, false, false, false]
        .map(|blocking| Stream::Handle(cuda.create_stream(0, blocking).unwrap()));
    for captured in [one, other] {
        cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
    }
    let all = |edges: &[(Stream, Stream)]| {
        let edges: Vec<_> = edges.iter().map(|&(from, to)| (alive(from), alive(to))).collect();
        cuda.clear_calls();
        let answer = connect_all(Purpose::hand_over("test"), &driver, &edges, |call| call());
        let records = cuda.calls().iter().filter(|made| made.call == Call::EventRecord).count();
        (answer.map_err(|error| error.kind()), records)
    };
    // A stream that has joined one capture cannot join the other; the way there is followed.
    assert_eq!(all(&[(one, to), (other, to)]), (Err(Kind::CaptureOther), 0));
    assert_eq!(all(&[(one, to), (to, free), (other, free)]), (Err(Kind::CaptureOther), 0));
    assert_eq!(all(&[(one, to), (Stream::Legacy, to)]), (Err(Kind::CaptureLegacy), 0));
    // One that is no edge asks nothing.
    assert_eq!(all(&[(to, to), (one, other)]), (Err(Kind::CaptureOther), 0));
    assert_eq!(all(&[(other, other), (free, to)]), (Ok(()), 1));
    // And what can be made is made.
    assert_eq!(all(&[(one, free), (one, to), (free, to)]), (Ok(()), 3));
}

#[test]
fn beside_a_capture_the_legacy_stream_waits_for_itself_only_as_itself() {
    let cuda = Simulated::new(1);
    let [captured, to] =
        [true, false].map(|blocking| Stream::Handle(cuda.create_stream(0, blocking).unwrap()));
    cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
    let legacy = Alive::legacy(HERE);
    let made = |direction, from, to| {
        order(&*cuda, Need { direction, from, to }).map_err(|error| error.kind())
    };
    // A producer there follows blocking streams by its own work.
    assert_eq!(made(Direction::GiveBack, legacy, legacy), Ok(Some(Elided::Captured)));
    let stand_in = Alive::standing_in(HERE);
    assert_eq!(made(Direction::GiveBack, legacy, stand_in), Err(Kind::CaptureLegacy));
    assert_eq!(made(Direction::GiveBack, alive(to), legacy), Err(Kind::CaptureLegacy));
    assert_eq!(made(Direction::HandOver, legacy, legacy), Err(Kind::CaptureLegacy));
    // Who named no stream is told so.
    assert_eq!(made(Direction::Unsaid, legacy, alive(to)), Ok(Some(Elided::UnsaidInCapture)));
    assert_eq!(made(Direction::GiveBack, alive(captured), alive(to)), Ok(Some(Elided::Captured)));
}

#[test]
fn another_context_is_made_current_only_for_a_default_stream_of_another_place() {
    let cuda = Simulated::new(2);
    let [from, to] =
        [0, 1].map(|ordinal| Stream::Handle(cuda.create_stream(ordinal, false).unwrap()));
    let entered = |from, to| {
        cuda.clear_calls();
        order(&*cuda, Need { direction: Direction::GiveBack, from, to }).unwrap();
        cuda.calls().iter().filter(|made| made.call == Call::CtxPushCurrent).count()
    };
    assert_eq!(entered(at(HERE, from), at(THERE, to)), 0);
    assert_eq!(entered(at(HERE, from), at(HERE, Stream::Legacy)), 0);
    // Once to ask whether it is captured, and once to wait.
    assert_eq!(entered(at(HERE, from), at(THERE, Stream::Legacy)), 2);
}
