//! Simulates graph capture: which calls are allowed during a capture, and which invalidate ("spoil") it.
//!
//! Work launched on a stream under capture is recorded, not queued. By a wait for an event recorded on a stream under
//! capture, the capture can fork to a stream outside every capture. Before the capture ends, the stream that the
//! capture began on must wait for the work of each fork. Inside a capture a stream has a clock over the capture's own
//! lanes.
//!
//! A call that CUDA forbids during a capture returns CUDA's error. Many such calls also spoil the capture; ending a
//! spoiled capture fails.
//!
//! Not modelled: graph launches inside a capture (refused), external records, memory nodes.

use std::collections::HashMap;

use super::call_log::DriverResult;
use super::clock::{Clock, Lane};
use super::codes;
use super::entry_points::{Call, CallArguments};
use super::operation::{Node, Operation};
use super::stream_table::{CaptureId, CaptureMember, LegacyOrdering, StreamId};
use super::{MachineState, Simulated};
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// Which threads' unsafe calls invalidate a capture, as in `CUstreamCaptureMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    #[default]
    Global,
    ThreadLocal,
    Relaxed,
}

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) mode: CaptureMode,
    pub(super) origin: StreamId,
    pub(super) thread: Thread,
    pub(super) spoiled: bool,
    pub(super) times: Vec<u64>,
    pub(super) nodes: Vec<Node>,
}

impl Capture {
    fn step(&mut self, lane: Lane) -> u64 {
        let time = &mut self.times[lane.index()];
        *time = time.saturating_add(1);
        *time
    }

    pub(super) fn is_joined(&self, origin: &Clock) -> bool {
        self.times.iter().enumerate().all(|(lane, time)| origin.covers(Lane::numbered(lane), *time))
    }
}

#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) begun: usize,
    pub(super) open: HashMap<CaptureId, Capture>,
    modes: HashMap<Thread, CaptureMode>,
}

impl MachineState {
    pub(super) fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.streams.get(stream).member.as_ref().map(|member| member.capture)
    }

    fn spoil(&mut self, capture: CaptureId) {
        if let Some(capture) = self.captures.open.get_mut(&capture) {
            capture.spoiled = true;
        }
    }

    pub(super) fn spoil_capture_of(&mut self, stream: StreamId) {
        if let Some(capture) = self.capture_of(stream) {
            self.spoil(capture);
        }
    }

    /// If `stream` is captured, invalidates the capture and fails.
    pub(super) fn refuse_capturing(&mut self, stream: StreamId) -> DriverResult<()> {
        let Some(capture) = self.capture_of(stream) else { return Ok(()) };
        self.spoil(capture);
        Err(codes::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// If `stream` is captured, invalidates the capture and fails, like `cuStreamGetFlags` (H200, driver 580, 2026-11).
    pub(super) fn not_capturing(&mut self, stream: Stream) -> DriverResult<StreamId> {
        let id = self.native(stream)?;
        self.refuse_capturing(id)?;
        Ok(id)
    }

    /// If a capture is open, invalidates all captures and fails.
    pub(super) fn refuse_captures(&mut self) -> DriverResult<()> {
        self.captures.open.values_mut().for_each(|capture| capture.spoiled = true);
        if self.captures.open.is_empty() { Ok(()) } else { Err(codes::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Invalidates each capture whose mode, with this thread's mode, forbids unsafe calls of this thread. Fails if
    /// there is such a capture.
    pub(super) fn refuse_unsafe(&mut self) -> DriverResult<()> {
        let here = Thread::current();
        let mine = self.captures.modes.get(&here).copied().unwrap_or_default();
        let mut refused = false;
        for capture in self.captures.open.values_mut() {
            let reaches = match (mine, capture.mode) {
                (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
                (CaptureMode::Global, CaptureMode::Global) => true,
                (CaptureMode::ThreadLocal, _) | (_, CaptureMode::ThreadLocal) => {
                    capture.thread == here
                }
            };
            capture.spoiled |= reaches;
            refused |= reaches;
        }
        if refused { Err(codes::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// If `stream` is a legacy default stream: the capture of a blocking stream in the same context, if any.
    fn implicit(&self, stream: StreamId) -> Option<CaptureId> {
        let stream = self.streams.get(stream);
        if stream.ordering != LegacyOrdering::Legacy {
            return None;
        }
        self.blocking(stream.context).iter().find_map(|id| self.capture_of(*id))
    }

    /// If `stream` is a legacy default stream and a blocking stream of its context is captured, invalidates that
    /// capture and fails.
    pub(super) fn refuse_implicit(&mut self, stream: StreamId) -> DriverResult<()> {
        let Some(capture) = self.implicit(stream) else { return Ok(()) };
        self.spoil(capture);
        Err(codes::STREAM_CAPTURE_IMPLICIT)
    }

    fn healthy(&mut self, capture: CaptureId) -> DriverResult<&mut Capture> {
        match self.captures.open.get_mut(&capture) {
            Some(capture) if !capture.spoiled => Ok(capture),
            Some(_) => Err(codes::STREAM_CAPTURE_INVALIDATED),
            None => Err(codes::CAPTURED_EVENT),
        }
    }

    /// The stream's position in its capture; `None` outside a capture. Fails if the capture is invalidated.
    pub(super) fn captured_point(
        &mut self,
        stream: StreamId,
    ) -> DriverResult<Option<(CaptureId, Clock)>> {
        let Some(member) = &self.streams.get(stream).member else { return Ok(None) };
        let point = (member.capture, member.clock.clone());
        self.healthy(point.0)?;
        Ok(Some(point))
    }

    pub(super) fn capture(&mut self, stream: StreamId, operation: Operation) -> DriverResult<()> {
        let Some((id, mut clock)) = self.captured_point(stream)? else { return Ok(()) };
        let Some(lane) = self.streams.get(stream).member.as_ref().map(|member| member.lane) else {
            return Ok(());
        };
        let capture = self.healthy(id)?;
        let time = capture.step(lane);
        clock.reach(lane, time);
        capture.nodes.push(Node { lane, time, clock: clock.clone(), operation });
        self.place(stream, CaptureMember { capture: id, lane, clock });
        Ok(())
    }

    pub(super) fn place(&mut self, stream: StreamId, member: CaptureMember) {
        self.streams.get_mut(stream).member = Some(member);
    }

    /// Makes `stream` wait for `point` of the capture `event`. A stream outside every capture joins that capture.
    pub(super) fn join_capture(
        &mut self,
        stream: StreamId,
        event: CaptureId,
        point: &Clock,
    ) -> DriverResult<()> {
        if self.streams.get(stream).ordering == LegacyOrdering::Legacy {
            self.spoil(event);
            return Err(codes::STREAM_CAPTURE_IMPLICIT);
        }
        let mine = self.capture_of(stream);
        let waits_inside = mine == Some(event);
        if let Some(mine) = mine
            && !waits_inside
        {
            if !self.captures.open.contains_key(&event) {
                return Err(self.isolate(stream));
            }
            self.spoil(mine);
            self.spoil(event);
            return Err(codes::STREAM_CAPTURE_MERGE);
        }
        let capture = self.healthy(event)?;
        // The fork counts as work of the new lane, so it must be joined even if no work follows.
        let fork = Lane::numbered(capture.times.len());
        if !waits_inside {
            capture.times.push(1);
            let mut clock = Clock::default();
            clock.reach(fork, 1);
            self.place(stream, CaptureMember { capture: event, lane: fork, clock });
        }
        if let Some(member) = &mut self.streams.get_mut(stream).member {
            member.clock.join(point);
        }
        Ok(())
    }

    /// Invalidates the capture of `stream`, which waited for work outside the capture. Returns the error code.
    pub(super) fn isolate(&mut self, stream: StreamId) -> u32 {
        self.spoil_capture_of(stream);
        codes::STREAM_CAPTURE_ISOLATION
    }

    /// Invalidates `capture`, because the host asked or waited for one of its events. Returns the error code.
    pub(super) fn captured_event(&mut self, capture: CaptureId) -> u32 {
        self.spoil(capture);
        codes::CAPTURED_EVENT
    }
}

impl Simulated {
    /// Fails for the legacy default stream while a blocking stream of its context is captured. Invalidates no capture.
    pub fn is_capturing(&self, stream: Stream) -> Result<bool> {
        self.ask(Call::StreamIsCapturing, CallArguments::stream(stream), |state| {
            let id = state.native(stream)?;
            if state.implicit(id).is_some() {
                return Err(codes::STREAM_CAPTURE_IMPLICIT);
            }
            Ok(state.capture_of(id).is_some())
        })
    }

    pub fn capture_number(&self, stream: Stream) -> Result<u64> {
        self.ask(Call::StreamGetCaptureInfo, CallArguments::stream(stream), |state| {
            let id = state.native(stream)?;
            let capture = state.capture_of(id).ok_or(codes::ILLEGAL_STATE)?;
            u64::try_from(capture.index()).map_err(|_| codes::UNKNOWN)
        })
    }

    /// `cuThreadExchangeStreamCaptureMode`: sets the calling thread's mode, and returns the previous one.
    pub fn exchange_capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        self.lock().captures.modes.insert(Thread::current(), mode).unwrap_or_default()
    }

    pub(super) fn relaxed<R>(&self, call: impl FnOnce() -> R) -> R {
        let before = self.exchange_capture_mode(CaptureMode::Relaxed);
        let answer = call();
        self.exchange_capture_mode(before);
        answer
    }
}
