//! What orders two operations, and what does not.

use std::thread;

use cai_bridge::driver::Driver;
use cai_bridge::driver::simulated::{AccessKind, FREED, Span};
use cai_bridge::stream::{Stream, Thread};

use super::{Machine, misses_unless, races_unless, whole};

#[test]
fn two_streams_are_unordered_until_an_event_orders_them() {
    misses_unless(|m, y, ordered| {
        let (p, c) = (m.stream(false), m.stream(false));
        m.fill(p, m.x, 7);
        if ordered {
            m.order(p, c);
        }
        m.copy(c, y, m.x);
    });
}

#[test]
fn a_write_or_a_free_after_an_unordered_read_races_and_overwrites() {
    type Overwrite = fn(&Machine, Stream);
    let overwrites: [(Overwrite, u8); 2] =
        [(|m, p| m.fill(p, m.x, 8), 8), (|m, p| m.cuda.free(m.x, Some(p)).unwrap(), FREED)];
    for (overwrite, written) in overwrites {
        races_unless(|m, ordered| {
            let (p, c, y) = (m.stream(false), m.stream(false), m.alloc("y"));
            m.fill(p, m.x, 7);
            m.order(p, c);
            m.copy(c, y, m.x);
            if ordered {
                m.order(c, p);
            }
            overwrite(m, p);
            m.cuda.run_all().unwrap();
            assert_eq!(m.value(y), if ordered { 7 } else { written });
        });
    }
}

#[test]
fn an_event_may_be_recorded_again_as_soon_as_the_wait_is_queued() {
    misses_unless(|m, y, waited_before| {
        let (p, c, other) = (m.stream(false), m.stream(false), m.stream(false));
        let event = m.cuda.create_event().unwrap();
        m.fill(p, m.x, 7);
        m.cuda.record_on(event, p).unwrap();
        if waited_before {
            m.cuda.wait_on(c, event).unwrap();
        }
        m.cuda.record_on(event, other).unwrap();
        if !waited_before {
            m.cuda.wait_on(c, event).unwrap();
        }
        m.copy(c, y, m.x);
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_not_for_non_blocking_ones() {
    misses_unless(|m, y, blocking| {
        m.fill(m.stream(blocking), m.x, 7);
        m.copy(Stream::Legacy, y, m.x);
    });
}

#[test]
fn blocking_streams_wait_for_the_legacy_stream_and_non_blocking_ones_do_not() {
    for made_later in [false, true] {
        races_unless(|m, blocking| {
            let before = m.stream(blocking);
            m.fill(Stream::Legacy, m.x, 7);
            m.read(if made_later { m.stream(blocking) } else { before }, m.x);
        });
    }
}

#[test]
fn each_context_has_a_legacy_stream_of_its_own() {
    for here in [true, false] {
        let m = Machine::new();
        let primary = |ordinal| m.cuda.primary_context(ordinal).unwrap();
        let others = [primary(1), m.cuda.create_context(0).unwrap()];
        m.fill(m.stream(true), m.x, 7);
        for context in if here { [primary(0); 2] } else { others } {
            m.cuda.push_context(context).unwrap();
            m.read(Stream::Legacy, m.x);
        }
        m.assert_races(if here { 0 } else { 2 });
    }
}

#[test]
fn each_thread_has_a_default_stream_of_its_own_that_is_blocking() {
    let m = Machine::new();
    m.fill(Stream::PerThread(Thread::current()), m.x, 7);
    m.read(Stream::PerThread(Thread::current()), m.x);
    m.assert_clean();
    thread::scope(|scope| {
        scope.spawn(|| m.read(Stream::PerThread(Thread::current()), m.x));
    });
    m.assert_races(1);
    m.read(Stream::Legacy, m.x);
    m.assert_races(1);
}

#[test]
fn every_host_sync_orders_the_host_after_the_device() {
    type Sync = fn(&Machine, Stream);
    let synchronize_event = |m: &Machine, s| {
        let event = m.cuda.create_event().unwrap();
        m.cuda.record_on(event, s).unwrap();
        m.fill(s, m.alloc("y"), 8);
        m.cuda.synchronize_event(event).unwrap();
        assert_eq!(m.cuda.pending(), 1, "what was queued behind the event");
    };
    let syncs: [(&str, Sync, usize); 7] = [
        ("none", |_, _| (), 1),
        ("stream", |m, s| m.cuda.synchronize_stream(s).unwrap(), 0),
        ("event", synchronize_event, 0),
        ("another stream", |m, _| m.cuda.synchronize_stream(m.stream(false)).unwrap(), 1),
        ("context", |m, _| m.cuda.synchronize_context().unwrap(), 0),
        ("all", |m, _| m.cuda.synchronize_all().unwrap(), 0),
        ("run_all", |m, _| m.cuda.run_all().unwrap(), 1),
    ];
    for (name, sync, races) in syncs {
        let m = Machine::new();
        let s = m.stream(false);
        m.fill(s, m.x, 7);
        sync(&m, s);
        let bytes = m.cuda.host_read(m.x, 64, "check").unwrap();
        assert_eq!(m.cuda.reports().len(), races, "{name}");
        let ran = races == 0 || name == "run_all";
        assert_eq!(bytes, vec![if ran { 7 } else { 0xCD }; 64], "{name}");
    }
}

#[test]
fn an_event_query_makes_nothing_run_and_orders_the_host_where_it_says_yes() {
    races_unless(|m, runs| {
        let (s, event) = (m.stream(false), m.cuda.create_event().unwrap());
        assert!(m.cuda.query_event(event).unwrap(), "never recorded");
        m.fill(s, m.x, 7);
        m.cuda.record_on(event, s).unwrap();
        assert!(!m.cuda.query_event(event).unwrap());
        assert_eq!(m.cuda.pending(), 1);
        if runs {
            m.cuda.run_all().unwrap();
        }
        assert_eq!(m.cuda.query_event(event).unwrap(), runs);
        m.cuda.host_read(m.x, 1, "x").unwrap();
    });
}

#[test]
fn a_report_names_both_sides_in_one_line() {
    let m = Machine::new();
    let handle = m.cuda.create_stream(0, false).unwrap();
    let (p, c) = (Stream::Handle(handle), m.stream(true));
    m.cuda.name_stream(handle, "producer").unwrap();
    m.fill(p, m.x, 7);
    m.cuda.launch(c, "sum", &[Span { ptr: m.x + 8, len: 4 }], &[], |_| ()).unwrap();
    let report = m.cuda.take_reports().remove(0);
    assert_eq!(
        report.to_string(),
        "race: 'fill' (#1, stream 'producer' (device 0, non-blocking)) writes x[0..64], \
         then 'sum' (#2, stream#2 (device 0, blocking)) reads x[8..12]: nothing orders the one after the other"
    );
    let touched = report.second.touched.unwrap();
    assert_eq!((touched.access, touched.bytes), (AccessKind::Read, 8..12));
    assert_eq!(m.cuda.reports(), [], "taken");
}

#[test]
fn what_an_access_hides_it_stands_in_for() {
    // The first write is hidden by the second, half of it; a third races with both halves' last.
    let m = Machine::new();
    let (a, b) = (m.stream(false), m.stream(false));
    m.cuda.launch(a, "whole", &[], &[whole(m.x)], |_| ()).unwrap();
    m.cuda.launch(a, "half", &[], &[Span { ptr: m.x, len: 32 }], |_| ()).unwrap();
    m.cuda.launch(b, "late", &[whole(m.x)], &[], |_| ()).unwrap();
    let firsts: Vec<String> = m
        .cuda
        .reports()
        .iter()
        .map(|report| report.first.as_ref().unwrap().operation.to_string())
        .collect();
    assert_eq!(firsts, ["whole", "half"]);
}
