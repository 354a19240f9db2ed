//! How an order ends: what failed is said as it is, and each decision is told.

use std::sync::{Arc, Mutex};

use cai_bridge::capture::Way;
use cai_bridge::device::Device;
use cai_bridge::driver::Handle;
use cai_bridge::driver::simulated::{Call, Simulated};
use cai_bridge::order::{Door, Need, Place, carry_out, order};
use cai_bridge::stream::{Edge, Elided, Stream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const OUT_OF_MEMORY: u32 = 2;

fn streams(cuda: &Simulated, ordinal: i32) -> [Stream; 2] {
    [(); 2].map(|()| Stream::Handle(cuda.create_stream(ordinal, false).unwrap()))
}

fn need(from: Stream, to: Stream) -> Need {
    Need { way: Way::HandOver, from, to, unless_blocking: None }
}

#[test]
fn a_context_that_cannot_be_given_back_fails_the_order() {
    let cuda = Simulated::new(2);
    let [from, to] = streams(&cuda, 1);
    cuda.fail("cuCtxPopCurrent", 1, OUT_OF_MEMORY).unwrap();
    let place = Place::of(Device::cuda(1));
    let error = order(&*cuda, place, need(from, to)).unwrap_err();
    assert_eq!(error.field(), "cuCtxPopCurrent");
    assert_eq!(error.driver_code().unwrap().code, OUT_OF_MEMORY);
}

#[test]
fn a_record_is_tried_in_the_streams_own_context_for_a_handle_that_is_refused_and_else_not() {
    let cuda = Simulated::new(2);
    let ([from, to], place) = (streams(&cuda, 0), Place::of(Device::cuda(1)));
    order(&*cuda, place, need(from, to)).unwrap();
    cuda.clear_calls();
    cuda.fail("cuEventRecord", 1, OUT_OF_MEMORY).unwrap();
    let error = order(&*cuda, place, need(from, to)).unwrap_err();
    assert_eq!(error.driver_code().unwrap().code, OUT_OF_MEMORY);
    let records = cuda.calls().iter().filter(|made| made.call == Call::EventRecord).count();
    assert_eq!(records, 1);
}

/// The events of the bridge, each as the values of its fields.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "cai_bridge"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What is told while `edge` is carried out.
fn told_of(cuda: &Arc<Simulated>, door: Door, edge: Edge) -> Vec<String> {
    let told = Told::default();
    let (driver, place) = (Handle::Simulated(Arc::clone(cuda)), Place::of(Device::cuda(1)));
    tracing::subscriber::with_default(told.clone(), || {
        let _ = carry_out(door, &driver, place, edge, || None, |call| call());
    });
    told.0.lock().unwrap().clone()
}

#[test]
fn each_decision_is_told_made_elided_or_failed() {
    let cuda = Simulated::new(2);
    let [from, to] = streams(&cuda, 1);
    let made = Edge::Order { from, to, unless_blocking: None };
    let has = |told: &[String], wanted: &str| told.iter().any(|field| field == wanted);

    let door = Door::handing_over("door");
    let told = told_of(&cuda, door, Edge::Elided(Elided::NothingPending));
    assert!(has(&told, "order=\"elided\"") && has(&told, "why=\"nothing pending\""), "{told:?}");
    assert!(has(&told, "door=\"door\"") && has(&told, "device=1"), "{told:?}");

    let told = told_of(&cuda, door, made);
    assert!(has(&told, "order=\"made\"") && !has(&told, "order=\"elided\""), "{told:?}");
    assert!(has(&told, &format!("producer={}", from.handle())), "{told:?}");
    assert!(has(&told, &format!("consumer={}", to.handle())), "{told:?}");

    let back = told_of(&cuda, Door::giving_back("release"), made);
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
