//! What one machine opens of another one's. Two in one process do as those of two processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::copies::Copies;
use cai_bridge::driver::ipc::{Ipc, Name};
use cai_bridge::driver::simulated::{ReportKind, Simulated, codes};
use cai_bridge::driver::{Driver, Event};

use super::{LENGTH, Machine, code};
use crate::alive::alive;

/// The machine whose memory and event are opened.
pub(super) struct Other {
    pub(super) machine: Machine,
    pub(super) memory: Name,
    pub(super) event: Name,
    pub(super) pointer: Name,
    pub(super) file: i32,
    recorded: Event,
}

impl Other {
    pub(super) fn new() -> Self {
        let cuda = Simulated::new(1);
        cuda.share_memory().unwrap();
        let x = cuda.alloc(0, LENGTH, MemoryKind::Device, "x").unwrap();
        let machine = Machine { cuda, x };
        let context = machine.cuda.primary_context(0).unwrap();
        let recorded = machine.cuda.create_shared_event(context).unwrap();
        let pool = machine.cuda.create_pool(0).unwrap();
        let stream = alive(machine.stream(false));
        let pooled = machine.cuda.allocate_from(pool, LENGTH, stream).unwrap();
        Self {
            memory: machine.cuda.name_memory(x).unwrap(),
            event: machine.cuda.name_event(recorded).unwrap(),
            pointer: machine.cuda.name_pointer(pooled).unwrap(),
            file: machine.cuda.export_pool(pool).unwrap(),
            machine,
            recorded,
        }
    }
}

/// Runs what `machine` is asked for meanwhile, as a process of its own does.
fn beside<R>(machine: &Arc<Simulated>, call: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                machine.run_needed();
                thread::sleep(Duration::from_micros(100));
            }
        });
        let answer = call();
        over.store(true, Ordering::Relaxed);
        answer
    })
}

#[test]
fn a_wait_for_another_machines_event_sees_its_work() {
    for waits in [false, true] {
        let (m, other) = (Machine::new(), Other::new());
        let (theirs, ours) = (other.machine.stream(false), m.stream(false));
        other.machine.fill(theirs, other.machine.x, 7);
        other.machine.cuda.record_on(other.recorded, theirs).unwrap();
        let opened = m.cuda.open_memory(&other.memory).unwrap();
        let event = m.cuda.open_event(&other.event, m.cuda.primary_context(0).unwrap()).unwrap();
        if waits {
            m.cuda.wait_on(ours, event).unwrap();
        }
        m.cuda.close_event(event).unwrap();
        let y = m.alloc("y");
        m.copy(ours, y, opened);
        beside(&other.machine.cuda, || m.cuda.synchronize_stream(ours).unwrap());
        assert_eq!(m.value(y) == 7, waits, "a missing wait shows in the values");
        m.cuda.close_memory(opened).unwrap();
        m.assert_clean();
    }
}

#[test]
fn memory_that_is_freed_while_it_is_open_elsewhere_is_reported() {
    for closes in [false, true] {
        let (m, other) = (Machine::new(), Other::new());
        let opened = m.cuda.open_memory(&other.memory).unwrap();
        assert_eq!(m.cuda.open_memory(&other.memory).unwrap(), opened);
        m.cuda.close_memory(opened).unwrap();
        if closes {
            m.cuda.close_memory(opened).unwrap();
        }
        other.machine.cuda.free(other.machine.x, None).unwrap();
        let found = if closes { vec![] } else { vec![ReportKind::InvalidFree] };
        assert_eq!(other.machine.kinds(), found);
    }
}

#[test]
fn a_pools_memory_is_freed_in_order_by_whoever_opened_it() {
    let (m, other) = (Machine::new(), Other::new());
    let pool = m.cuda.import_pool(other.file).unwrap();
    let opened = m.cuda.import_pointer(pool, &other.pointer).unwrap();
    let s = m.stream(false);
    m.fill(s, opened, 3);
    m.cuda.free_on(opened, alive(s)).unwrap();
    m.cuda.synchronize_stream(s).unwrap();
    m.assert_clean();
    m.fill(s, opened, 3);
    assert_eq!(m.kinds(), [ReportKind::UseAfterFree]);
}

#[test]
fn a_name_that_was_changed_opens_no_event() {
    let (m, other) = (Machine::new(), Other::new());
    let context = m.cuda.primary_context(0).unwrap();
    let mut name = other.event;
    // The offset, which then is that of no slot.
    name[24] ^= 4;
    assert_eq!(code(m.cuda.open_event(&name, context)), codes::INVALID_VALUE);
}

#[test]
fn what_does_not_fit_takes_no_room() {
    let other = Other::new();
    for bytes in [1 << 40, u64::MAX - (1 << 20)] {
        assert!(other.machine.cuda.alloc(0, bytes, MemoryKind::Device, "too large").is_err());
    }
    assert!(other.machine.cuda.alloc(0, LENGTH, MemoryKind::Device, "small").is_ok());
}

#[test]
fn what_a_machine_made_it_does_not_open() {
    let other = Other::new();
    let cuda = &other.machine.cuda;
    let context = cuda.primary_context(0).unwrap();
    assert_eq!(code(cuda.open_memory(&other.memory)), codes::INVALID_CONTEXT);
    assert_eq!(code(cuda.open_event(&other.event, context)), codes::INVALID_CONTEXT);
    assert_eq!(code(cuda.name_memory(other.machine.x + 1)), codes::INVALID_VALUE);
    let s = alive(other.machine.stream(false));
    let pooled = cuda.allocate(LENGTH, s).unwrap();
    let found = cuda.allocation(pooled + 1).unwrap();
    assert_eq!((found.range, found.is_legacy), ((pooled, LENGTH), false));
    assert_eq!(code(cuda.export_pool(found.pool.unwrap())), codes::INVALID_VALUE);
}
