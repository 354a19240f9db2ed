//! What orders two operations, and what does not.

use std::thread;

use cai_bridge::driver::Driver;
use cai_bridge::driver::simulated::{AccessKind, FREED, Span};
use cai_bridge::stream::{Stream, Thread};

use super::{Machine, misses_unless, races_unless, whole};

#[test]
fn a_stream_orders_its_own_work() {
    let m = Machine::new();
    let s = m.stream(false);
    let y = m.alloc("y");
    m.fill(s, m.x, 7);
    m.copy(s, y, m.x);
    m.fill(s, m.x, 8);
    m.cuda.run_all().unwrap();
    m.assert_clean();
    assert_eq!((m.value(y), m.value(m.x)), (7, 8));
}

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
fn two_reads_never_race() {
    let m = Machine::new();
    m.read(m.stream(false), m.x);
    m.read(m.stream(false), m.x);
    m.assert_clean();
}

#[test]
fn accesses_to_different_bytes_never_race() {
    for (start, races) in [(16, 0), (15, 1)] {
        let m = Machine::new();
        let span = |start, len| [Span { ptr: m.x + start, len }];
        m.cuda.launch(m.stream(false), "low", &[], &span(0, 16), |_| ()).unwrap();
        m.cuda.launch(m.stream(false), "high", &[], &span(start, 16), |_| ()).unwrap();
        m.assert_races(races);
    }
}

#[test]
fn an_empty_access_is_none() {
    let m = Machine::new();
    m.fill(m.stream(false), m.x, 1);
    m.cuda.launch(m.stream(false), "nothing", &[Span { ptr: m.x, len: 0 }], &[], |_| ()).unwrap();
    m.assert_clean();
}

#[test]
fn an_order_of_streams_is_transitive() {
    races_unless(|m, complete| {
        let (a, b, c) = (m.stream(false), m.stream(false), m.stream(false));
        m.fill(a, m.x, 1);
        m.order(a, b);
        if complete {
            m.order(b, c);
        }
        m.read(c, m.x);
    });
}

#[test]
fn an_event_covers_what_was_queued_before_its_record_only() {
    races_unless(|m, before| {
        let (p, c) = (m.stream(false), m.stream(false));
        let event = m.cuda.create_event().unwrap();
        if before {
            m.fill(p, m.x, 1);
        }
        m.cuda.record_on(event, p).unwrap();
        if !before {
            m.fill(p, m.x, 1);
        }
        m.cuda.wait_on(c, event).unwrap();
        m.read(c, m.x);
    });
}

#[test]
fn a_wait_covers_what_is_queued_after_it_only() {
    races_unless(|m, after| {
        let (p, c) = (m.stream(false), m.stream(false));
        m.fill(p, m.x, 1);
        if !after {
            m.read(c, m.x);
        }
        m.order(p, c);
        if after {
            m.read(c, m.x);
        }
    });
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
fn a_wait_on_an_event_that_was_never_recorded_does_nothing() {
    let m = Machine::new();
    let (p, c) = (m.stream(false), m.stream(false));
    m.fill(p, m.x, 7);
    let event = m.cuda.create_event().unwrap();
    m.cuda.wait_on(c, event).unwrap();
    m.read(c, m.x);
    m.assert_races(1);
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
fn work_on_the_legacy_stream_orders_blocking_streams_among_each_other() {
    races_unless(|m, between| {
        let (a, b) = (m.stream(true), m.stream(true));
        m.fill(a, m.x, 7);
        if between {
            m.cuda.launch(Stream::Legacy, "nothing", &[], &[], |_| ()).unwrap();
        }
        m.read(b, m.x);
    });
}

#[test]
fn an_event_on_the_legacy_stream_follows_all_blocking_streams() {
    races_unless(|m, blocking| {
        let (p, c) = (m.stream(blocking), m.stream(false));
        m.fill(p, m.x, 7);
        m.order(Stream::Legacy, c);
        m.read(c, m.x);
    });
}

#[test]
fn a_wait_on_the_legacy_stream_holds_blocking_streams_back() {
    races_unless(|m, blocking| {
        let (p, c) = (m.stream(false), m.stream(blocking));
        m.fill(p, m.x, 7);
        m.order(p, Stream::Legacy);
        m.read(c, m.x);
    });
}

#[test]
fn each_context_has_a_legacy_stream_of_its_own() {
    races_unless(|m, same| {
        let p = m.stream(true);
        m.fill(p, m.x, 7);
        m.cuda.set_device(i32::from(!same)).unwrap();
        m.read(Stream::Legacy, m.x);
    });
}

#[test]
fn a_context_that_is_not_primary_has_a_legacy_stream_of_its_own() {
    let m = Machine::new();
    let other = m.cuda.create_context(0).unwrap();
    m.fill(Stream::Legacy, m.x, 7);
    m.cuda.push_context(other).unwrap();
    m.read(Stream::Legacy, m.x);
    m.cuda.pop_context().unwrap();
    m.assert_races(1);
    m.read(Stream::Legacy, m.x);
    m.assert_races(1);
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
fn a_launch_comes_after_what_the_host_did_before() {
    races_unless(|m, before| {
        let s = m.stream(false);
        if before {
            m.cuda.host_write(m.x, &[1; 64], "init").unwrap();
        }
        m.read(s, m.x);
        if !before {
            m.cuda.host_write(m.x, &[1; 64], "init").unwrap();
        }
    });
}

#[test]
fn every_host_sync_orders_the_host_after_the_device() {
    type Sync = fn(&Machine, Stream);
    let syncs: [(&str, Sync, usize); 6] = [
        ("none", |_, _| (), 1),
        ("stream", |m, s| m.cuda.synchronize_stream(s).unwrap(), 0),
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
fn a_host_sync_covers_what_was_queued_since_the_last_one_and_what_ran_without_one() {
    let m = Machine::new();
    let s = m.stream(false);
    for value in 1..4 {
        m.fill(s, m.x, value);
        if value == 2 {
            m.cuda.run_all().unwrap();
        }
        m.cuda.synchronize_all().unwrap();
        assert_eq!(m.cuda.host_read(m.x, 1, "check").unwrap(), [value]);
        m.assert_clean();
        m.cuda.synchronize_all().unwrap();
    }
}

#[test]
fn the_host_sync_of_an_event_covers_what_the_event_covers() {
    let m = Machine::new();
    let (s, y) = (m.stream(false), m.alloc("y"));
    let event = m.cuda.create_event().unwrap();
    m.fill(s, m.x, 7);
    m.cuda.record_on(event, s).unwrap();
    m.fill(s, y, 8);
    m.cuda.synchronize_event(event).unwrap();
    assert_eq!(m.cuda.host_read(m.x, 1, "x").unwrap(), [7]);
    m.assert_clean();
    assert_eq!(m.cuda.host_read(y, 1, "y").unwrap(), [0xCD]);
    m.assert_races(1);
}

#[test]
fn the_sync_of_the_legacy_stream_covers_blocking_streams() {
    races_unless(|m, blocking| {
        m.fill(m.stream(blocking), m.x, 7);
        m.cuda.synchronize_stream(Stream::Legacy).unwrap();
        m.cuda.host_read(m.x, 1, "x").unwrap();
    });
}

#[test]
fn the_sync_of_a_blocking_stream_covers_the_legacy_streams_work_behind_its_own_only() {
    races_unless(|m, after| {
        let (blocking, y) = (m.stream(true), m.alloc("y"));
        m.fill(blocking, y, 1);
        m.fill(Stream::Legacy, m.x, 7);
        if after {
            m.fill(blocking, y, 2);
        }
        m.cuda.synchronize_stream(blocking).unwrap();
        m.cuda.host_read(m.x, 1, "x").unwrap();
    });
}

#[test]
fn the_sync_of_a_context_covers_that_context_only() {
    let m = Machine::new();
    let elsewhere = Stream::Handle(m.cuda.create_stream(1, false).unwrap());
    m.fill(elsewhere, m.x, 7);
    m.cuda.synchronize_context().unwrap();
    m.cuda.host_read(m.x, 1, "x").unwrap();
    m.assert_races(1);
    m.cuda.set_device(1).unwrap();
    m.cuda.synchronize_context().unwrap();
    assert_eq!(m.cuda.host_read(m.x, 1, "x").unwrap(), [7]);
    m.assert_races(1);
}

#[test]
fn an_event_query_makes_nothing_run_and_orders_the_host_where_it_says_yes() {
    let m = Machine::new();
    let s = m.stream(false);
    let event = m.cuda.create_event().unwrap();
    assert!(m.cuda.query_event(event).unwrap(), "never recorded");
    m.fill(s, m.x, 7);
    m.cuda.record_on(event, s).unwrap();
    assert!(!m.cuda.query_event(event).unwrap());
    assert_eq!(m.cuda.pending(), 1);
    m.cuda.run_all().unwrap();
    assert!(m.cuda.query_event(event).unwrap());
    m.cuda.host_read(m.x, 1, "x").unwrap();
    m.assert_clean();
}

#[test]
fn a_host_sync_orders_later_work_on_every_stream() {
    let m = Machine::new();
    let (p, c) = (m.stream(false), m.stream(false));
    m.fill(p, m.x, 7);
    m.cuda.synchronize_stream(p).unwrap();
    m.fill(c, m.x, 8);
    m.assert_clean();
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
fn two_operations_are_paired_once_and_by_their_writes() {
    let m = Machine::new();
    let in_place =
        |stream| m.cuda.launch(stream, "add", &[whole(m.x)], &[whole(m.x)], |_| ()).unwrap();
    in_place(m.stream(false));
    in_place(m.stream(false));
    m.assert_races(1);
    let report = &m.cuda.reports()[0];
    for side in [report.first.as_ref().unwrap(), &report.second] {
        assert_eq!(side.touched.as_ref().unwrap().access, AccessKind::Write);
    }
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
