//! Calls of the simulated device in any order, wrong ones included: dead streams, freed memory,
//! spoiled captures, resets and failing calls. Two machines get the same calls, and must give the
//! same results.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::device::{Context, MemoryKind};
use cai_bridge::driver::simulated::{Call, CaptureMode, Graph, ReportKind, Simulated, Span, codes};
use cai_bridge::driver::{Driver, Event};
use cai_bridge::error::{Error, Kind};
use cai_bridge::stream::{Stream, Thread};

use super::choices::{Bytes, Choices};

const STEPS: usize = 200;
const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const KINDS: [MemoryKind; 3] = [MemoryKind::Device, MemoryKind::Host, MemoryKind::Managed];

pub fn run(data: &[u8]) {
    let [mut one, mut other] = [Machine::new(), Machine::new()];
    let (mut left, mut right) = (Bytes(data), Bytes(data));
    for _ in 0..STEPS {
        if left.is_over() {
            break;
        }
        let said = one.step(&mut left);
        assert_eq!(said, other.step(&mut right));
        assert_eq!(one.cuda.reports(), other.cuda.reports());
    }
    let said = [&one, &other].map(Machine::finish);
    assert_eq!(said[0], said[1]);
}

/// A machine, and everything ever made on it, alive or not.
struct Machine {
    cuda: Arc<Simulated>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    blocks: Vec<u64>,
    graphs: Vec<Graph>,
    contexts: Vec<Context>,
    /// How many owners exist: work that is queued or captured holds one each.
    held: Arc<AtomicUsize>,
    freed: bool,
    dead: bool,
}

/// An owner held by queued work. It must be dropped once, whether the work runs or not.
struct Owner(Arc<AtomicUsize>);

impl Owner {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Machine {
    fn new() -> Self {
        let cuda = Simulated::new(2);
        cuda.set_device(0).unwrap();
        let here = Stream::PerThread(Thread::current());
        let elsewhere = Stream::PerThread(Thread::numbered(u64::MAX));
        let contexts = (0..2).map(|at| cuda.primary_context(at).unwrap());
        let contexts = contexts.chain([Context(NonZeroUsize::MAX)]).collect();
        let streams = vec![Stream::Legacy, here, elsewhere, Stream::Handle(u64::MAX)];
        let blocks = vec![cuda.alloc(0, 16, MemoryKind::Device, "x").unwrap(), 0];
        let held = Arc::default();
        let (events, graphs) = (Vec::new(), Vec::new());
        Self { cuda, streams, events, blocks, graphs, contexts, held, freed: false, dead: false }
    }

    fn span(&self, bytes: &mut Bytes<'_>) -> Span {
        let ptr = bytes.pick(&self.blocks);
        Span { ptr: ptr.saturating_add(bytes.below(20) as u64), len: bytes.below(24) as u64 }
    }

    /// Makes one call. Returns a result that both machines must agree on, so it has no addresses.
    fn step(&mut self, bytes: &mut Bytes<'_>) -> Result<usize, Error> {
        let stream = bytes.pick(&self.streams);
        let event = (!self.events.is_empty()).then(|| bytes.pick(&self.events));
        let cuda = Arc::clone(&self.cuda);
        let said = match (bytes.below(32), event) {
            (0, _) => cuda
                .create_stream(bytes.below(3) as i32, bytes.flag())
                .map(|handle| self.streams.push(Stream::Handle(handle))),
            (1, _) => {
                self.dead = true;
                cuda.destroy_stream(stream.handle())
            }
            (2, _) => cuda.create_event().map(|event| self.events.push(event)),
            (3 | 4, Some(event)) => cuda.record_on(event, stream),
            (5 | 6, Some(event)) => cuda.wait_on(stream, event),
            (7, Some(event)) => cuda.wait_external_on(stream, event),
            (8, Some(event)) => return cuda.query_event(event).map(usize::from),
            (9, Some(event)) => cuda.synchronize_event(event),
            (10, _) => cuda.synchronize_stream(stream),
            (11, _) => cuda.synchronize_context(),
            (12, _) => cuda
                .alloc(bytes.below(3) as i32, bytes.below(40) as u64, bytes.pick(&KINDS), "")
                .map(|ptr| self.blocks.push(ptr)),
            (13, _) => cuda
                .alloc_from_pool(stream, bytes.below(3) as u64 * 16, "")
                .map(|ptr| self.blocks.push(ptr)),
            (14 | 15, _) => {
                self.freed = true;
                let on = bytes.flag().then_some(stream);
                cuda.free(bytes.pick(&self.blocks), on)
            }
            (16, _) => {
                let span = self.span(bytes);
                return cuda.host_read(span.ptr, span.len, "read").map(|read| {
                    assert_eq!(read.len() as u64, span.len);
                    read.iter().map(|byte| usize::from(*byte)).sum()
                });
            }
            (17, _) => {
                let span = self.span(bytes);
                cuda.host_write(span.ptr, &vec![bytes.byte(); span.len as usize], "write")
            }
            (18, _) => cuda.begin_capture(stream, bytes.pick(&MODES)),
            (19, _) => cuda.end_capture(stream).map(|graph| self.graphs.push(graph)),
            (20, _) if !self.graphs.is_empty() => {
                cuda.launch_graph(bytes.pick(&self.graphs), stream)
            }
            (21, _) => return cuda.is_capturing(stream).map(usize::from),
            (22, _) => cuda.set_device(bytes.below(3) as i32),
            (23, _) if bytes.byte() < 40 => {
                (self.dead, self.freed) = (true, true);
                cuda.reset_device(bytes.below(3) as i32)
            }
            (24, _) => cuda.push_context(bytes.pick(&self.contexts)),
            (25, _) => cuda.pop_context(),
            (26, _) => {
                let call = bytes.pick(Call::ALL);
                let nth = u32::from(bytes.byte() % 4);
                let code = bytes.pick(&[codes::OUT_OF_MEMORY, codes::INVALID_HANDLE]);
                let taken = if bytes.flag() {
                    cuda.suppress(call.name(), nth)
                } else {
                    cuda.fail(call.name(), nth, code)
                };
                assert!(
                    taken.is_ok()
                        || nth == 0
                        || matches!(
                            taken,
                            Err(cai_bridge::driver::simulated::FaultError::ResultNeeded(_))
                        )
                );
                Ok(())
            }
            (27, _) => cuda.run_all(),
            (28, _) => {
                let _ = cuda.exchange_capture_mode(bytes.pick(&MODES));
                Ok(())
            }
            (29, _) => cuda
                .create_context(bytes.below(3) as i32)
                .map(|context| self.contexts.push(context)),
            _ => self.launch(bytes, stream),
        };
        self.check();
        said.map(|()| cuda.pending())
    }

    /// Queues work that writes, and sometimes calls the driver, as a host function must not.
    fn launch(&self, bytes: &mut Bytes<'_>, stream: Stream) -> Result<(), Error> {
        let (reads, writes) = ([self.span(bytes)], [self.span(bytes)]);
        let held = Owner::new(&self.held);
        let (value, calls_back) = (bytes.byte(), bytes.byte() > 220);
        let [target] = writes;
        self.cuda.launch(stream, "work", &reads, &writes, move |cuda| {
            let _ = (&held, cuda.store(target.ptr, &vec![value; target.len as usize]));
            if calls_back {
                assert!(cuda.is_inside_work());
                // Refused, unless the call was suppressed.
                let _ = cuda.synchronize_stream(stream);
                cuda.run_all().unwrap_err();
            }
        })
    }

    /// Checks that each report is about something that can have happened.
    fn check(&self) {
        for report in self.cuda.reports() {
            let told = report.message.starts_with(report.kind.as_str());
            assert!(
                told && report.message.ends_with(|end: char| end.is_ascii_graphic()),
                "{report}"
            );
            match (report.kind, &report.first) {
                (ReportKind::Race, Some(first)) => {
                    assert!(first.sequence < report.second.sequence, "{report}")
                }
                (ReportKind::UseAfterFree, Some(_)) => assert!(self.freed, "{report}"),
                (ReportKind::DeadEvent, None) => assert!(self.dead, "{report}"),
                (
                    ReportKind::OutOfBounds | ReportKind::DeadStream | ReportKind::ForeignThread,
                    None,
                ) => {}
                (ReportKind::InvalidFree, _) => {}
                _ => panic!("{report}"),
            }
        }
    }

    /// Runs or drops all work, and checks that nothing holds an owner. Returns the number of
    /// reports.
    fn finish(&self) -> usize {
        self.cuda.clear_faults();
        self.cuda.forget_graphs();
        self.cuda.synchronize_all().unwrap();
        self.cuda.abandon();
        assert_eq!((self.cuda.pending(), self.held.load(Ordering::SeqCst)), (0, 0));
        let driver: &dyn Driver = &*self.cuda;
        for block in &self.blocks {
            assert!(driver.pointer(*block).is_ok_and(|found| *block > 0 || found.is_none()));
        }
        let unknown = self.cuda.free(8, None).unwrap_err();
        assert_eq!(unknown.kind(), Kind::DriverCall);
        self.cuda.reports().len()
    }
}
