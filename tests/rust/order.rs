//! Carrying a plan out: one event, the right context, the caller's context back.

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::{MemoryKind, Place};
use cai_bridge::driver::simulated::{Call, Simulated, Span};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::error::Result;
use cai_bridge::order::{Need, Purpose, connect, wait_on_host};
use cai_bridge::stream::{Elided, Ready, Request, Stream, Thread, plan};

use crate::alive::{HERE, at};

const DOOR: Purpose = Purpose::hand_over("test");
const THERE: Place = Place::gpu(1);

/// Orders two streams at `place`; says why where that is not needed.
fn order(driver: &Simulated, place: Place, from: Stream, to: Stream) -> Result<Option<Elided>> {
    let (from, to) = (at(place, from), at(place, to));
    let need = Need { direction: Direction::HandOver, from, to };
    cai_bridge::order::order(driver, need)
}

/// How many events were made since the calls were forgotten last.
fn events_made(cuda: &Simulated) -> usize {
    cuda.calls().iter().filter(|record| record.call == Call::EventCreate).count()
}

struct Race {
    cuda: Arc<Simulated>,
    producer: Stream,
    consumer: Stream,
    block: u64,
}

impl Race {
    /// A producer that has queued a write on device 1 while device 0 is current.
    fn new() -> Self {
        let cuda = Simulated::new(2);
        let producer = Stream::Handle(cuda.create_stream(1, false).unwrap());
        let consumer = Stream::Handle(cuda.create_stream(1, false).unwrap());
        let block = cuda.alloc(1, 64, MemoryKind::Device, "x").unwrap();
        cuda.launch(producer, "write", &[], &[Span { ptr: block, len: 64 }], |_| ()).unwrap();
        Self { cuda, producer, consumer, block }
    }

    /// How many reports there are once the consumer has queued a read.
    fn reports_of_a_read(&self) -> usize {
        self.cuda
            .launch(self.consumer, "read", &[Span { ptr: self.block, len: 64 }], &[], |_| ())
            .unwrap();
        self.cuda.reports().len()
    }
}

#[test]
fn an_order_makes_the_consumers_stream_wait_for_the_producers() {
    let race = Race::new();
    order(&race.cuda, THERE, race.producer, race.consumer).unwrap();
    assert_eq!(race.reports_of_a_read(), 0);
}

#[test]
fn without_the_order_or_with_its_record_or_wait_left_out_there_is_a_report() {
    assert_eq!(Race::new().reports_of_a_read(), 1);
    for call in ["cuEventRecord", "cuStreamWaitEvent"] {
        let race = Race::new();
        race.cuda.suppress(call, 1).unwrap();
        order(&race.cuda, THERE, race.producer, race.consumer).unwrap();
        assert_eq!(race.reports_of_a_read(), 1, "{call} left out");
    }
}

#[test]
fn the_callers_context_is_current_again_whatever_fails() {
    let calls = [
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
    ];
    for call in calls {
        let race = Race::new();
        let before = race.cuda.current_context().unwrap();
        race.cuda.fail(call, 1, 2).unwrap();
        let error = order(&race.cuda, THERE, race.producer, race.consumer).unwrap_err();
        assert_eq!(
            error.driver_code().map(|code| (code.call, code.code)),
            Some((call, 2)),
            "{error}"
        );
        assert_eq!(race.cuda.current_context().unwrap(), before, "after a failed {call}");
        order(&race.cuda, THERE, race.producer, race.consumer).unwrap();
        assert_eq!(race.reports_of_a_read(), 0, "the next call works");
    }
}

#[test]
fn the_context_is_pushed_only_where_it_is_not_current() {
    let race = Race::new();
    race.cuda.set_device(1).unwrap();
    race.cuda.clear_calls();
    order(&race.cuda, THERE, race.producer, race.consumer).unwrap();
    let names: Vec<_> = race.cuda.calls().iter().map(|record| record.call.name()).collect();
    assert!(!names.contains(&"cuCtxPushCurrent"), "{names:?}");
}

#[test]
fn an_orders_event_is_given_back_and_used_again() {
    let race = Race::new();
    for _ in 0..5 {
        order(&race.cuda, THERE, race.producer, race.consumer).unwrap();
    }
    assert_eq!(events_made(&race.cuda), 1);
}

#[test]
fn a_wait_on_the_host_orders_whatever_is_queued_later() {
    let race = Race::new();
    wait_on_host(&*race.cuda, THERE).unwrap();
    assert_eq!(race.reports_of_a_read(), 0);
}

#[test]
fn an_elided_edge_calls_no_driver() {
    let race = Race::new();
    race.cuda.clear_calls();
    let handle = Handle::Simulated(Arc::clone(&race.cuda));
    let (from, to) = (at(THERE, race.producer), at(THERE, race.consumer));
    connect(DOOR, &handle, from, from, |call| call()).unwrap();
    assert!(race.cuda.calls().is_empty());
    connect(DOOR, &handle, from, to, |call| call()).unwrap();
    assert_eq!(race.reports_of_a_read(), 0);
}

/// A producer that has queued a write on a stream of its own, and a consumer on the legacy default
/// stream.
fn towards_legacy(ordinal: i32, blocking: bool) -> Race {
    let cuda = Simulated::new(2);
    let producer = Stream::Handle(cuda.create_stream(ordinal, blocking).unwrap());
    let block = cuda.alloc(0, 64, MemoryKind::Managed, "x").unwrap();
    cuda.launch(producer, "write", &[], &[Span { ptr: block, len: 64 }], |_| ()).unwrap();
    Race { cuda, producer, consumer: Stream::Legacy, block }
}

#[test]
fn the_legacy_default_stream_is_made_to_wait_for_every_stream() {
    for blocking in [false, true] {
        let race = towards_legacy(0, blocking);
        race.cuda.clear_calls();
        let done = order(&race.cuda, HERE, race.producer, race.consumer);
        assert_eq!(done.unwrap(), None);
        let calls = race.cuda.calls();
        let waits = calls.iter().filter(|record| record.call.name() == "cuStreamWaitEvent");
        assert_eq!(waits.count(), 1);
        assert_eq!(race.reports_of_a_read(), 0);
        let without = towards_legacy(0, blocking);
        assert_eq!(without.reports_of_a_read(), usize::from(!blocking), "with no order at all");
    }
}

#[test]
fn a_blocking_stream_of_another_context_is_no_part_of_the_legacy_streams_order() {
    let race = towards_legacy(1, true);
    let place = HERE;
    let done = order(&race.cuda, place, race.producer, race.consumer);
    assert_eq!(done.unwrap(), None);
    assert_eq!(race.reports_of_a_read(), 0);
    assert_eq!(towards_legacy(1, true).reports_of_a_read(), 1, "with no order at all");
}

/// What is ready on the legacy stream by its own order alone leaves nothing queued there, so that a blocking
/// stream that is handed the memory on waits for nothing by itself. So a hand-over to the legacy stream always
/// queues a wait there, and so does an end.
#[test]
fn what_is_handed_to_the_legacy_default_stream_may_be_passed_on_to_blocking_streams() {
    let passed_on = |doors: &[Purpose], consumer: fn(&Simulated) -> Stream| {
        let race = towards_legacy(0, true);
        let consumer = consumer(&race.cuda);
        let streams = [race.producer, Stream::Legacy, consumer].map(|stream| at(HERE, stream));
        let driver = Handle::Simulated(Arc::clone(&race.cuda));
        for (link, door) in streams.windows(2).zip(doors) {
            assert_eq!(plan(Ready::On(link[0].stream()), Request::On(link[1].stream())), None);
            connect(*door, &driver, link[0], link[1], |call| call()).unwrap();
        }
        Race { consumer, ..race }.reports_of_a_read()
    };
    let end = Purpose::give_back("test");
    let consumers: [fn(&Simulated) -> Stream; 3] = [
        |cuda| Stream::Handle(cuda.create_stream(0, false).unwrap()),
        |cuda| Stream::Handle(cuda.create_stream(0, true).unwrap()),
        |_| Stream::PerThread(Thread::current()),
    ];
    for (consumer, unordered) in consumers.into_iter().zip([1, 0, 0]) {
        assert_eq!(passed_on(&[DOOR, DOOR], consumer), 0);
        assert_eq!(passed_on(&[DOOR], consumer), unordered, "with the second order left out");
        assert_eq!(passed_on(&[end, DOOR], consumer), 0);
        assert_eq!(passed_on(&[end], consumer), unordered);
        assert_eq!(passed_on(&[], consumer), 1, "with no order at all");
    }
}
