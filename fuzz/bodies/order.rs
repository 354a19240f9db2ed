//! Hand-overs between streams of the simulated device. An order that the bridge makes, or leaves
//! out, must really order.
//!
//! The device's own race check is the judge: it sees a write before the hand-over and a read after
//! it.
#![allow(unsafe_code)]

use std::sync::Arc;

use cai_bridge::capture::Direction;
use cai_bridge::device::{Context, MemoryKind, Place};
use cai_bridge::driver::simulated::{Call, CaptureMode, ReportKind, Simulated, Span, codes};
use cai_bridge::driver::{Driver, Handle};
use cai_bridge::error::{Error, Kind};
use cai_bridge::order::{Purpose, check_device, connect, is_reached, mark, within};
use cai_bridge::stream::{Alive, Stream};

use super::choices::{Bytes, Choices};

const STEPS: usize = 60;
const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

pub fn run(data: &[u8]) {
    let mut machine = Machine::new();
    let mut bytes = Bytes(data);
    for _ in 0..STEPS {
        if bytes.is_over() {
            break;
        }
        machine.step(&mut bytes);
    }
}

struct Machine {
    cuda: Arc<Simulated>,
    driver: Handle,
    streams: Vec<Alive<'static>>,
    /// The contexts that may be current; `None` means no context.
    contexts: Vec<Option<Context>>,
    block: u64,
    /// Whether this program may have spoiled a capture.
    spoiled: bool,
}

impl Machine {
    fn new() -> Self {
        let cuda = Simulated::new(2);
        let (mut streams, mut contexts) = (Vec::new(), vec![None]);
        for ordinal in 0..2 {
            let own = cuda.create_context(ordinal).unwrap();
            let primary = cuda.primary_context(ordinal).unwrap();
            contexts.extend([Some(own), Some(primary)]);
            let places = [Place::gpu(ordinal), Place::new(ordinal, Some(own))];
            for (place, context) in places.into_iter().zip([primary, own]) {
                streams.extend([Alive::legacy(place), Alive::per_thread(place)]);
                for blocking in [true, false] {
                    let stream = Stream::Handle(cuda.create_stream_in(context, blocking).unwrap());
                    // SAFETY: no stream is ever destroyed.
                    streams.push(unsafe { Alive::kept(stream, place) });
                }
            }
        }
        let block = cuda.alloc(0, 8, MemoryKind::Managed, "x").unwrap();
        Self {
            driver: Handle::Simulated(Arc::clone(&cuda)),
            cuda,
            streams,
            contexts,
            block,
            spoiled: false,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let (from, to) = (bytes.pick(&self.streams), bytes.pick(&self.streams));
        match bytes.below(7) {
            0 => drop(
                self.within(from, || self.cuda.begin_capture(from.stream(), bytes.pick(&MODES))),
            ),
            // A capture that cannot end here is spoiled.
            1 => {
                self.spoiled |= self.within(from, || self.cuda.end_capture(from.stream())).is_err()
            }
            2 => self.marked(from),
            3 => self.placed(from, to.place()),
            direction => self.handed_over(
                bytes,
                if direction == 4 { Direction::GiveBack } else { Direction::HandOver },
                from,
                to,
            ),
        }
    }

    /// Runs `call` with the stream's context current.
    fn within<R>(&self, stream: Alive<'_>, call: impl FnOnce() -> R) -> R {
        within(&*self.cuda, stream.place(), |_| Ok::<R, Error>(call())).unwrap()
    }

    /// The capture of each stream: its number, or none. An outer `None` if the stream cannot be
    /// used beside a capture.
    fn captures(&self) -> Vec<Option<Option<u64>>> {
        let part = |stream: &Alive<'_>| {
            self.within(*stream, || match self.cuda.is_capturing(stream.stream()) {
                Ok(true) => Some(self.cuda.capture_number(stream.stream()).ok()),
                Ok(false) => Some(None),
                Err(_) => None,
            })
        };
        self.streams.iter().map(part).collect()
    }

    fn is_free(&self, stream: Alive<'_>) -> bool {
        self.within(stream, || {
            self.cuda.is_capturing(stream.stream()).is_ok_and(|captured| !captured)
        })
    }

    fn launch(&self, stream: Alive<'_>, name: &str, writes: bool) -> Option<()> {
        let span = [Span { ptr: self.block, len: 8 }];
        let (reads, writes) = if writes { (&[][..], &span[..]) } else { (&span[..], &[][..]) };
        self.within(stream, || self.cuda.launch(stream.stream(), name, reads, writes, |_| ()).ok())
    }

    fn handed_over(
        &mut self,
        bytes: &mut Bytes<'_>,
        direction: Direction,
        from: Alive<'_>,
        to: Alive<'_>,
    ) {
        // A host wait for everything would spoil a capture.
        let free = self.captures().iter().all(|part| *part == Some(None));
        let fault =
            (bytes.byte() > 200).then(|| (bytes.pick(Call::ALL), 1 + u32::from(bytes.byte() % 3)));
        let current = self.contexts[bytes.below(self.contexts.len())];
        let captures = self.captures();
        // While anything is captured, a wait for all devices is refused.
        let quiet = free && captures.iter().all(|capture| *capture == Some(None));
        if quiet {
            self.cuda.synchronize_all().unwrap();
            self.launch(from, "write", true).unwrap();
        }
        self.cuda.take_reports();
        self.enter(current);
        if let Some((call, nth)) = fault.filter(|(call, _)| *call != Call::CtxPopCurrent) {
            self.cuda.fail(call.name(), nth, codes::OUT_OF_MEMORY).unwrap();
        }
        let door = Purpose { door: "fuzz", direction };
        let made = connect(door, &self.driver, from, to, |call| call());
        self.left(current);
        assert!(self.cuda.reports().is_empty(), "{:?}", self.cuda.reports());
        match &made {
            Err(error) => {
                assert_eq!(self.captures(), captures, "{error}");
                let refused = matches!(error.kind(), Kind::CaptureLegacy | Kind::CaptureOther);
                assert!(!refused || !free, "{error}");
                let code = error.driver_code().map(|failed| failed.code);
                let spoiled = self.spoiled && code == Some(codes::STREAM_CAPTURE_INVALIDATED);
                assert!(refused || fault.is_some() || (spoiled && !free), "{error}");
            }
            Ok(_) if quiet => {
                assert_eq!(self.captures(), captures);
                self.launch(to, "read", false).unwrap();
                let reports = self.cuda.take_reports();
                let raced = reports.iter().any(|report| report.kind == ReportKind::Race);
                assert!(!raced, "{from:?} {to:?} {reports:?}");
            }
            // A stream may join a capture. No capture may lose a stream or be spoiled.
            Ok(_) => {
                for (before, after) in captures.iter().zip(self.captures()) {
                    assert!(*before == after || *before == Some(None), "{before:?} {after:?}");
                }
            }
        }
    }

    fn enter(&self, current: Option<Context>) {
        self.cuda.unset_device();
        if let Some(context) = current {
            self.cuda.push_context(context).unwrap();
        }
    }

    /// Checks that the caller's context is current again.
    fn left(&self, current: Option<Context>) {
        self.cuda.clear_faults();
        assert_eq!(self.cuda.current_context().unwrap(), current);
        if current.is_some() {
            self.cuda.pop_context().unwrap();
        }
    }

    fn marked(&self, stream: Alive<'_>) {
        let free = self.is_free(stream);
        if free {
            self.cuda.run_all().unwrap();
            self.launch(stream, "work", true).unwrap();
        }
        let captures = self.captures();
        match mark(&*self.cuda, stream) {
            Err(error) => assert!(!free && error.kind() == Kind::CaptureLegacy, "{error}"),
            Ok(mark) => {
                assert!(
                    free && !is_reached(&*self.cuda, &mark).unwrap(),
                    "reached before its work"
                );
                self.cuda.run_all().unwrap();
                assert!(is_reached(&*self.cuda, &mark).unwrap());
            }
        }
        assert_eq!(self.captures(), captures, "a mark is nothing to a capture");
    }

    /// Checks that the handle of another device's stream is recognised for any place.
    fn placed(&self, stream: Alive<'_>, place: Place) {
        let elsewhere = match Alive::default_stream(stream.stream(), place) {
            Some(default) => default,
            // SAFETY: no stream is ever destroyed.
            None => unsafe { Alive::kept(stream.stream(), place) },
        };
        let right = stream.stream().handle() <= 2 || stream.place().ordinal == place.ordinal;
        match check_device(&*self.cuda, elsewhere) {
            Ok(()) => assert!(right),
            Err(error) => assert!(!right && error.kind() == Kind::StreamDevice, "{error}"),
        }
    }
}
