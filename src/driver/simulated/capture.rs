//! Graph capture: what may be done in one, and what spoils it.
//!
//! Work launched on a stream that is being captured is kept, not queued. A record there and a wait
//! elsewhere fork the capture to the other stream, and every fork must be joined by the stream that
//! it began on. Inside a capture a stream has a clock of the capture's own lanes; a launch of the
//! graph puts those lanes after the stream that it is launched on, and the stream after them.
//!
//! What a capture cannot take is an error of CUDA's, and spoils it, so that its end fails as well:
//! waits on work outside it, host syncs and event queries, another capture's events, the legacy
//! default stream beside a blocking stream that is captured, stream-ordered frees. An external wait
//! (`CU_EVENT_WAIT_EXTERNAL`) is a node of the graph. Not modelled: graphs launched inside a capture
//! (refused), external records, memory nodes.

use std::collections::HashMap;

use super::call::{Arguments, Call};
use super::calls::DriverResult;
use super::clock::{Clock, Lane};
use super::codes;
use super::operation::{Node, Operation};
use super::stream_table::{CaptureId, Member, Role, StreamId};
use super::{Simulated, State};
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// Whose unsafe calls spoil a capture, as in `CUstreamCaptureMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// Those of every thread.
    #[default]
    Global,
    /// Those of the thread that began it.
    ThreadLocal,
    /// No thread's.
    Relaxed,
}

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) mode: CaptureMode,
    pub(super) origin: StreamId,
    pub(super) thread: Thread,
    pub(super) spoiled: bool,
    /// How far each lane has come.
    pub(super) times: Vec<u64>,
    pub(super) nodes: Vec<Node>,
}

impl Capture {
    /// The next number of a lane.
    fn step(&mut self, lane: Lane) -> u64 {
        let time = &mut self.times[lane.index()];
        *time = time.saturating_add(1);
        *time
    }

    pub(super) fn is_joined(&self, origin: &Clock) -> bool {
        self.times.iter().enumerate().all(|(lane, time)| origin.covers(Lane::numbered(lane), *time))
    }
}

/// The captures under way, by their number.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) begun: usize,
    pub(super) open: HashMap<CaptureId, Capture>,
    modes: HashMap<Thread, CaptureMode>,
}

impl State {
    pub(super) fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.streams.get(stream).member.as_ref().map(|member| member.capture)
    }

    fn spoil(&mut self, capture: CaptureId) {
        if let Some(capture) = self.captures.open.get_mut(&capture) {
            capture.spoiled = true;
        }
    }

    /// Spoils the capture that the stream takes part in, if any.
    pub(super) fn spoil_capture_of(&mut self, stream: StreamId) {
        if let Some(capture) = self.capture_of(stream) {
            self.spoil(capture);
        }
    }

    /// Refuses what cannot be done with a stream that is being captured.
    pub(super) fn refuse_capturing(&mut self, stream: StreamId) -> DriverResult<()> {
        let Some(capture) = self.capture_of(stream) else { return Ok(()) };
        self.spoil(capture);
        Err(codes::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The stream of that name, for a question that ends the capture it is part of: `cuStreamGetFlags` and
    /// `cuStreamGetId` do, in each capture mode, `cuStreamGetCtx` and `cuStreamIsCapturing` do not (H200, driver 580,
    /// 2026-11).
    pub(super) fn not_capturing(&mut self, stream: Stream) -> DriverResult<StreamId> {
        let id = self.native(stream)?;
        self.refuse_capturing(id)?;
        Ok(id)
    }

    /// Refuses a host sync of all contexts while any stream is being captured, whatever the mode.
    pub(super) fn refuse_captures(&mut self) -> DriverResult<()> {
        self.captures.open.values_mut().for_each(|capture| capture.spoiled = true);
        if self.captures.open.is_empty() { Ok(()) } else { Err(codes::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Refuses a call that is unsafe during a capture: it spoils those that it can spoil from here.
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

    /// The capture that an action on the legacy default stream would be implicitly ordered with.
    fn implicit(&self, stream: StreamId) -> Option<CaptureId> {
        let stream = self.streams.get(stream);
        if stream.role != Role::Legacy {
            return None;
        }
        self.blocking(stream.context).iter().find_map(|id| self.capture_of(*id))
    }

    /// Refuses an action on the legacy default stream while a blocking stream is being captured.
    pub(super) fn refuse_implicit(&mut self, stream: StreamId) -> DriverResult<()> {
        let Some(capture) = self.implicit(stream) else { return Ok(()) };
        self.spoil(capture);
        Err(codes::STREAM_CAPTURE_IMPLICIT)
    }

    /// The open capture of that number, unless it is spoiled.
    fn healthy(&mut self, capture: CaptureId) -> DriverResult<&mut Capture> {
        match self.captures.open.get_mut(&capture) {
            Some(capture) if !capture.spoiled => Ok(capture),
            Some(_) => Err(codes::STREAM_CAPTURE_INVALIDATED),
            None => Err(codes::CAPTURED_EVENT),
        }
    }

    /// Where a stream stands inside its capture; `None` where it is not being captured.
    pub(super) fn captured_point(
        &mut self,
        stream: StreamId,
    ) -> DriverResult<Option<(CaptureId, Clock)>> {
        let Some(member) = &self.streams.get(stream).member else { return Ok(None) };
        let point = (member.capture, member.clock.clone());
        self.healthy(point.0)?;
        Ok(Some(point))
    }

    /// Keeps an operation that was launched on a stream that is being captured.
    pub(super) fn capture(&mut self, stream: StreamId, operation: Operation) -> DriverResult<()> {
        let Some((id, mut clock)) = self.captured_point(stream)? else { return Ok(()) };
        let Some(lane) = self.streams.get(stream).member.as_ref().map(|member| member.lane) else {
            return Ok(());
        };
        let capture = self.healthy(id)?;
        let time = capture.step(lane);
        clock.reach(lane, time);
        capture.nodes.push(Node { lane, time, clock: clock.clone(), operation });
        self.place(stream, Member { capture: id, lane, clock });
        Ok(())
    }

    pub(super) fn place(&mut self, stream: StreamId, member: Member) {
        self.streams.get_mut(stream).member = Some(member);
    }

    /// A wait on an event that was recorded in a capture: the stream joins it, or waits inside it.
    pub(super) fn join_capture(
        &mut self,
        stream: StreamId,
        event: CaptureId,
        point: &Clock,
    ) -> DriverResult<()> {
        if self.streams.get(stream).role == Role::Legacy {
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
        // The fork itself is the first thing on its lane, so that it must be joined even where no
        // work follows.
        let fork = Lane::numbered(capture.times.len());
        if !waits_inside {
            capture.times.push(1);
            let mut clock = Clock::default();
            clock.reach(fork, 1);
            self.place(stream, Member { capture: event, lane: fork, clock });
        }
        if let Some(member) = &mut self.streams.get_mut(stream).member {
            member.clock.join(point);
        }
        Ok(())
    }

    /// A wait inside a capture on something outside it.
    pub(super) fn isolate(&mut self, stream: StreamId) -> u32 {
        self.spoil_capture_of(stream);
        codes::STREAM_CAPTURE_ISOLATION
    }

    /// A call outside a capture on an event that was recorded inside it.
    pub(super) fn captured_event(&mut self, capture: CaptureId) -> u32 {
        self.spoil(capture);
        codes::CAPTURED_EVENT
    }
}

impl Simulated {
    /// `cuStreamIsCapturing`. Legal at any time; fails for the legacy default stream while a
    /// blocking stream of its context is being captured, and spoils nothing.
    pub fn is_capturing(&self, stream: Stream) -> Result<bool> {
        self.ask(Call::StreamIsCapturing, Arguments::stream(stream), |state| {
            let id = state.native(stream)?;
            if state.implicit(id).is_some() {
                return Err(codes::STREAM_CAPTURE_IMPLICIT);
            }
            Ok(state.capture_of(id).is_some())
        })
    }

    /// `cuStreamGetCaptureInfo`: the number of the capture that a stream takes part in; no two captures
    /// have the same.
    pub fn capture_number(&self, stream: Stream) -> Result<u64> {
        self.ask(Call::StreamGetCaptureInfo, Arguments::stream(stream), |state| {
            let id = state.native(stream)?;
            let capture = state.capture_of(id).ok_or(codes::ILLEGAL_STATE)?;
            u64::try_from(capture.index()).map_err(|_| codes::UNKNOWN)
        })
    }

    /// `cuThreadExchangeStreamCaptureMode`: which captures the calling thread's unsafe calls spoil.
    /// Returns the mode before.
    pub fn exchange_capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        self.lock().captures.modes.insert(Thread::current(), mode).unwrap_or_default()
    }

    /// Runs `call` in the mode in which it spoils no capture.
    pub(super) fn relaxed<R>(&self, call: impl FnOnce() -> R) -> R {
        let before = self.exchange_capture_mode(CaptureMode::Relaxed);
        let answer = call();
        self.exchange_capture_mode(before);
        answer
    }
}
