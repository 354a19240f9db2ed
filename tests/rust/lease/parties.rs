//! The orders that an end makes of the streams of both sides.

use std::cell::Cell;
use std::sync::Arc;

use cai_bridge::driver::simulated::{Call, CaptureMode, Outcome, Simulated, codes};
use cai_bridge::driver::{BlockingCall, Driver, Handle};
use cai_bridge::error::{Kind, Result};
use cai_bridge::lease::{Parties, Settlement};
use cai_bridge::order::{Mark, is_reached};
use cai_bridge::stream::{Stream, Thread};

use crate::alive::{alive, calls, new};
use crate::events::{Events, count};

fn machine() -> Arc<Simulated> {
    Simulated::new(1)
}

fn settle(
    cuda: &Arc<Simulated>,
    users: &[Stream],
    producers: &[Stream],
    known: bool,
) -> Result<Settlement<Vec<Mark>>> {
    let named = |streams: &[Stream]| streams.iter().map(|stream| alive(*stream)).collect();
    let (users, producers) = (named(users), named(producers));
    let parties = Parties { users, producers, known };
    parties.settle(&Handle::Simulated(Arc::clone(cuda)), |call| call(), |_| {})
}

/// The marks of an end that was settled.
fn marks(settled: Settlement<Vec<Mark>>) -> Vec<Mark> {
    match settled {
        Settlement::Done => Vec::new(),
        Settlement::Until(marks) => {
            assert!(!marks.is_empty(), "there is something to wait for");
            marks
        }
        Settlement::Later => panic!("a capture is in the way"),
    }
}

/// The streams that were recorded and those that waited, in the order of the calls that were made.
fn made(cuda: &Simulated) -> Vec<(Call, Stream)> {
    let done = cuda.calls().into_iter().filter(|made| made.outcome == Outcome::Done);
    done.filter(|made| matches!(made.call, Call::EventRecord | Call::StreamWaitEvent))
        .map(|made| (made.call, made.arguments.stream.unwrap()))
        .collect()
}

#[test]
fn every_stream_of_the_producers_waits_for_every_user() {
    let cuda = machine();
    let [one, other, home, declared] = [(); 4].map(|()| new(&cuda, false));
    settle(&cuda, &[one, other], &[home, declared], true).unwrap();
    let edge = |from, to| [(Call::EventRecord, from), (Call::StreamWaitEvent, to)];
    let edges = [edge(one, home), edge(one, declared), edge(other, home), edge(other, declared)];
    assert_eq!(made(&cuda), edges.concat());
}

#[test]
fn a_user_is_marked_whether_or_not_it_needs_an_order() {
    let users: [fn(&Simulated) -> Stream; 3] =
        [|_| Stream::Legacy, |_| Stream::PerThread(Thread::current()), |cuda| new(cuda, true)];
    for user in users {
        let cuda = machine();
        let user = user(&cuda);
        cuda.launch(user, "read", &[], &[], |_| ()).unwrap();
        let marks = marks(settle(&cuda, &[user], &[Stream::Legacy], false).unwrap());
        let mark = (Call::EventRecord, user);
        if user == Stream::Legacy {
            assert_eq!(made(&cuda), [mark], "no wait");
        } else {
            assert_eq!(made(&cuda), [mark, (Call::StreamWaitEvent, Stream::Legacy), mark]);
        }
        assert!(!is_reached(&*cuda, &marks[0]).unwrap());
        cuda.run_all().unwrap();
        assert!(is_reached(&*cuda, &marks[0]).unwrap());
        assert!(matches!(settle(&cuda, &[user], &[Stream::Legacy], true), Ok(Settlement::Done)));
    }
}

#[test]
fn a_users_captured_work_is_not_ordered_and_marked_after_the_capture() {
    for known in [false, true] {
        let cuda = machine();
        let [user, producer] = [(); 2].map(|()| new(&cuda, false));
        cuda.begin_capture(user, CaptureMode::Global).unwrap();
        let (told, settled) = Events::by(|| settle(&cuda, &[user], &[producer], known));
        assert!(matches!(settled, Ok(Settlement::Done | Settlement::Later)));
        assert_eq!(matches!(settled, Ok(Settlement::Done)), known);
        // The graph uses the memory later: nothing may be freed yet.
        assert_eq!(settled.unwrap().is_made(), known);
        assert_eq!(made(&cuda), []);
        assert_eq!(count(&told, "why=\"the consumer's work is part of a graph\""), 1, "{told:?}");
        cuda.end_capture(user).unwrap();
        let settled = settle(&cuda, &[user], &[producer], known).unwrap();
        assert!(settled.is_made());
        assert_eq!(marks(settled).len(), usize::from(!known));
    }
}

#[test]
fn an_end_that_cannot_be_marked_beside_a_capture_is_settled_later_and_keeps_no_event() {
    let cuda = machine();
    let (user, beside) = (new(&cuda, false), new(&cuda, true));
    let [home, legacy] = [new(&cuda, false), Stream::Legacy];
    cuda.launch(user, "read", &[], &[], |_| ()).unwrap();
    cuda.begin_capture(beside, CaptureMode::Global).unwrap();
    let settled = settle(&cuda, &[user, legacy], &[legacy], false);
    assert_eq!(settled.unwrap_err().kind(), Kind::CaptureLegacy, "an order that has to be made");
    let settled = settle(&cuda, &[legacy], &[legacy], false).unwrap();
    assert!(matches!(settled, Settlement::Later));
    let settled = settle(&cuda, &[user, home], &[home], false).unwrap();
    assert_eq!(marks(settled).len(), 2, "where no capture is in the way");
    // A known producer needs no mark.
    assert!(matches!(settle(&cuda, &[legacy], &[legacy], true), Ok(Settlement::Done)));
    cuda.end_capture(beside).unwrap();
    let settled = settle(&cuda, &[user, legacy], &[legacy], false).unwrap();
    assert_eq!(marks(settled).len(), 2);
}

#[test]
fn the_marks_of_an_end_that_is_settled_later_are_forgotten() {
    let cuda = machine();
    let [user, stand_in] = [(); 2].map(|()| new(&cuda, false));
    let users = [user, stand_in].map(alive).into_iter().collect();
    let parties =
        Parties { users, producers: [alive(stand_in)].into_iter().collect(), known: false };
    let turns = Cell::new(0);
    let detach = |call: BlockingCall<'_>| {
        // Somebody begins a capture before the users' work is marked.
        if turns.replace(turns.get() + 1) == 1 {
            cuda.begin_capture(stand_in, CaptureMode::Relaxed).unwrap();
        }
        call();
    };
    let settled = parties.settle(&Handle::Simulated(Arc::clone(&cuda)), detach, |_| {});
    assert!(matches!(settled, Ok(Settlement::Later)) && turns.get() == 2);
    cuda.end_capture(stand_in).unwrap();
    assert_eq!(calls(&cuda, Call::EventCreate), 1);
    cuda.take_event(cuda.primary_context(0).unwrap()).unwrap();
    assert_eq!(calls(&cuda, Call::EventCreate), 1, "it is to spare");
}

#[test]
fn the_marks_are_forgotten_where_a_later_order_fails_and_their_events_used_again() {
    // Two users, two streams of the producer's: the third order is the second user's first.
    for (call, nth) in [("cuEventRecord", 3), ("cuStreamWaitEvent", 3), ("cuStreamWaitEvent", 4)] {
        let cuda = machine();
        let users = [(); 2].map(|()| new(&cuda, false));
        let producers = [(); 2].map(|()| new(&cuda, false));
        cuda.fail(call, nth, codes::OUT_OF_MEMORY).unwrap();
        let error = settle(&cuda, &users, &producers, false).unwrap_err();
        assert_eq!(error.field(), call);
        let before = calls(&cuda, Call::EventCreate);
        let context = cuda.primary_context(0).unwrap();
        for _ in 0..before {
            cuda.take_event(context).unwrap();
        }
        assert_eq!(calls(&cuda, Call::EventCreate), before, "{call} {nth}: all are to spare");
        cuda.take_event(context).unwrap();
        assert_eq!(calls(&cuda, Call::EventCreate), before + 1);
    }
}

#[test]
fn an_end_tells_of_each_order_why_it_was_not_needed() {
    let cuda = machine();
    let [one, other] = [(); 2].map(|()| new(&cuda, false));
    let told = |users: &[Stream], producers: &[Stream], known| {
        let (told, settled) = Events::by(|| settle(&cuda, users, producers, known));
        settled.unwrap();
        assert_eq!(
            count(&told, "door=\"release\""),
            users.len().max(1) * producers.len(),
            "{told:?}"
        );
        let of = |wanted: &str| count(&told, wanted);
        (of("order=\"made\""), of("why=\"same stream\""))
    };
    assert_eq!(told(&[one, other], &[one], true), (1, 1));
    assert_eq!(told(&[one], &[one, other], true), (1, 1));
    let own = Stream::PerThread(Thread::current());
    assert_eq!(told(&[own, new(&cuda, true), one], &[Stream::Legacy], true), (3, 0));
    assert_eq!(told(&[own, Stream::Legacy], &[Stream::Legacy], false), (1, 1));
}

#[test]
fn what_forked_in_a_capture_is_joined_and_nothing_else() {
    let cuda = machine();
    let blocking = new(&cuda, true);
    let [user, producer, outside] = [(); 3].map(|()| new(&cuda, false));
    cuda.begin_capture(blocking, CaptureMode::Global).unwrap();
    let event = cuda.create_event().unwrap();
    cuda.record_on(event, blocking).unwrap();
    for forked in [user, producer] {
        cuda.wait_on(forked, event).unwrap();
    }
    let before = made(&cuda).len();
    let named = |streams: &[Stream]| streams.iter().map(|stream| alive(*stream)).collect();
    // The driver cannot be asked of the legacy default stream beside a captured blocking one.
    let users = named(&[Stream::Legacy, outside, user]);
    let parties = Parties { users, producers: named(&[outside, producer]), known: true };
    parties.join(&Handle::Simulated(Arc::clone(&cuda)), |call| call()).unwrap();
    assert_eq!(
        made(&cuda)[before..],
        [(Call::EventRecord, user), (Call::StreamWaitEvent, producer)]
    );
}
