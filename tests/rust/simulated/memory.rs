//! Allocations, frees, bounds.

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{FREED, FRESH, ReportKind, Span, codes};
use cai_bridge::driver::{Driver, PointerAttributes};
use cai_bridge::stream::Stream;

use super::{LENGTH, Machine, code, whole};

#[test]
fn memory_is_aligned_real_and_unlike_any_value() {
    let m = Machine::new();
    assert_eq!(m.x % 256, 0);
    assert_eq!(m.value(m.x), FRESH);
    m.cuda.host_write(m.x + 3, &[1, 2], "init").unwrap();
    assert_eq!(m.cuda.host_read(m.x + 2, 4, "check").unwrap(), [FRESH, 1, 2, FRESH]);
    m.assert_clean();
}

#[test]
fn no_bytes_are_the_pointer_0() {
    let m = Machine::new();
    assert_eq!(m.cuda.alloc(0, 0, MemoryKind::Device, "none").unwrap(), 0);
    assert_eq!(m.cuda.alloc_from_pool(Stream::Legacy, 0, "none").unwrap(), 0);
    m.cuda.free(0, None).unwrap();
    assert!(m.cuda.host_read(0, 0, "none").unwrap().is_empty());
    m.cuda.host_write(0, &[], "none").unwrap();
    m.assert_clean();
}

#[test]
fn a_pointer_says_what_memory_it_is_and_whose_anywhere_inside_it() {
    let m = Machine::new();
    let [here, there] = [0, 1].map(|ordinal| m.cuda.primary_context(ordinal).unwrap());
    let own = m.cuda.create_context(1).unwrap();
    let alloc = |kind| m.cuda.alloc(1, LENGTH, kind, "").unwrap();
    let cases = [
        (m.x, 0, MemoryKind::Device, Some(here)),
        (
            m.cuda.alloc_in(own, LENGTH, MemoryKind::Device, "").unwrap(),
            1,
            MemoryKind::Device,
            Some(own),
        ),
        (alloc(MemoryKind::Host), 1, MemoryKind::Host, Some(there)),
        (alloc(MemoryKind::Managed), 1, MemoryKind::Managed, None),
    ];
    for (ptr, ordinal, kind, context) in cases {
        let known = Some(PointerAttributes { ordinal, kind, context });
        assert_eq!([0, LENGTH - 1].map(|at| m.cuda.pointer(ptr + at).unwrap()), [known; 2]);
        assert_eq!(m.cuda.pointer(ptr + LENGTH).unwrap(), None);
        m.cuda.free(ptr, None).unwrap();
        assert_eq!(m.cuda.pointer(ptr).unwrap(), None);
    }
}

#[test]
fn a_device_that_is_not_there_has_no_memory() {
    let m = Machine::new();
    for ordinal in [-1, 2] {
        assert_eq!(code(m.cuda.alloc(ordinal, 8, MemoryKind::Device, "x")), codes::INVALID_DEVICE);
    }
    assert_eq!(code(m.cuda.alloc(0, u64::MAX, MemoryKind::Device, "x")), codes::OUT_OF_MEMORY);
}

#[test]
fn an_access_after_a_free_is_a_use_after_free_whoever_is_ordered() {
    for on_stream in [false, true] {
        let m = Machine::new();
        let s = m.stream(false);
        m.fill(s, m.x, 7);
        m.cuda.synchronize_stream(s).unwrap();
        m.cuda.free(m.x, on_stream.then_some(s)).unwrap();
        m.assert_clean();
        m.read(s, m.x);
        m.cuda.host_read(m.x, 1, "check").unwrap();
        assert_eq!(m.kinds(), [ReportKind::UseAfterFree; 2]);
        let place = if on_stream { "stream#1 (device 0, non-blocking)" } else { "host" };
        assert_eq!(
            m.cuda.reports()[0].message,
            format!(
                "use after free: 'free' (#2, {place}) frees x, then 'read' \
                 (#3, stream#1 (device 0, non-blocking)) reads x[0..64]: it was freed before"
            )
        );
    }
}

#[test]
fn a_free_from_the_host_races_with_pending_work() {
    for waited in [false, true] {
        let m = Machine::new();
        let (s, y) = (m.stream(false), m.alloc("y"));
        m.fill(s, m.x, 7);
        m.copy(s, y, m.x);
        if waited {
            m.cuda.synchronize_stream(s).unwrap();
        }
        m.cuda.free(m.x, None).unwrap();
        m.cuda.run_all().unwrap();
        // Both the fill's write and the copy's read are unordered with the free.
        m.assert_races(if waited { 0 } else { 2 });
        assert_eq!(
            m.value(m.x) == FREED,
            waited,
            "work that runs after the free writes freed memory"
        );
    }
}

#[test]
fn a_pool_hands_a_freed_block_out_again_at_once_for_its_stream() {
    let m = Machine::new();
    let (s, other) = (m.stream(false), m.stream(false));
    let a = m.cuda.alloc_from_pool(s, LENGTH, "a").unwrap();
    m.fill(s, a, 1);
    m.cuda.free(a, None).unwrap();
    assert!(m.cuda.pointer(a).unwrap().is_some(), "the pool's memory is the driver's");
    assert_ne!(m.cuda.alloc_from_pool(other, LENGTH, "elsewhere").unwrap(), a);
    assert_ne!(m.cuda.alloc_from_pool(s, LENGTH / 2, "shorter").unwrap(), a);
    assert_eq!(m.cuda.alloc_from_pool(s, LENGTH, "b").unwrap(), a);
    m.fill(s, a, 2);
    m.assert_clean();
    m.cuda.run_all().unwrap();
    assert_eq!(m.value(a), 2);
}

#[test]
fn work_elsewhere_on_a_block_that_its_pool_reuses_races() {
    for ordered in [false, true] {
        let m = Machine::new();
        let (p, c) = (m.stream(false), m.stream(false));
        let a = m.cuda.alloc_from_pool(p, LENGTH, "a").unwrap();
        m.fill(p, a, 1);
        m.order(p, c);
        m.copy(c, m.x, a);
        if ordered {
            m.order(c, p);
        }
        m.cuda.free(a, None).unwrap();
        let b = m.cuda.alloc_from_pool(p, LENGTH, "b").unwrap();
        m.fill(p, b, 2);
        m.cuda.run_all().unwrap();
        let messages: Vec<String> = m.cuda.reports().iter().map(ToString::to_string).collect();
        if ordered {
            assert_eq!(messages, [""; 0]);
            assert_eq!(m.value(m.x), 1);
        } else {
            assert_eq!(messages.len(), 2, "{messages:?}");
            assert!(messages[0].contains("reads a[0..64], then 'free'"), "{}", messages[0]);
            assert!(messages[1].contains("reads a[0..64], then 'fill'"), "{}", messages[1]);
            assert!(messages[1].contains("writes b[0..64]"), "{}", messages[1]);
            assert_eq!(m.value(m.x), 2, "the reader sees what the next owner wrote");
        }
    }
}

#[test]
fn a_free_that_cannot_be_is_refused_and_reported() {
    let m = Machine::new();
    m.cuda.free(m.x, None).unwrap();
    for (ptr, why) in
        [(m.x, "freed before"), (m.alloc("y") + 8, "start"), (0x1000, "nothing is allocated")]
    {
        assert_eq!(code(m.cuda.free(ptr, None)), codes::INVALID_VALUE);
        let report = m.cuda.take_reports().remove(0);
        assert_eq!(report.kind, ReportKind::InvalidFree);
        assert!(report.message.contains(why), "{report}");
    }
}

#[test]
fn an_access_past_the_end_or_outside_is_out_of_bounds() {
    let m = Machine::new();
    let s = m.stream(false);
    m.cuda.launch(s, "inside", &[whole(m.x)], &[], |_| ()).unwrap();
    m.assert_clean();
    m.cuda.launch(s, "past", &[Span { ptr: m.x + 1, len: LENGTH }], &[], |_| ()).unwrap();
    m.cuda.launch(s, "outside", &[Span { ptr: 0x1000, len: 4 }], &[], |_| ()).unwrap();
    assert_eq!(m.kinds(), [ReportKind::OutOfBounds; 2]);
    assert!(m.cuda.reports()[1].message.contains("outside every allocation"));
    assert_eq!(code(m.cuda.host_read(m.x, LENGTH + 1, "long")), codes::INVALID_VALUE);
    assert_eq!(code(m.cuda.store(m.x + LENGTH - 1, &[0, 0])), codes::ILLEGAL_ADDRESS);
}

#[test]
fn reports_have_no_addresses() {
    let run = || {
        let m = Machine::new();
        let unlabelled = m.cuda.alloc(0, 8, MemoryKind::Device, "").unwrap();
        m.fill(m.stream(false), m.x, 7);
        m.fill(m.stream(true), m.x, 8);
        m.cuda.free(unlabelled, None).unwrap();
        m.cuda.host_read(unlabelled, 8, "late").unwrap();
        let _ = m.cuda.free(m.x + 1, None);
        let _ = m.cuda.synchronize_stream(Stream::Handle(77));
        m.cuda.reports()
    };
    let first = run();
    assert_eq!(first.len(), 4);
    assert_eq!(first, run());
}
