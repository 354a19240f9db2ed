//! Graph capture and the launch of graphs.

use std::thread;

use cai_bridge::capture::CaptureStatus;
use cai_bridge::driver::Driver;
use cai_bridge::driver::copies::Copies;
use cai_bridge::driver::simulated::{CaptureMode, codes};
use cai_bridge::error::Result;
use cai_bridge::stream::{Stream, Thread};

use super::{Machine, code, misses_unless, races_unless};
use crate::alive::alive;

fn begin(m: &Machine, stream: Stream) {
    m.cuda.begin_capture(stream, CaptureMode::Global).unwrap();
}

#[test]
fn captured_work_runs_with_each_launch_of_the_graph_and_not_before() {
    let m = Machine::new();
    let (s, y) = (m.stream(false), m.alloc("y"));
    begin(&m, s);
    assert!(m.cuda.is_capturing(s).unwrap());
    m.copy(s, y, m.x);
    let graph = m.cuda.end_capture(s).unwrap();
    assert!(!m.cuda.is_capturing(s).unwrap());
    assert_eq!(m.cuda.pending(), 0);
    for value in [7, 8] {
        m.fill(s, m.x, value);
        m.cuda.launch_graph(graph, s).unwrap();
        m.cuda.synchronize_stream(s).unwrap();
        assert_eq!(m.value(y), value);
    }
    m.assert_clean();
}

#[test]
fn launches_of_one_graph_are_ordered_among_themselves() {
    for same in [false, true] {
        let m = Machine::new();
        let (a, b) = (m.stream(false), m.stream(false));
        let capture = || {
            begin(&m, a);
            m.read(a, m.x);
            m.order(a, b);
            m.fill(b, m.x, 7);
            m.order(b, a);
            m.cuda.end_capture(a).unwrap()
        };
        let first = capture();
        let second = if same { first } else { capture() };
        m.cuda.launch_graph(first, a).unwrap();
        m.cuda.launch_graph(second, b).unwrap();
        // The first launch's write stands in for its read, so each side of the second races with that.
        m.assert_races(if same { 0 } else { 2 });
    }
}

#[test]
fn a_record_and_a_wait_fork_a_capture_which_must_be_joined() {
    for (works, joins) in [(true, true), (true, false), (false, false)] {
        let m = Machine::new();
        let (a, b) = (m.stream(false), m.stream(false));
        begin(&m, a);
        m.order(a, b);
        assert!(m.cuda.is_capturing(b).unwrap());
        if works {
            m.fill(b, m.x, 7);
        }
        if joins {
            m.order(b, a);
            m.cuda.end_capture(a).unwrap();
        } else {
            assert_eq!(code(m.cuda.end_capture(a)), codes::STREAM_CAPTURE_UNJOINED);
        }
        assert!(!m.cuda.is_capturing(b).unwrap(), "over either way");
    }
}

#[test]
fn branches_of_a_graph_are_unordered_unless_the_capture_orders_them() {
    misses_unless(|m, y, ordered| {
        let (a, b) = (m.stream(false), m.stream(false));
        begin(m, a);
        m.order(a, b);
        m.fill(a, m.x, 7);
        if ordered {
            m.order(a, b);
        }
        m.copy(b, y, m.x);
        m.order(b, a);
        let graph = m.cuda.end_capture(a).unwrap();
        m.assert_clean();
        m.cuda.launch_graph(graph, a).unwrap();
    });
}

/// What is called while the first stream is captured, and the second is not.
type Attempt = fn(&Machine, Stream, Stream) -> Result<()>;

/// Waits on a stream for an event that is recorded on another now.
fn wait(m: &Machine, from: Stream, to: Stream) -> Result<()> {
    let event = m.cuda.create_event().unwrap();
    m.cuda.record_on(event, from).unwrap();
    m.cuda.wait_on(to, event)
}

#[test]
fn what_does_not_belong_into_a_capture_is_refused_and_spoils_it() {
    use CaptureMode::{Global, Relaxed};
    let cases: [(CaptureMode, u32, Attempt); 14] = [
        (Relaxed, codes::STREAM_CAPTURE_ISOLATION, |m, a, other| wait(m, other, a)),
        (Relaxed, codes::STREAM_CAPTURE_IMPLICIT, |m, a, _| wait(m, a, Stream::Legacy)),
        (Relaxed, codes::STREAM_CAPTURE_MERGE, |m, a, other| {
            begin(m, other);
            let merged = wait(m, a, other);
            assert_eq!(code(m.cuda.end_capture(other)), codes::STREAM_CAPTURE_INVALIDATED);
            merged
        }),
        (Relaxed, codes::STREAM_CAPTURE_UNMATCHED, |m, a, other| {
            m.order(a, other);
            m.cuda.end_capture(other).map(drop)
        }),
        (Global, codes::STREAM_CAPTURE_UNSUPPORTED, |m, _, _| {
            m.cuda.query_event(m.cuda.create_event().unwrap()).map(drop)
        }),
        (Global, codes::STREAM_CAPTURE_UNSUPPORTED, |m, _, _| {
            m.cuda.synchronize_event(m.cuda.create_event().unwrap())
        }),
        (Global, codes::STREAM_CAPTURE_UNSUPPORTED, |m, _, other| m.cuda.synchronize_stream(other)),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, a, _| m.cuda.synchronize_stream(a)),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, _, _| m.cuda.synchronize_all()),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, a, _| m.cuda.free(m.x, Some(a))),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, a, _| {
            m.cuda.allocate(8, alive(a)).map(drop)
        }),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, a, _| {
            m.cuda.is_blocking(alive(a)).map(drop)
        }),
        (Relaxed, codes::STREAM_CAPTURE_UNSUPPORTED, |m, a, other| {
            begin(m, other);
            let graph = m.cuda.end_capture(other).unwrap();
            m.cuda.launch_graph(graph, a)
        }),
        // Of a blocking stream: the legacy default stream would follow it.
        (Relaxed, codes::STREAM_CAPTURE_IMPLICIT, |m, _, _| {
            m.cuda.launch(Stream::Legacy, "implicit", &[], &[], |_| ())
        }),
    ];
    for (at, (mode, wanted, attempt)) in cases.into_iter().enumerate() {
        let m = Machine::new();
        let (a, other) = (m.stream(at == 13), m.stream(false));
        m.cuda.begin_capture(a, mode).unwrap();
        assert_eq!(code(attempt(&m, a, other)), wanted, "case {at}");
        let late = code(m.cuda.launch(a, "late", &[], &[], |_| ()));
        let ended = code(m.cuda.end_capture(a));
        assert_eq!([late, ended], [codes::STREAM_CAPTURE_INVALIDATED; 2], "case {at}");
        begin(&m, a);
        m.cuda.end_capture(a).unwrap();
    }
}

#[test]
fn questions_and_work_on_other_streams_spoil_nothing() {
    let m = Machine::new();
    let (a, p, c) = (m.stream(false), m.stream(false), m.stream(true));
    let pooled = m.cuda.alloc_from_pool(a, 8, "pooled").unwrap();
    let status = |stream| m.cuda.capture_status(alive(stream)).unwrap();
    begin(&m, a);
    m.cuda.pointer(m.x).unwrap();
    m.cuda.stream_context(alive(a)).unwrap();
    assert!(!m.cuda.is_blocking(alive(p)).unwrap());
    assert!(m.cuda.is_capturing(a).unwrap() && !m.cuda.is_capturing(Stream::Legacy).unwrap());
    assert!(matches!(status(a), CaptureStatus::Inside(_)));
    assert_eq!([p, Stream::Legacy].map(status), [CaptureStatus::Outside; 2]);
    assert!(m.cuda.is_reached(m.cuda.create_event().unwrap()).unwrap(), "never recorded");
    m.fill(p, m.x, 7);
    m.order(p, c);
    m.read(c, m.x);
    m.read(Stream::Legacy, m.x);
    m.cuda.free(pooled, None).unwrap();
    assert_eq!(code(m.cuda.begin_capture(a, CaptureMode::Global)), codes::ILLEGAL_STATE);
    assert_eq!(code(m.cuda.end_capture(p)), codes::ILLEGAL_STATE);
    m.cuda.end_capture(a).unwrap();
    begin(&m, c);
    assert_eq!(status(Stream::Legacy), CaptureStatus::Beside);
    assert_eq!(code(m.cuda.is_capturing(Stream::Legacy)), codes::STREAM_CAPTURE_IMPLICIT);
    m.cuda.end_capture(c).unwrap();
    m.assert_clean();
}

#[test]
fn the_modes_say_whose_unsafe_calls_spoil_a_capture() {
    // The mode of the capture, the mode of the thread that queries, whether it is another thread.
    let cases = [
        (CaptureMode::Global, CaptureMode::Global, true, true),
        (CaptureMode::Global, CaptureMode::Relaxed, true, false),
        (CaptureMode::Global, CaptureMode::Relaxed, false, false),
        (CaptureMode::Global, CaptureMode::ThreadLocal, true, false),
        (CaptureMode::ThreadLocal, CaptureMode::Global, true, false),
        (CaptureMode::ThreadLocal, CaptureMode::Global, false, true),
        (CaptureMode::Relaxed, CaptureMode::Global, true, false),
        (CaptureMode::Relaxed, CaptureMode::Global, false, false),
    ];
    for (capture, mine, elsewhere, spoils) in cases {
        let m = Machine::new();
        let (a, event) = (m.stream(false), m.cuda.create_event().unwrap());
        m.cuda.begin_capture(a, capture).unwrap();
        let query = || {
            let before = m.cuda.exchange_capture_mode(mine);
            let queried = m.cuda.query_event(event).is_err();
            assert_eq!(m.cuda.exchange_capture_mode(before), mine);
            queried
        };
        let refused = if elsewhere {
            thread::scope(|scope| scope.spawn(query).join().unwrap())
        } else {
            query()
        };
        let case = (capture, mine, elsewhere);
        assert_eq!(refused, spoils, "{case:?}");
        assert_eq!(m.cuda.end_capture(a).is_err(), spoils, "{case:?}");
    }
}

#[test]
fn the_wait_for_a_context_ends_no_capture_and_leaves_what_is_captured() {
    let captured: [fn(&Machine) -> Stream; 3] =
        [|m| m.stream(false), |m| m.stream(true), |_| Stream::PerThread(Thread::current())];
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        for (captured, elsewhere) in captured.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let m = Machine::new();
            let (a, other, y) = (captured(&m), m.stream(false), m.alloc("y"));
            m.fill(a, m.x, 1);
            m.cuda.begin_capture(a, mode).unwrap();
            m.fill(a, m.x, 7);
            m.fill(other, y, 8);
            if elsewhere {
                thread::scope(|scope| {
                    let waits = || {
                        m.cuda.set_device(0).unwrap();
                        m.cuda.synchronize_context().unwrap();
                    };
                    scope.spawn(waits).join().unwrap();
                });
            } else {
                m.cuda.synchronize_context().unwrap();
            }
            assert_eq!((m.value(m.x), m.value(y), m.cuda.pending()), (1, 8, 0));
            let graph = m.cuda.end_capture(a).unwrap();
            m.cuda.launch_graph(graph, a).unwrap();
            m.cuda.synchronize_context().unwrap();
            assert_eq!(m.value(m.x), 7);
            m.assert_clean();
        }
    }
}

#[test]
fn an_event_of_a_capture_can_be_recorded_again_afterwards_and_not_waited_for_outside() {
    let m = Machine::new();
    let (a, b, c) = (m.stream(false), m.stream(false), m.stream(false));
    let event = m.cuda.create_event().unwrap();
    begin(&m, a);
    m.cuda.record_on(event, a).unwrap();
    m.cuda.wait_on(b, event).unwrap();
    m.order(b, a);
    m.cuda.end_capture(a).unwrap();
    assert_eq!(code(m.cuda.wait_on(c, event)), codes::CAPTURED_EVENT);
    assert_eq!(code(m.cuda.query_event(event)), codes::CAPTURED_EVENT);
    m.fill(a, m.x, 7);
    m.cuda.record_on(event, a).unwrap();
    m.cuda.wait_on(c, event).unwrap();
    m.read(c, m.x);
    m.assert_clean();
}

#[test]
fn the_legacy_stream_is_not_captured_and_a_capture_ends_in_its_thread() {
    let m = Machine::new();
    let legacy = m.cuda.begin_capture(Stream::Legacy, CaptureMode::Relaxed);
    assert_eq!(code(legacy), codes::STREAM_CAPTURE_UNSUPPORTED);
    for (mode, wrong) in [(CaptureMode::ThreadLocal, true), (CaptureMode::Relaxed, false)] {
        let a = m.stream(false);
        m.cuda.begin_capture(a, mode).unwrap();
        let elsewhere =
            thread::scope(|scope| scope.spawn(|| m.cuda.end_capture(a)).join().unwrap());
        assert_eq!(elsewhere.is_err(), wrong);
        if wrong {
            assert_eq!(code(elsewhere), codes::STREAM_CAPTURE_WRONG_THREAD);
            m.cuda.end_capture(a).unwrap_err();
        }
    }
}

#[test]
fn an_external_wait_is_a_node_that_waits_for_the_latest_record_whenever_the_graph_runs() {
    races_unless(|m, recorded| {
        let (s, outside) = (m.stream(false), m.stream(false));
        let event = m.cuda.create_event().unwrap();
        m.fill(outside, m.x, 7);
        m.cuda.record_on(event, outside).unwrap();
        begin(m, s);
        m.cuda.wait_external_on(s, event).unwrap();
        m.read(s, m.x);
        let graph = m.cuda.end_capture(s).unwrap();
        m.cuda.launch_graph(graph, s).unwrap();
        m.assert_clean();
        // The second launch waits for what the event stands for then.
        m.cuda.synchronize_stream(s).unwrap();
        m.fill(outside, m.x, 8);
        if recorded {
            m.cuda.record_on(event, outside).unwrap();
        }
        m.cuda.launch_graph(graph, s).unwrap();
    });
}

#[test]
fn what_comes_before_an_external_wait_in_the_graph_does_not_wait() {
    let m = Machine::new();
    let (s, outside) = (m.stream(false), m.stream(false));
    let event = m.cuda.create_event().unwrap();
    m.fill(outside, m.x, 7);
    m.cuda.record_on(event, outside).unwrap();
    begin(&m, s);
    m.read(s, m.x);
    m.cuda.wait_external_on(s, event).unwrap();
    let graph = m.cuda.end_capture(s).unwrap();
    m.cuda.launch_graph(graph, s).unwrap();
    m.assert_races(1);
}

#[test]
fn each_capture_has_a_number_and_the_streams_that_fork_from_it_have_the_same() {
    let m = Machine::new();
    let (a, b, c) = (m.stream(false), m.stream(false), m.stream(false));
    begin(&m, a);
    begin(&m, c);
    m.order(a, b);
    let number = |stream| m.cuda.capture_number(stream).unwrap();
    assert_eq!(number(a), number(b));
    assert_ne!(number(a), number(c));
    assert_eq!(code(m.cuda.capture_number(m.stream(false))), codes::ILLEGAL_STATE);
}
