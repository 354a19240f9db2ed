//! Carrying a plan out: one event, the right context, the caller's context back, what is asked, and what is told.

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{Call, CaptureMode, Simulated, Span};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::error::{Kind, Result};
use cai_bridge::order::{
    Need, Ordered, Purpose, Uncaptured, check_captures, connect, connect_all, elided,
};
use cai_bridge::stream::{Alive, Elided, Ready, Request, Stream, Thread, plan};

use crate::alive::{HERE, THERE, alive, at, calls, new};
use crate::events::{Events, count};

const DOOR: Purpose = Purpose::hand_over("test");
const OUT_OF_MEMORY: u32 = 2;

fn handed_over(cuda: &Simulated, from: Alive<'_>, to: Alive<'_>) -> Result<Ordered> {
    cai_bridge::order::order(cuda, Need { direction: Direction::HandOver, from, to })
}

/// Two streams of a device, and how many reports there are once the second reads what the first has written.
struct Race {
    cuda: Arc<Simulated>,
    from: Alive<'static>,
    to: Alive<'static>,
    block: u64,
}

impl Race {
    /// A producer that has queued a write on device 1 while device 0 is current.
    fn new() -> Self {
        let cuda = Simulated::new(2);
        let stream = || at(THERE, Stream::Handle(cuda.create_stream(1, false).unwrap()));
        let (from, to) = (stream(), stream());
        Self::of(cuda, from, to)
    }

    fn of(cuda: Arc<Simulated>, from: Alive<'static>, to: Alive<'static>) -> Self {
        let block = cuda.alloc(0, 64, MemoryKind::Managed, "x").unwrap();
        cuda.launch(from.stream(), "write", &[], &[Span { ptr: block, len: 64 }], |_| ()).unwrap();
        Self { cuda, from, to, block }
    }

    fn order(&self) -> Result<Ordered> {
        handed_over(&self.cuda, self.from, self.to)
    }

    fn reports_of_a_read(&self) -> usize {
        let span = [Span { ptr: self.block, len: 64 }];
        self.cuda.launch(self.to.stream(), "read", &span, &[], |_| ()).unwrap();
        self.cuda.reports().len()
    }
}

#[test]
fn an_orders_record_and_wait_order_the_streams_and_its_event_is_used_again() {
    let race = Race::new();
    for _ in 0..5 {
        assert_eq!(race.order().unwrap(), Ordered::Made);
    }
    assert_eq!((calls(&race.cuda, Call::EventCreate), race.reports_of_a_read()), (1, 0));
    for call in ["cuEventRecord", "cuStreamWaitEvent"] {
        let race = Race::new();
        race.cuda.suppress(call, 1).unwrap();
        race.order().unwrap();
        assert_eq!(race.reports_of_a_read(), 1, "{call} left out");
    }
}

#[test]
fn the_callers_context_is_current_again_whatever_fails() {
    let calls = [
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
    ];
    for call in calls {
        let race = Race::new();
        let before = race.cuda.current_context().unwrap();
        race.cuda.fail(call, 1, OUT_OF_MEMORY).unwrap();
        let error = race.order().unwrap_err();
        let failed = error.driver_code().map(|failed| (failed.call, failed.code));
        assert_eq!((error.field(), failed), (call, Some((call, OUT_OF_MEMORY))), "{error}");
        assert_eq!(race.cuda.current_context().unwrap(), before, "after a failed {call}");
        race.order().unwrap();
        assert_eq!(race.reports_of_a_read(), 0, "the next call works");
    }
}

#[test]
fn another_context_is_made_current_only_where_it_is_not_and_for_a_default_stream() {
    let cuda = Simulated::new(2);
    let [here, there] = [HERE, THERE]
        .map(|place| at(place, Stream::Handle(cuda.create_stream(place.ordinal, false).unwrap())));
    let entered = |from, to| {
        cuda.clear_calls();
        handed_over(&cuda, from, to).unwrap();
        calls(&cuda, Call::CtxPushCurrent)
    };
    assert_eq!(entered(here, there), 0);
    assert_eq!(entered(here, Alive::legacy(HERE)), 0);
    // Once to ask whether it is captured, and once to wait.
    assert_eq!(entered(here, Alive::legacy(THERE)), 2);
    assert_eq!(entered(there, here), 1);
}

#[test]
fn a_record_that_fails_is_tried_in_the_streams_own_context_for_a_refused_handle_alone() {
    let race = Race::new();
    race.cuda.fail("cuEventRecord", 1, OUT_OF_MEMORY).unwrap();
    race.order().unwrap_err();
    assert_eq!(calls(&race.cuda, Call::EventRecord), 1);
}

/// What is ready on the legacy stream by its own order alone leaves nothing queued there, so that a blocking
/// stream that is handed the memory on waits for nothing by itself. So a hand-over to the legacy stream always
/// queues a wait there, and so does an end.
#[test]
fn what_is_handed_to_the_legacy_default_stream_may_be_passed_on_to_blocking_streams() {
    type Make = fn(&Simulated) -> Stream;
    let passed_on = |doors: &[Purpose], consumer: Make| {
        let cuda = Simulated::new(1);
        let streams = [new(&cuda, true), Stream::Legacy, consumer(&cuda)].map(alive);
        let race = Race::of(cuda, streams[0], streams[2]);
        let driver = Handle::Simulated(Arc::clone(&race.cuda));
        for (link, door) in streams.windows(2).zip(doors) {
            assert_eq!(plan(Ready::On(link[0].stream()), Request::On(link[1].stream())), None);
            connect(*door, &driver, link[0], link[1], |call| call()).unwrap();
        }
        race.reports_of_a_read()
    };
    let end = Purpose::give_back("test");
    let consumers: [(Make, usize); 3] = [
        (|cuda| new(cuda, false), 1),
        (|cuda| new(cuda, true), 0),
        (|_| Stream::PerThread(Thread::current()), 0),
    ];
    for (consumer, unordered) in consumers {
        for first in [DOOR, end] {
            assert_eq!(passed_on(&[first, DOOR], consumer), 0);
            assert_eq!(passed_on(&[first], consumer), unordered, "with the second order left out");
        }
        assert_eq!(passed_on(&[], consumer), 1, "with no order at all");
    }
}

#[test]
fn both_streams_of_an_order_are_asked() {
    let cuda = Simulated::new(1);
    let [from, to] = [(); 2].map(|()| new(&cuda, false));
    let asked = |direction, from, to| -> Vec<Stream> {
        cuda.clear_calls();
        // What becomes of the order is the tables' matter.
        let need = Need { direction, from: alive(from), to: alive(to) };
        drop(cai_bridge::order::order(&*cuda, need));
        let calls = cuda.calls().into_iter();
        let asked = calls.filter(|made| made.call == Call::StreamIsCapturing);
        asked.filter_map(|made| made.arguments.stream).collect()
    };
    assert_eq!(asked(Direction::HandOver, from, to), [to, from]);
    assert_eq!(asked(Direction::GiveBack, from, to), [to, from]);
    assert_eq!(asked(Direction::HandOver, from, Stream::Legacy), [Stream::Legacy, from]);
    assert_eq!(asked(Direction::HandOver, Stream::Legacy, to), [to, Stream::Legacy]);
    cuda.begin_capture(to, CaptureMode::Relaxed).unwrap();
    assert_eq!(asked(Direction::HandOver, from, to)[..2], [to, from]);
}

#[test]
fn what_has_no_place_in_a_capture_is_refused_while_one_of_its_streams_has_part_in_one() {
    let cuda = Simulated::new(1);
    let [one, other] = [(); 2].map(|()| new(&cuda, false));
    let why = Uncaptured { kind: Kind::CaptureCopy, got: "a copy" };
    let check = || check_captures(&*cuda, &[one, other].map(alive), why);
    check().unwrap();
    cuda.begin_capture(other, CaptureMode::Relaxed).unwrap();
    let refused = check().unwrap_err();
    assert_eq!((refused.kind(), refused.got()), (Kind::CaptureCopy, "a copy"));
}

#[test]
fn of_several_edges_all_are_asked_before_the_first_is_made() {
    let cuda = Simulated::new(1);
    let driver = Handle::Simulated(Arc::clone(&cuda));
    let [one, other, free, to] = [true, false, false, false].map(|blocking| new(&cuda, blocking));
    for captured in [one, other] {
        cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
    }
    let all = |edges: &[(Stream, Stream)]| {
        let edges: Vec<_> = edges.iter().map(|&(from, to)| (alive(from), alive(to))).collect();
        cuda.clear_calls();
        let answer = connect_all(DOOR, &driver, &edges, |call| call());
        (answer.map(drop).map_err(|error| error.kind()), calls(&cuda, Call::EventRecord))
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
    use Direction::{GiveBack, HandOver, Unsaid};
    let cuda = Simulated::new(1);
    let [captured, to] = [true, false].map(|blocking| alive(new(&cuda, blocking)));
    cuda.begin_capture(captured.stream(), CaptureMode::Relaxed).unwrap();
    let (legacy, stand_in) = (Alive::legacy(HERE), Alive::standing_in(HERE));
    for (direction, from, to, made) in [
        // A producer there follows blocking streams by its own work.
        (GiveBack, legacy, legacy, Ok(Ordered::Elided(Elided::SameStream))),
        (GiveBack, legacy, stand_in, Err(Kind::CaptureLegacy)),
        (GiveBack, to, legacy, Err(Kind::CaptureLegacy)),
        (HandOver, legacy, legacy, Err(Kind::CaptureLegacy)),
        // Who named no stream is told so.
        (Unsaid, legacy, to, Ok(Ordered::Elided(Elided::UnsaidInCapture))),
        (GiveBack, captured, to, Ok(Ordered::Elided(Elided::Captured))),
    ] {
        let answer = cai_bridge::order::order(&*cuda, Need { direction, from, to });
        assert_eq!(answer.map_err(|error| error.kind()), made, "{direction:?} {from:?} {to:?}");
    }
}

#[test]
fn each_decision_is_told_made_elided_or_failed() {
    let Race { cuda, from, to, .. } = Race::new();
    let driver = Handle::Simulated(Arc::clone(&cuda));
    let told = |door, to| Events::by(|| connect(door, &driver, from, to, |call| call())).0;
    let check = |told: &[String], wanted: &[&str]| {
        wanted.iter().for_each(|field| assert!(count(told, field) > 0, "{field}: {told:?}"));
    };
    let [number, other] = [from, to].map(|stream| stream.stream().handle());
    let place = ["door=\"test\"", "device=1"];

    let nothing = Events::by(|| elided(DOOR, THERE, Elided::NothingPending, || None)).0;
    check(&nothing, &["order=\"elided\"", "why=\"nothing pending\"", place[0], place[1]]);
    let own = format!("trace.stream={number}");
    let same = told(DOOR, from);
    check(&same, &["order=\"elided\"", "why=\"same stream\"", &own, place[0], place[1]]);
    assert_eq!(calls(&cuda, Call::EventRecord), 0);

    let made = told(DOOR, to);
    let ends = [format!("producer={number}"), format!("consumer={other}")];
    check(&made, &["order=\"made\"", &ends[0], &ends[1]]);
    assert_eq!(count(&made, "order=\"elided\""), 0);
    let ends = [format!("consumer={number}"), format!("producer={other}")];
    let back = told(Purpose::give_back("release"), to);
    check(&back, &["order=\"made\"", "door=\"release\"", &ends[0], &ends[1]]);

    // The caller's context is given back at the second try, and told where that fails as well.
    for (pops, is_told) in [(0, 0), (1, 0), (2, 1)] {
        for nth in 1..=pops {
            cuda.fail("cuCtxPopCurrent", nth, OUT_OF_MEMORY).unwrap();
        }
        cuda.fail("cuStreamWaitEvent", 1, OUT_OF_MEMORY).unwrap();
        let failed = told(DOOR, to);
        check(&failed, &["order=\"failed\""]);
        assert_eq!(count(&failed, "message=context not restored"), is_told, "{failed:?}");
    }
}
