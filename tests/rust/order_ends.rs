//! How an order ends: what failed is said as it is, and each decision is told.

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::Place;
use cai_bridge::driver::Handle;
use cai_bridge::driver::simulated::{Call, Simulated};
use cai_bridge::order::{Need, Purpose, connect, elided, order};
use cai_bridge::stream::{Alive, Elided, Stream};

use crate::alive::at;
use crate::events::{Events, count};

const OUT_OF_MEMORY: u32 = 2;
const THERE: Place = Place::gpu(1);

fn streams(cuda: &Simulated, ordinal: i32) -> [Stream; 2] {
    [(); 2].map(|()| Stream::Handle(cuda.create_stream(ordinal, false).unwrap()))
}

/// An edge between two streams that are taken for streams of the second device.
fn need(from: Stream, to: Stream) -> Need<'static> {
    let (from, to) = (at(THERE, from), at(THERE, to));
    Need { direction: Direction::HandOver, from, to }
}

#[test]
fn a_context_that_cannot_be_given_back_fails_the_order() {
    let cuda = Simulated::new(2);
    let [from, to] = streams(&cuda, 1);
    cuda.fail("cuCtxPopCurrent", 1, OUT_OF_MEMORY).unwrap();
    let error = order(&*cuda, need(from, to)).unwrap_err();
    assert_eq!(error.field(), "cuCtxPopCurrent");
    assert_eq!(error.driver_code().unwrap().code, OUT_OF_MEMORY);
}

#[test]
fn a_record_is_tried_in_the_streams_own_context_for_a_handle_that_is_refused_and_else_not() {
    let cuda = Simulated::new(2);
    let [from, to] = streams(&cuda, 0);
    order(&*cuda, need(from, to)).unwrap();
    cuda.clear_calls();
    cuda.fail("cuEventRecord", 1, OUT_OF_MEMORY).unwrap();
    let error = order(&*cuda, need(from, to)).unwrap_err();
    assert_eq!(error.driver_code().unwrap().code, OUT_OF_MEMORY);
    let records = cuda.calls().iter().filter(|made| made.call == Call::EventRecord).count();
    assert_eq!(records, 1);
}

/// What is told while streams are connected.
fn told_of(cuda: &Arc<Simulated>, door: Purpose, streams: (Alive<'_>, Alive<'_>)) -> Vec<String> {
    let driver = Handle::Simulated(Arc::clone(cuda));
    Events::by(|| connect(door, &driver, streams.0, streams.1, |call| call())).0
}

#[test]
fn each_decision_is_told_made_elided_or_failed() {
    let cuda = Simulated::new(2);
    let [from, to] = streams(&cuda, 1);
    let made = (at(THERE, from), at(THERE, to));
    let has = |told: &[String], wanted: &str| count(told, wanted) > 0;

    let door = Purpose::hand_over("door");
    let told = Events::by(|| elided(door, THERE, Elided::NothingPending, || None)).0;
    assert!(has(&told, "order=\"elided\"") && has(&told, "why=\"nothing pending\""), "{told:?}");
    assert!(has(&told, "door=\"door\"") && has(&told, "device=1"), "{told:?}");

    let told = told_of(&cuda, door, (made.0, made.0));
    assert!(has(&told, "order=\"elided\"") && has(&told, "why=\"same stream\""), "{told:?}");
    assert!(has(&told, "door=\"door\"") && has(&told, "device=1"), "{told:?}");
    assert!(has(&told, &format!("trace.stream={}", from.handle())), "{told:?}");

    let told = told_of(&cuda, door, made);
    assert!(has(&told, "order=\"made\"") && !has(&told, "order=\"elided\""), "{told:?}");
    assert!(has(&told, &format!("producer={}", from.handle())), "{told:?}");
    assert!(has(&told, &format!("consumer={}", to.handle())), "{told:?}");

    let back = told_of(&cuda, Purpose::give_back("release"), made);
    assert!(has(&back, "order=\"made\"") && has(&back, "door=\"release\""), "{back:?}");
    assert!(has(&back, &format!("consumer={}", from.handle())), "{back:?}");
    assert!(has(&back, &format!("producer={}", to.handle())), "{back:?}");

    cuda.fail("cuStreamWaitEvent", 1, OUT_OF_MEMORY).unwrap();
    let told = told_of(&cuda, door, made);
    assert!(has(&told, "order=\"failed\""), "{told:?}");

    // The caller's context is given back at the second try, and told where that fails as well.
    for (pops, is_told) in [(1, false), (2, true)] {
        for nth in 1..=pops {
            cuda.fail("cuCtxPopCurrent", nth, OUT_OF_MEMORY).unwrap();
        }
        cuda.fail("cuEventRecord", 1, OUT_OF_MEMORY).unwrap();
        let told = told_of(&cuda, door, made);
        assert_eq!(has(&told, "message=context not restored"), is_told, "{told:?}");
    }
}
