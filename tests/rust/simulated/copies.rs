//! Copies by the driver's calls: values, order, and what is refused.

use std::sync::Arc;

use cai_bridge::copy_plan::{Block, Pitch};
use cai_bridge::device::MemoryKind;
use cai_bridge::driver::Driver;
use cai_bridge::driver::copies::{Copies, CopyRoute, Transfer};
use cai_bridge::driver::host::HostMemory;
use cai_bridge::driver::simulated::{CaptureMode, ReportKind, codes};
use cai_bridge::stream::Stream;

use super::{LENGTH, Machine, code, races_unless};
use crate::alive::alive;

/// A whole block of a machine.
pub(super) fn bytes(source: u64, target: u64, route: CopyRoute<'_>) -> Transfer<'_> {
    let pitch = Pitch { row: LENGTH, plane: 1 };
    let block = Block { width: LENGTH, rows: 1, planes: 1, source: pitch, target: pitch };
    Transfer { source, target, block, route }
}

/// Of a whole block, `planes` planes of two rows of 3 bytes, 5 bytes and 20 bytes apart.
pub(super) fn rows(source: u64, target: u64, planes: u64, route: CopyRoute<'_>) -> Transfer<'_> {
    let (from, to) = (Pitch { row: 5, plane: 4 }, Pitch { row: 3, plane: 2 });
    let block = Block { width: 3, rows: 2, planes, source: from, target: to };
    Transfer { source, target, block, route }
}

/// The bytes 0, 1, 2, ... in a machine's block.
fn count_up(m: &Machine) {
    let values: Vec<u8> = (0..LENGTH as u8).collect();
    m.cuda.host_write(m.x, &values, "values").unwrap();
}

#[test]
fn a_copy_is_work_in_the_order_of_its_stream() {
    races_unless(|m, ordered| {
        let (p, c, y) = (m.stream(false), m.stream(false), m.alloc("y"));
        m.fill(p, m.x, 7);
        if ordered {
            m.order(p, c);
        }
        m.cuda.copy(bytes(m.x, y, CopyRoute::Device), alive(c)).unwrap();
        assert_ne!(m.value(y), 7, "it runs late");
        m.cuda.wait_stream(alive(c)).unwrap();
        assert_eq!(m.value(y) == 7, ordered);
    });
}

#[test]
fn rows_and_planes_go_where_their_pitches_say() {
    let m = Machine::new();
    count_up(&m);
    for (planes, wanted) in
        [(1, vec![0, 1, 2, 5, 6, 7]), (2, vec![0, 1, 2, 5, 6, 7, 20, 21, 22, 25, 26, 27])]
    {
        let y = m.alloc("y");
        m.cuda.copy(rows(m.x, y, planes, CopyRoute::Device), alive(Stream::Legacy)).unwrap();
        m.cuda.synchronize_context().unwrap();
        assert_eq!(m.cuda.load(y, 6 * planes).unwrap(), wanted);
        assert_eq!(m.cuda.load(y + 6 * planes, 1).unwrap(), [0xCD], "and nowhere else");
    }
    m.assert_clean();
}

#[test]
fn a_copy_touches_its_rows_and_not_what_lies_between() {
    // Rows of x: 0..3 and 5..8; of y: 0..6.
    for (byte, of_x, races) in [(3, true, 0), (5, true, 1), (5, false, 1), (6, false, 0)] {
        let m = Machine::new();
        let (c, d, y) = (m.stream(false), m.stream(false), m.alloc("y"));
        m.cuda.copy(rows(m.x, y, 1, CopyRoute::Device), alive(c)).unwrap();
        let ptr = if of_x { m.x } else { y } + byte;
        let span = cai_bridge::driver::simulated::Span { ptr, len: 1 };
        m.cuda.launch(d, "write", &[], &[span], |_| ()).unwrap();
        m.assert_races(races);
    }
}

#[test]
fn a_copy_to_the_host_is_there_once_the_host_has_waited() {
    let m = Machine::new();
    count_up(&m);
    let (c, host) = (m.stream(false), Arc::new(HostMemory::filled(16, 0xEE).unwrap()));
    m.cuda.copy(rows(m.x, host.address() + 2, 2, CopyRoute::Host(&host)), alive(c)).unwrap();
    assert_eq!(m.cuda.pending(), 1);
    let held = Arc::downgrade(&host);
    drop(host);
    assert!(held.upgrade().is_some(), "work that is to come holds its memory");
    m.cuda.wait_stream(alive(c)).unwrap();
    assert!(held.upgrade().is_none());
    m.assert_clean();
}

#[test]
fn memory_in_the_order_of_a_stream_is_handed_out_again_on_it() {
    let m = Machine::new();
    let s = m.stream(false);
    let first = m.cuda.allocate(24, alive(s)).unwrap();
    let found = m.cuda.pointer(first).unwrap().unwrap();
    assert_eq!((found.ordinal, found.kind), (0, MemoryKind::Device));
    m.cuda.free_on(first, alive(s)).unwrap();
    assert_eq!(m.cuda.allocate(24, alive(s)).unwrap(), first);
    assert_ne!(m.cuda.allocate(24, alive(m.stream(false))).unwrap(), first);
    assert_eq!(code(m.cuda.allocate(0, alive(s))), codes::INVALID_VALUE);
    assert_eq!(code(m.cuda.free_on(first + 1, alive(s))), codes::INVALID_VALUE);
    assert_eq!(m.kinds(), [ReportKind::InvalidFree]);
}

#[test]
fn a_peer_copy_names_the_contexts_that_its_memory_is_in() {
    let m = Machine::new();
    let far = m.cuda.alloc(1, LENGTH, MemoryKind::Device, "far").unwrap();
    let (here, there) = (m.cuda.primary_context(0).unwrap(), m.cuda.primary_context(1).unwrap());
    m.fill(Stream::Legacy, m.x, 7);
    m.cuda
        .copy(bytes(m.x, far, CopyRoute::Peer { from: here, to: there }), alive(Stream::Legacy))
        .unwrap();
    let wrong = CopyRoute::Peer { from: there, to: here };
    assert_eq!(
        code(m.cuda.copy(bytes(m.x, far, wrong), alive(Stream::Legacy))),
        codes::INVALID_VALUE
    );
    m.cuda.synchronize_context().unwrap();
    assert_eq!(m.value(far), 7);
    m.assert_clean();
}

#[test]
fn a_copy_on_a_captured_stream_is_captured() {
    let m = Machine::new();
    let (s, y) = (m.stream(false), m.alloc("y"));
    m.cuda.begin_capture(s, CaptureMode::Relaxed).unwrap();
    m.cuda.copy(bytes(m.x, y, CopyRoute::Device), alive(s)).unwrap();
    assert_eq!(m.cuda.pending(), 0);
    m.cuda.end_capture(s).unwrap();
}
