//! Marks of where a stream's work ends: whose their events are, and what becomes of them with a context.

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{Call, CaptureMode, ReportKind, Simulated, Span, codes};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::error::Kind;
use cai_bridge::order::{Need, Ordered, forget, is_reached, mark, order, wait_for, wait_on_host};
use cai_bridge::stream::{Alive, Stream, Thread};

use crate::alive::{HERE, THERE, alive, calls, new};

fn machine() -> (Arc<Simulated>, [Alive<'static>; 3]) {
    let cuda = Simulated::new(2);
    let streams = [(); 3].map(|()| alive(new(&cuda, false)));
    cuda.primary_context(0).unwrap();
    cuda.clear_calls();
    (cuda, streams)
}

fn ordered(cuda: &Simulated, direction: Direction, from: Alive<'_>, to: Alive<'_>) {
    assert_eq!(order(cuda, Need { direction, from, to }).unwrap(), Ordered::Made);
}

fn work(cuda: &Simulated, stream: Alive<'_>) {
    cuda.launch(stream.stream(), "work", &[], &[], |_| ()).unwrap();
}

#[test]
fn a_marks_event_is_kept_until_it_is_reached_and_then_used_again() {
    let (cuda, [from, to, other]) = machine();
    work(&cuda, from);
    let point = mark(&*cuda, from).unwrap();
    // Another order cannot move the mark to its own stream, where nothing is pending.
    let next = mark(&*cuda, other).unwrap();
    assert_eq!(calls(&cuda, Call::EventCreate), 2);
    assert!(is_reached(&*cuda, &next).unwrap() && !is_reached(&*cuda, &point).unwrap());
    cuda.synchronize_stream(from.stream()).unwrap();
    assert!(is_reached(&*cuda, &point).unwrap());
    for _ in 0..2 {
        ordered(&cuda, Direction::GiveBack, from, to);
    }
    assert_eq!(calls(&cuda, Call::EventCreate), 2);
    let _kept = [(); 3].map(|()| mark(&*cuda, from).unwrap());
    assert_eq!(calls(&cuda, Call::EventCreate), 3);
}

#[test]
fn marks_that_fail_or_are_forgotten_give_their_events_back_and_a_failed_question_does_not() {
    let (cuda, [from, ..]) = machine();
    cuda.fail("cuEventRecord", 1, codes::OUT_OF_MEMORY).unwrap();
    mark(&*cuda, from).unwrap_err();
    for _ in 0..2 {
        let marks = [(); 3].map(|()| mark(&*cuda, from).unwrap());
        assert_eq!(calls(&cuda, Call::EventCreate), 3);
        forget(&Handle::Simulated(Arc::clone(&cuda)), marks.into());
    }
    let _others = [(); 2].map(|()| mark(&*cuda, from).unwrap());
    let point = mark(&*cuda, from).unwrap();
    cuda.fail("cuEventQuery", 1, codes::OUT_OF_MEMORY).unwrap();
    is_reached(&*cuda, &point).unwrap_err();
    mark(&*cuda, from).unwrap();
    assert_eq!(calls(&cuda, Call::EventCreate), 4, "its event is nobody else's");
    assert!(is_reached(&*cuda, &point).unwrap());
}

#[test]
fn the_event_that_a_graph_waits_for_is_never_used_again_unless_the_wait_failed() {
    for (fails, events) in [(false, 2), (true, 1)] {
        let (cuda, [from, to, other]) = machine();
        cuda.begin_capture(to.stream(), CaptureMode::Relaxed).unwrap();
        if fails {
            cuda.fail("cuStreamWaitEvent", 1, codes::OUT_OF_MEMORY).unwrap();
        }
        let made = order(&*cuda, Need { direction: Direction::GiveBack, from, to });
        assert_eq!(made.is_err(), fails);
        cuda.end_capture(to.stream()).unwrap();
        ordered(&cuda, Direction::GiveBack, from, other);
        assert_eq!(calls(&cuda, Call::EventCreate), events);
    }
}

#[test]
fn a_mark_of_a_context_that_was_reset_fails_and_its_event_is_not_touched() {
    let (cuda, [from, ..]) = machine();
    let points = [mark(&*cuda, from).unwrap(), mark(&*cuda, Alive::legacy(HERE)).unwrap()];
    let elsewhere = mark(&*cuda, Alive::legacy(THERE)).unwrap();
    cuda.reset_device(0).unwrap();
    cuda.clear_calls();
    for point in &points {
        for _ in 0..2 {
            let error = is_reached(&*cuda, point).unwrap_err();
            assert_eq!(error.driver_code().unwrap().code, codes::CONTEXT_IS_DESTROYED);
            assert!(codes::is_final(&error));
        }
    }
    assert_eq!(calls(&cuda, Call::EventQuery), 0);
    assert!(is_reached(&*cuda, &elsewhere).unwrap());
    assert_eq!(cuda.reports(), []);
}

#[test]
fn no_event_of_an_earlier_life_is_used_again() {
    let (cuda, [from, ..]) = machine();
    let driver = Handle::Simulated(Arc::clone(&cuda));
    let kept = mark(&*cuda, from).unwrap();
    for reset in 0..3 {
        forget(&driver, vec![mark(&*cuda, Alive::legacy(HERE)).unwrap()]);
        cuda.reset_device(0).unwrap();
        if reset == 1 {
            forget(&driver, vec![mark(&*cuda, Alive::legacy(HERE)).unwrap()]);
        }
        let [from, to] = [(); 2].map(|()| alive(new(&cuda, false)));
        let block = cuda.alloc(0, 8, MemoryKind::Device, "x").unwrap();
        let span = [Span { ptr: block, len: 8 }];
        cuda.launch(from.stream(), "write", &[], &span, |_| ()).unwrap();
        ordered(&cuda, Direction::HandOver, from, to);
        let point = mark(&*cuda, to).unwrap();
        cuda.launch(to.stream(), "read", &span, &[], |_| ()).unwrap();
        assert!(!is_reached(&*cuda, &point).unwrap());
        wait_on_host(&*cuda, HERE).unwrap();
        assert!(is_reached(&*cuda, &point).unwrap());
    }
    forget(&driver, vec![kept]);
    mark(&*cuda, Alive::legacy(HERE)).unwrap();
    assert_eq!(cuda.reports(), []);
}

#[test]
fn another_threads_stream_is_marked_by_the_legacy_default_stream_which_follows_it() {
    let cuda = Simulated::new(1);
    let theirs = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            cuda.launch(Stream::PerThread(Thread::current()), "work", &[], &[], |_| ()).unwrap();
            Thread::current()
        });
        alive(Stream::PerThread(theirs.join().unwrap()))
    });
    let point = mark(&*cuda, theirs).unwrap();
    assert!(!is_reached(&*cuda, &point).unwrap());
    cuda.run_all().unwrap();
    assert!(is_reached(&*cuda, &point).unwrap());
    assert!(!cuda.reports().iter().any(|report| report.kind == ReportKind::ForeignThread));
}

#[test]
fn the_host_waits_for_the_streams_that_it_is_given_and_uses_their_events_again() {
    let (cuda, [first, second, other]) = machine();
    for _ in 0..3 {
        for stream in [first, second, other] {
            work(&cuda, stream);
        }
        wait_for(&*cuda, &[first, second]).unwrap();
        assert_eq!(cuda.pending(), 1, "the other's");
        cuda.synchronize_stream(other.stream()).unwrap();
    }
    assert_eq!((calls(&cuda, Call::EventCreate), calls(&cuda, Call::EventSynchronize)), (2, 6));
}

#[test]
fn a_wait_that_fails_says_so_and_the_event_of_the_other_is_used_again_as_well() {
    let (cuda, [first, second, _]) = machine();
    for nth in [1, 2] {
        cuda.fail("cuEventSynchronize", nth, codes::OUT_OF_MEMORY).unwrap();
        let error = wait_for(&*cuda, &[first, second]).unwrap_err();
        assert_eq!(error.field(), "cuEventSynchronize");
        cuda.clear_faults();
    }
    wait_for(&*cuda, &[first, second]).unwrap();
    assert_eq!(calls(&cuda, Call::EventCreate), 2);
}

#[test]
fn no_stream_is_touched_where_one_is_captured() {
    let (cuda, [first, second, _]) = machine();
    cuda.begin_capture(second.stream(), CaptureMode::Global).unwrap();
    let refused = wait_for(&*cuda, &[first, second]).unwrap_err();
    assert_eq!(refused.kind(), Kind::CaptureWait);
    assert_eq!(calls(&cuda, Call::EventRecord), 0);
    cuda.end_capture(second.stream()).unwrap();
}
