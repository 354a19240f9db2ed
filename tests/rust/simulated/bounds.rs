//! How much room a long program takes.

use cai_bridge::driver::simulated::REPORTED;
use cai_bridge::stream::Stream;

use super::Machine;

const STREAMS: usize = 1000;

/// Work on a stream that the legacy default stream's is ordered after, and after it.
fn work(m: &Machine, s: Stream) {
    m.fill(s, m.x, 1);
    m.order(s, Stream::Legacy);
    m.fill(Stream::Legacy, m.x, 2);
    m.order(Stream::Legacy, s);
}

#[test]
fn the_clocks_of_streams_that_the_host_has_waited_for_take_no_room() {
    for blocking in [false, true] {
        let m = Machine::new();
        for _ in 0..STREAMS {
            let s = m.stream(blocking);
            work(&m, s);
            m.cuda.synchronize_stream(s).unwrap();
        }
        m.assert_clean();
        let entries = m.cuda.clock_entries();
        assert!(entries < 4 * STREAMS, "{entries} for {STREAMS} streams");
    }
}

#[test]
fn the_clocks_of_destroyed_streams_take_no_room_once_the_host_has_waited() {
    let m = Machine::new();
    for _ in 0..STREAMS / 10 {
        let s = m.stream(true);
        work(&m, s);
        let Stream::Handle(handle) = s else { unreachable!() };
        m.cuda.destroy_stream(handle).unwrap();
    }
    let before = m.cuda.clock_entries();
    // As often as it takes to look at all of them once.
    for _ in 0..STREAMS {
        m.cuda.synchronize_all().unwrap();
    }
    m.assert_clean();
    assert!(before > STREAMS && m.cuda.clock_entries() == 0, "{before}");
}

#[test]
fn the_first_reports_are_kept_and_the_others_are_counted() {
    let m = Machine::new();
    let dead = Stream::Handle(7);
    for _ in 0..REPORTED + 5 {
        assert!(m.cuda.synchronize_stream(dead).is_err());
    }
    assert_eq!((m.cuda.reports().len(), m.cuda.reports_left_out()), (REPORTED, 5));
    assert_eq!((m.cuda.take_reports().len(), m.cuda.reports_left_out()), (REPORTED, 0));
    assert!(m.cuda.synchronize_stream(dead).is_err());
    assert_eq!((m.cuda.reports().len(), m.cuda.reports_left_out()), (1, 0));
}
