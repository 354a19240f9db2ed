//! A device's primary context that is reset: what goes with it, and what a program does too late.

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::Driver;
use cai_bridge::driver::copies::Copies;
use cai_bridge::driver::simulated::{Call, CaptureMode, ReportKind, codes};
use cai_bridge::stream::{Stream, Thread};

use super::{LENGTH, Machine, code, whole};
use crate::alive::{alive, calls};

#[test]
fn a_reset_runs_what_is_queued_first() {
    let m = Machine::new();
    let managed = m.cuda.alloc(0, LENGTH, MemoryKind::Managed, "managed").unwrap();
    m.fill(m.stream(false), managed, 7);
    m.cuda.reset_device(0).unwrap();
    assert_eq!((m.cuda.pending(), m.value(managed)), (0, 7));
    m.assert_clean();
}

#[test]
fn a_reset_from_inside_work_is_refused_and_takes_nothing_down() {
    let m = Machine::new();
    let s = m.stream(false);
    m.cuda
        .launch(s, "resets", &[], &[], |cuda| {
            assert_eq!(code(cuda.reset_device(0)), codes::NOT_PERMITTED);
        })
        .unwrap();
    m.cuda.synchronize_stream(s).unwrap();
    m.read(s, m.x);
    m.assert_clean();
    assert_eq!(code(m.cuda.reset_device(2)), codes::INVALID_DEVICE);
}

#[test]
fn the_streams_of_a_reset_context_are_dead() {
    let m = Machine::new();
    let (s, event) = (m.stream(false), m.cuda.create_event().unwrap());
    m.cuda.reset_device(0).unwrap();
    m.assert_clean();
    let calls = [
        code(m.cuda.launch(s, "work", &[], &[], |_| ())),
        code(m.cuda.synchronize_stream(s)),
        code(m.cuda.is_capturing(s)),
        code(m.cuda.record_on(event, s)),
        code(m.cuda.wait_on(s, event)),
        code(m.cuda.allocate(8, alive(s))),
    ];
    assert_eq!(calls, [codes::INVALID_HANDLE; 6]);
    assert_eq!(m.kinds(), [ReportKind::DeadStream; 6]);
}

#[test]
fn to_destroy_a_stream_that_went_with_its_context_is_refused_without_a_report() {
    let m = Machine::new();
    let (gone, before) = (m.stream(false).handle(), m.stream(true).handle());
    m.cuda.destroy_stream(before).unwrap();
    for _ in 0..2 {
        m.cuda.reset_device(0).unwrap();
        assert_eq!(code(m.cuda.destroy_stream(gone)), codes::CONTEXT_IS_DESTROYED);
    }
    m.assert_clean();
    // One that the program had destroyed itself is destroyed twice.
    assert_eq!(code(m.cuda.destroy_stream(before)), codes::INVALID_HANDLE);
    assert_eq!(m.kinds(), [ReportKind::DeadStream]);
}

#[test]
fn an_event_of_a_reset_context_is_a_report_and_an_error_whatever_is_done_with_it() {
    let m = Machine::new();
    let (s, event) = (m.stream(false), m.cuda.create_event().unwrap());
    m.cuda.record_on(event, s).unwrap();
    m.cuda.reset_device(0).unwrap();
    let s = m.stream(false);
    let captured = m.stream(false);
    m.cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
    let calls = [
        ("cuEventRecord", code(m.cuda.record_on(event, s))),
        ("cuStreamWaitEvent", code(m.cuda.wait_on(s, event))),
        ("cuStreamWaitEvent", code(m.cuda.wait_external_on(s, event))),
        ("cuStreamWaitEvent", code(m.cuda.wait_external_on(captured, event))),
        ("cuEventQuery", code(m.cuda.query_event(event))),
        ("cuEventSynchronize", code(m.cuda.synchronize_event(event))),
    ];
    let reports = m.cuda.take_reports();
    assert_eq!(reports.len(), calls.len());
    for ((call, code), report) in calls.into_iter().zip(reports) {
        assert_eq!((code, report.kind), (codes::INVALID_HANDLE, ReportKind::DeadEvent), "{call}");
        let wanted = format!("dead event: '{call}' on an event of device 0: its context was reset");
        assert!(report.message.starts_with(&wanted), "{report}");
    }
    m.cuda.end_capture(captured).unwrap();
}

#[test]
fn a_handle_names_the_event_that_was_made_with_it_in_whatever_life() {
    let m = Machine::new();
    let first = m.cuda.create_event().unwrap();
    m.cuda.reset_device(0).unwrap();
    let second = m.cuda.create_event().unwrap();
    for event in [first, second] {
        assert_eq!(m.cuda.event(event.handle).unwrap(), event);
    }
    assert_eq!(code(m.cuda.event(77)), codes::INVALID_HANDLE);
    assert!(first.context == second.context && first.handle != second.handle);
    // Whatever life a program takes it for, it is of the one that it was made in.
    let mistaken = cai_bridge::driver::Event { life: second.life, ..first };
    assert_eq!(code(m.cuda.query_event(mistaken)), codes::INVALID_HANDLE);
    assert_eq!(m.kinds(), [ReportKind::DeadEvent]);
}

#[test]
fn the_memory_of_a_reset_context_is_gone_and_managed_memory_stays() {
    let m = Machine::new();
    let pinned = m.cuda.alloc(0, LENGTH, MemoryKind::Host, "pinned").unwrap();
    let managed = m.cuda.alloc(0, LENGTH, MemoryKind::Managed, "managed").unwrap();
    let pooled = m.cuda.alloc_from_pool(Stream::Legacy, LENGTH, "pooled").unwrap();
    let elsewhere = m.cuda.alloc(1, LENGTH, MemoryKind::Device, "elsewhere").unwrap();
    m.cuda.reset_device(0).unwrap();
    for gone in [m.x, pinned, pooled] {
        assert_eq!(m.cuda.pointer(gone).unwrap(), None);
        assert_eq!(code(m.cuda.load(gone, 1)), codes::ILLEGAL_ADDRESS);
        m.cuda.launch(Stream::Legacy, "late", &[whole(gone)], &[], |_| ()).unwrap();
    }
    assert_eq!(m.kinds(), [ReportKind::OutOfBounds; 3]);
    for kept in [managed, elsewhere] {
        assert!(m.cuda.pointer(kept).unwrap().is_some());
        m.fill(Stream::Legacy, kept, 7);
    }
    assert_eq!(m.kinds().len(), 3);
}

#[test]
fn to_free_what_went_with_its_context_is_refused_without_a_report() {
    let m = Machine::new();
    let pinned = m.cuda.alloc(0, LENGTH, MemoryKind::Host, "pinned").unwrap();
    let pooled = m.cuda.alloc_from_pool(m.stream(false), LENGTH, "pooled").unwrap();
    let copy = m.cuda.allocate(LENGTH, alive(m.stream(false))).unwrap();
    m.cuda.reset_device(0).unwrap();
    for gone in [m.x, pinned, pooled] {
        for on in [None, Some(m.stream(false)), Some(Stream::Legacy)] {
            assert_eq!(code(m.cuda.free(gone, on)), codes::CONTEXT_IS_DESTROYED);
        }
    }
    assert_eq!(code(m.cuda.free_on(copy, alive(Stream::Legacy))), codes::CONTEXT_IS_DESTROYED);
    m.assert_clean();
    // What was never there is a fault of the program's all the same.
    assert_eq!(code(m.cuda.free(0x1000, None)), codes::INVALID_VALUE);
    assert_eq!(m.kinds(), [ReportKind::InvalidFree]);
}

#[test]
fn a_context_that_was_reset_has_the_same_address_and_another_life() {
    let m = Machine::new();
    let context = m.cuda.primary_context(0).unwrap();
    let mut lives = vec![m.cuda.on_device(1, || m.cuda.create_event()).unwrap().life];
    for reset in 0..4 {
        m.cuda.clear_calls();
        assert_eq!(m.cuda.primary_context(0).unwrap(), context);
        let asked_again = usize::from(reset > 0);
        assert_eq!(calls(&m.cuda, Call::PrimaryCtxRetain), asked_again);
        let life = m.cuda.life(context).unwrap();
        assert_eq!(m.cuda.take_event(context).unwrap().life, life);
        assert!(!lives.contains(&life), "{life:?} of {lives:?}");
        lives.push(life);
        m.cuda.reset_device(0).unwrap();
    }
    let other = m.cuda.primary_context(1).unwrap();
    assert_eq!(m.cuda.life(other).unwrap(), lives[0], "another's is as it was");
    let unknown = cai_bridge::device::Context(77.try_into().unwrap());
    assert_eq!(code(m.cuda.life(unknown)), codes::INVALID_CONTEXT);
}

#[test]
fn the_default_streams_of_the_next_life_are_others_and_ordered_with_its_blocking_streams() {
    let own = Stream::PerThread(Thread::current());
    for name in [Stream::Legacy, own] {
        for blocking in [false, true] {
            let m = Machine::new();
            m.fill(name, m.x, 1);
            m.cuda.reset_device(0).unwrap();
            let (x, s) = (m.alloc("new x"), m.stream(blocking));
            m.fill(s, x, 7);
            m.read(Stream::Legacy, x);
            m.read(name, x);
            m.assert_races(if blocking { 0 } else { 2 });
            // The thread's own is one of the blocking streams again.
            m.fill(own, x, 8);
            m.order(s, Stream::Legacy);
            m.cuda.take_reports();
            m.read(Stream::Legacy, x);
            m.assert_clean();
        }
    }
}

#[test]
fn a_capture_that_went_with_its_context_is_in_nobodys_way() {
    for blocking in [false, true] {
        let m = Machine::new();
        let captured = m.stream(blocking);
        m.cuda.begin_capture(captured, CaptureMode::Global).unwrap();
        m.cuda.reset_device(0).unwrap();
        m.cuda.synchronize_context().unwrap();
        m.cuda.synchronize_stream(Stream::Legacy).unwrap();
    }
}
