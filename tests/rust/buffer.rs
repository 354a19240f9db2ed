//! Copies in memory of ours: in the order of their streams, between which GPUs, and what a failure leaves.
#![allow(unsafe_code)]

use std::sync::Arc;

use cai_bridge::buffer::{Buffer, on_host};
use cai_bridge::capture::Direction;
use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::{Device, MemoryKind, Place};
use cai_bridge::driver::simulated::{Call, CaptureMode, Outcome, Simulated, Span, codes};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::dtype::Dtype;
use cai_bridge::error::{Error, Kind, Result};
use cai_bridge::layout::Layout;
use cai_bridge::order::{Need, order};
use cai_bridge::stream::{Alive, Stream};

use crate::alive::{HERE, THERE, alive, at};

const BYTES: u64 = 24;
/// The bytes of [`Machine::reversed`].
const REVERSED: [u8; 12] = [12, 13, 14, 15, 6, 7, 8, 9, 0, 1, 2, 3];

fn bytes(ptr: u64, shape: &[i64], strides: &[i64], device: Device) -> Descriptor {
    let dtype = Dtype::from_dlpack(1, 8, 1).unwrap();
    let layout = Layout::from_elements(shape, Some(strides), 1).unwrap();
    Descriptor::new(ptr, dtype, layout, device, false).unwrap()
}

/// Two devices; `x`, memory of the first with the bytes 0, 1, 2, ... that a stream there is about to write.
struct Machine {
    cuda: Arc<Simulated>,
    driver: Handle,
    x: u64,
    producer: Alive<'static>,
}

impl Machine {
    fn of(kind: MemoryKind) -> Self {
        let cuda = Simulated::new(2);
        let x = cuda.alloc(0, BYTES, kind, "x").unwrap();
        let producer = alive(Stream::Handle(cuda.create_stream(0, false).unwrap()));
        let span = [Span { ptr: x, len: BYTES }];
        let values: Vec<u8> = (0..BYTES as u8).collect();
        let write = move |cuda: &Simulated| cuda.store(x, &values).unwrap();
        cuda.launch(producer.stream(), "write", &[], &span, write).unwrap();
        cuda.clear_calls();
        Self { driver: Handle::Simulated(Arc::clone(&cuda)), cuda, x, producer }
    }

    fn new() -> Self {
        Self::of(MemoryKind::Device)
    }

    /// One whose device has no pools.
    fn without_pools() -> Self {
        let m = Self::new();
        m.cuda.fail("cuMemAllocAsync", 1, codes::NOT_SUPPORTED).unwrap();
        m
    }

    fn stream(&self, place: Place) -> Alive<'static> {
        at(place, Stream::Handle(self.cuda.create_stream(place.ordinal, false).unwrap()))
    }

    /// Four rows of every second byte but two: three calls.
    fn reversed(&self) -> Descriptor {
        bytes(self.x + 12, &[3, 4], &[-6, 1], Device::cuda(0))
    }

    fn order(&self, direction: Direction, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        let need = Need { direction, from, to };
        order(&*self.cuda, need).map(drop)
    }

    /// A copy of `array` on `on`, after the producer and before what it does next.
    fn copy(&self, array: &Descriptor, on: Alive<'_>) -> Result<Buffer> {
        let before = || self.order(Direction::HandOver, self.producer, on);
        let made = Buffer::filled(&self.driver, array, on, before)?;
        self.order(Direction::GiveBack, on, self.producer)?;
        Ok(made)
    }

    fn made(&self, call: Call) -> usize {
        let done = self.cuda.calls().into_iter().filter(|made| made.outcome == Outcome::Done);
        done.filter(|made| made.call == call).count()
    }

    /// How many bytes of a copy are allocated and not freed.
    fn held(&self) -> usize {
        let taken = self.made(Call::MemAllocAsync) + self.made(Call::MemAlloc);
        taken - self.made(Call::MemFreeAsync) - self.made(Call::MemFree)
    }
}

#[test]
fn a_copy_is_compact_and_made_between_the_producers_work_before_and_after() {
    for ordered in [[true, true], [false, true], [true, false]] {
        let m = Machine::new();
        let on = m.stream(HERE);
        let edge = |wanted: bool, direction, from, to| {
            if wanted { m.order(direction, from, to) } else { Ok(()) }
        };
        let mut buffer = Buffer::filled(&m.driver, &m.reversed(), on, || {
            let made = [Call::MemAllocAsync, Call::MemcpyAsync].map(|call| m.made(call));
            assert_eq!(made, [1, 0], "memory is taken before anybody is made to wait");
            edge(ordered[0], Direction::HandOver, m.producer, on)
        })
        .unwrap();
        assert_eq!(m.made(Call::MemcpyAsync), 3);
        edge(ordered[1], Direction::GiveBack, on, m.producer).unwrap();
        let span = [Span { ptr: m.x, len: BYTES }];
        m.cuda.launch(m.producer.stream(), "again", &[], &span, |_| ()).unwrap();
        let races = m.cuda.reports().len();
        if ordered == [true, true] {
            assert_eq!((races, m.cuda.pending()), (0, 5), "the host waits for nothing");
            m.cuda.run_all().unwrap();
            assert_eq!(m.cuda.load(buffer.ptr(), 12).unwrap(), REVERSED);
        } else {
            assert_ne!(races, 0, "{ordered:?}");
        }
        assert_eq!(m.held(), 1);
        buffer.free(&m.driver, on).unwrap();
        assert_eq!(m.held(), 0);
    }
}

#[test]
fn a_failed_copy_frees_its_memory_in_the_order_of_its_stream() {
    // Each block of the copy, and each of the calls before it; without a call, a refusal.
    let failures = [
        ("cuMemcpyAsync", 1),
        ("cuMemcpyAsync", 3),
        ("cuEventRecord", 1),
        ("cuPointerGetAttributes", 1),
        ("", 1),
    ];
    for (call, nth) in failures {
        let m = Machine::new();
        let on = m.stream(if call == "cuPointerGetAttributes" { THERE } else { HERE });
        if !call.is_empty() {
            m.cuda.fail(call, nth, codes::OUT_OF_MEMORY).unwrap();
        }
        let error = Buffer::filled(&m.driver, &m.reversed(), on, || match call {
            "" => Err(Error::new(Kind::CaptureCopy, "a test")),
            _ => m.order(Direction::HandOver, m.producer, on),
        })
        .unwrap_err();
        assert!(error.field() == call || error.kind() == Kind::CaptureCopy, "{call} {error}");
        assert_eq!((m.made(Call::MemAllocAsync), m.held()), (1, 0), "{call} {nth}");
        // In the order of its stream: nothing races with what of the copy was queued.
        assert_eq!(m.cuda.reports(), [], "{call} {nth}");
    }
    // Where the memory cannot be freed either, the first error is told.
    let m = Machine::new();
    m.cuda.fail("cuMemcpyAsync", 2, codes::ILLEGAL_ADDRESS).unwrap();
    m.cuda.fail("cuMemFreeAsync", 1, codes::OUT_OF_MEMORY).unwrap();
    let error = m.copy(&m.reversed(), m.stream(HERE)).unwrap_err();
    assert_eq!((error.field(), error.driver_code().unwrap().code), ("cuMemcpyAsync", 700));
    assert_eq!(m.held(), 1);
}

#[test]
fn without_memory_nobody_is_made_to_wait() {
    let m = Machine::new();
    m.cuda.fail("cuMemAllocAsync", 1, codes::OUT_OF_MEMORY).unwrap();
    let called = || -> Result<()> { panic!("an order") };
    let error = Buffer::filled(&m.driver, &m.reversed(), m.stream(HERE), called).unwrap_err();
    let call = error.driver_code().unwrap().call;
    assert_eq!((error.field(), call), ("memory", "cuMemAllocAsync"));
    assert!(error.got().starts_with("12 bytes asked for (cuMemAllocAsync: "), "{error}");
    assert_eq!(m.made(Call::MemFreeAsync), 0);
}

#[test]
fn an_array_without_elements_needs_no_memory_and_no_driver() {
    let m = Machine::new();
    let (none, on) = (bytes(0, &[3, 0], &[0, 1], Device::cuda(0)), m.stream(HERE));
    let called = || -> Result<()> { panic!("an order") };
    let mut buffer = Buffer::filled(&m.driver, &none, on, called).unwrap();
    buffer.free(&m.driver, on).unwrap();
    assert_eq!((buffer.ptr(), m.cuda.calls().len()), (0, 0));
    assert!(on_host(&m.driver, &none, on).unwrap().is_none());
    assert!(m.cuda.calls().is_empty());
}

/// The calls that copy `x`, taken for memory of `said`, to the GPU of `place`.
fn copied_by(m: &Machine, said: Device, strides: &[i64], place: Place) -> Result<Vec<Call>> {
    let on = m.stream(place);
    let array = bytes(m.x, &[2, 4], strides, said);
    m.cuda.clear_calls();
    let buffer = m.copy(&array, on)?;
    let calls = m.cuda.calls().into_iter().map(|made| made.call);
    let copies = calls.filter(|call| call.name().starts_with("cuMemcpy")).collect();
    m.cuda.run_all().unwrap();
    assert_eq!(m.cuda.reports(), []);
    assert_eq!(m.cuda.device_of(buffer.ptr()), Some(place.ordinal));
    let row = u8::try_from(strides[0]).unwrap();
    let wanted: Vec<u8> = (0..4).chain(row..row + 4).collect();
    assert_eq!(m.cuda.load(buffer.ptr(), 8).unwrap(), wanted);
    Ok(copies)
}

#[test]
fn whether_a_copy_is_between_peers_is_by_what_the_driver_knows_of_the_pointer() {
    let managed = Device::new(MemoryKind::Managed, 0);
    let pinned = Device::new(MemoryKind::Host, 0);
    let near = (Call::MemcpyAsync, Call::Memcpy2DAsync);
    let far = (Call::MemcpyPeerAsync, Call::Memcpy3DPeerAsync);
    let cases = [
        // The memory, what it is said to be, where the copy is made, by which calls.
        (MemoryKind::Device, Device::cuda(0), HERE, near),
        (MemoryKind::Device, Device::cuda(0), THERE, far),
        // Every GPU reaches managed and pinned memory, whatever a caller declared it to be.
        (MemoryKind::Managed, managed, HERE, near),
        (MemoryKind::Managed, managed, THERE, near),
        (MemoryKind::Managed, Device::cuda(0), THERE, near),
        (MemoryKind::Managed, Device::cuda(1), HERE, near),
        (MemoryKind::Managed, Device::cuda(1), THERE, near),
        (MemoryKind::Host, pinned, THERE, near),
        (MemoryKind::Host, Device::cuda(0), THERE, near),
        (MemoryKind::Host, Device::cuda(1), HERE, near),
        // Memory of a GPU is that GPU's under whatever name.
        (MemoryKind::Device, managed, HERE, near),
        (MemoryKind::Device, managed, THERE, far),
        (MemoryKind::Device, pinned, THERE, far),
        (MemoryKind::Device, Device::new(MemoryKind::Host, 1), THERE, far),
        (MemoryKind::Device, Device::cuda(1), HERE, near),
    ];
    for (kind, said, place, (run, rows)) in cases {
        let m = Machine::of(kind);
        let case = format!("{kind:?} as {said:?} to {place:?}");
        assert_eq!(copied_by(&m, said, &[4, 1], place).unwrap(), [run], "{case}");
        assert_eq!(copied_by(&m, said, &[6, 1], place).unwrap(), [rows], "{case}");
    }
}

#[test]
fn peers_are_named_by_the_contexts_that_own_their_memory() {
    let m = Machine::new();
    // Memory of a context beside the first device's primary one.
    let context = m.cuda.create_context(0).unwrap();
    let x = m.cuda.alloc_in(context, BYTES, MemoryKind::Device, "own").unwrap();
    let on = m.stream(THERE);
    m.cuda.primary_context(1).unwrap();
    m.cuda.clear_calls();
    let array = bytes(x, &[8], &[1], Device::cuda(0));
    Buffer::filled(&m.driver, &array, on, || Ok(())).unwrap();
    assert_eq!(m.made(Call::MemcpyPeerAsync), 1);
    // Nobody had to ask for the primary context of the device that the memory is on.
    assert_eq!(m.made(Call::PrimaryCtxRetain), 0);
}

#[test]
fn a_copy_for_the_cpu_is_there_when_the_call_returns() {
    let m = Machine::new();
    let memory = on_host(&m.driver, &m.reversed(), m.producer).unwrap().unwrap();
    assert_eq!((m.cuda.pending(), m.made(Call::StreamSynchronize)), (0, 1));
    assert_eq!(m.made(Call::MemcpyDtoHAsync), 3);
    let first = std::ptr::with_exposed_provenance::<[u8; 12]>(memory.address() as usize);
    // SAFETY: memory of 12 bytes that the copy has written, and nothing is pending.
    let copied = unsafe { std::ptr::read(first) };
    assert_eq!(copied, REVERSED);
    assert_eq!(m.cuda.reports(), []);
}

#[test]
fn a_copy_for_the_cpu_that_fails_says_what_failed_and_is_waited_for_all_the_same() {
    for (call, waited) in [("cuStreamSynchronize", false), ("cuMemcpyDtoHAsync", true)] {
        let m = Machine::new();
        m.cuda.fail(call, 1, codes::OUT_OF_MEMORY).unwrap();
        let error = on_host(&m.driver, &m.reversed(), m.producer).unwrap_err();
        assert_eq!(error.field(), call);
        assert_eq!(m.cuda.pending() == 0, waited);
        m.cuda.run_all().unwrap();
    }
}

#[test]
fn on_a_device_without_pools_the_host_waits_before_memory_is_freed_and_not_during_a_capture() {
    let m = Machine::without_pools();
    let on = m.stream(HERE);
    let mut copy = m.copy(&m.reversed(), on).unwrap();
    assert_eq!((m.made(Call::MemAlloc), copy.is_pooled()), (1, false));
    m.cuda.begin_capture(on.stream(), CaptureMode::Global).unwrap();
    let refused = copy.free(&m.driver, on).unwrap_err();
    assert_eq!((refused.field(), m.made(Call::MemFree)), ("cuMemFree", 0));
    m.cuda.end_capture(on.stream()).unwrap();
    copy.free(&m.driver, on).unwrap();
    assert_eq!((m.made(Call::MemFree), m.made(Call::MemFreeAsync), m.held()), (1, 0, 0));
    // Freed without a wait, it would have been freed beside the copy.
    assert_eq!(m.cuda.reports(), []);
}

#[test]
fn a_buffer_is_freed_once_however_often_its_end_is_tried() {
    for m in [Machine::new(), Machine::without_pools()] {
        let on = m.stream(HERE);
        let mut copy = m.copy(&m.reversed(), on).unwrap();
        for _ in 0..3 {
            copy.free(&m.driver, on).unwrap();
            assert_eq!((copy.ptr(), m.made(Call::MemFreeAsync) + m.made(Call::MemFree)), (0, 1));
        }
        m.cuda.run_all().unwrap();
        assert_eq!(m.cuda.reports(), []);
    }
}
