//! When queued work runs, and where.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use cai_bridge::driver::Driver;
use cai_bridge::driver::simulated::{CaptureMode, codes};
use cai_bridge::stream::Stream;

use super::{Machine, code, misses_unless};

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(m: &Machine, log: &Log, stream: Stream, name: &'static str) {
    let log = Arc::clone(log);
    m.cuda.launch(stream, name, &[], &[], move |_| log.lock().unwrap().push(name)).unwrap();
}

fn taken(log: &Log) -> Vec<&'static str> {
    std::mem::take(&mut log.lock().unwrap())
}

#[test]
fn nothing_runs_at_launch_and_a_sync_runs_only_what_it_depends_on() {
    let (m, log) = (Machine::new(), Log::default());
    let (a, b, c) = (m.stream(false), m.stream(false), m.stream(false));
    note(&m, &log, a, "a before");
    m.order(a, b);
    note(&m, &log, a, "a after");
    note(&m, &log, c, "c");
    note(&m, &log, b, "b");
    assert_eq!((taken(&log), m.cuda.pending()), (vec![], 4));
    m.cuda.synchronize_stream(b).unwrap();
    assert_eq!((taken(&log), m.cuda.pending()), (vec!["a before", "b"], 2));
}

#[test]
fn the_legacy_stream_follows_what_was_pending_on_a_blocking_stream_that_was_destroyed() {
    type Follow = fn(&Machine) -> Stream;
    let follows: [Follow; 3] = [
        |_| Stream::Legacy,
        |m| {
            // The second action there as well as the first.
            m.cuda.launch(Stream::Legacy, "nothing", &[], &[], |_| ()).unwrap();
            Stream::Legacy
        },
        |m| {
            let other = m.stream(false);
            m.order(Stream::Legacy, other);
            other
        },
    ];
    for follow in follows {
        misses_unless(|m, y, blocking| {
            let handle = m.cuda.create_stream(0, blocking).unwrap();
            m.fill(Stream::Handle(handle), m.x, 7);
            m.cuda.destroy_stream(handle).unwrap();
            m.copy(follow(m), y, m.x);
        });
    }
}

#[test]
fn work_may_call_back_but_not_wait_for_the_device() {
    let m = Machine::new();
    let s = m.stream(false);
    let (sender, results) = mpsc::channel();
    let sender = Mutex::new(sender);
    m.cuda
        .launch(s, "outer", &[], &[], move |cuda| {
            let event = cuda.create_event().unwrap();
            cuda.record_on(event, s).unwrap();
            cuda.launch(s, "inner", &[], &[], |_| ()).unwrap();
            let refused = [
                cuda.synchronize_stream(s),
                cuda.synchronize_event(event),
                cuda.synchronize_context(),
                cuda.synchronize_all(),
                cuda.run_all(),
            ];
            sender.lock().unwrap().send(refused.map(code)).unwrap();
        })
        .unwrap();
    m.cuda.synchronize_stream(s).unwrap();
    assert_eq!(results.recv().unwrap(), [codes::NOT_PERMITTED; 5]);
    assert_eq!(m.cuda.pending(), 1, "launched from inside, so after the point that was waited for");
}

#[test]
fn one_piece_of_work_runs_at_a_time_whoever_waits() {
    let m = Machine::new();
    let inside = Arc::new(Mutex::new(()));
    for _ in 0..64 {
        let inside = Arc::clone(&inside);
        m.cuda
            .launch(m.stream(false), "alone", &[], &[], move |_| {
                let alone = inside.try_lock().unwrap();
                thread::yield_now();
                drop(alone);
            })
            .unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| m.cuda.synchronize_context().unwrap());
        }
    });
    assert_eq!(m.cuda.pending(), 0);
}

#[test]
fn others_queue_and_capture_while_a_thread_waits_for_the_context() {
    let m = Machine::new();
    let (s, other, captured) = (m.stream(false), m.stream(false), m.stream(true));
    let met = Arc::new(Barrier::new(2));
    let theirs = Arc::clone(&met);
    let spins = move |_: &_| {
        theirs.wait();
        theirs.wait();
    };
    m.cuda.launch(s, "spins until the other thread has launched", &[], &[], spins).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            met.wait();
            m.fill(other, m.x, 7);
            m.cuda.begin_capture(captured, CaptureMode::Global).unwrap();
            m.cuda.end_capture(captured).unwrap();
            met.wait();
        });
        m.cuda.synchronize_context().unwrap();
    });
    assert_eq!(m.cuda.pending(), 1, "queued after the wait began");
}

#[test]
fn work_that_panics_ends_and_lets_the_next_run() {
    let (m, log) = (Machine::new(), Log::default());
    let s = m.stream(false);
    m.cuda.launch(s, "panics", &[], &[], |_| panic!("as the test wants")).unwrap();
    note(&m, &log, s, "next");
    let cuda = Arc::clone(&m.cuda);
    assert!(thread::spawn(move || cuda.synchronize_stream(s)).join().is_err());
    m.cuda.synchronize_stream(s).unwrap();
    assert_eq!(taken(&log), ["next"]);
}

#[test]
fn what_work_holds_is_dropped_outside_the_lock() {
    struct CallsBack(Arc<cai_bridge::driver::simulated::Simulated>, mpsc::Sender<usize>);
    impl Drop for CallsBack {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.pending());
        }
    }
    let m = Machine::new();
    let (sender, dropped) = mpsc::channel();
    let sender = Mutex::new(sender);
    let launch = |stream| {
        let held = Mutex::new(CallsBack(Arc::clone(&m.cuda), sender.lock().unwrap().clone()));
        m.cuda.launch(stream, "holds", &[], &[], move |_| drop(held.lock()))
    };
    launch(Stream::Legacy).unwrap();
    m.cuda.synchronize_all().unwrap();
    assert_eq!(dropped.recv().unwrap(), 0, "run");
    launch(Stream::Legacy).unwrap();
    m.cuda.abandon();
    assert_eq!(dropped.recv().unwrap(), 0, "abandoned");
    launch(Stream::Handle(77)).unwrap_err();
    assert_eq!(dropped.recv().unwrap(), 0, "refused");
}

#[test]
fn abandoned_work_never_runs() {
    let (m, log) = (Machine::new(), Log::default());
    note(&m, &log, Stream::Legacy, "dropped");
    m.cuda.abandon();
    note(&m, &log, Stream::Legacy, "kept");
    m.cuda.synchronize_all().unwrap();
    assert_eq!(taken(&log), ["kept"]);
}
