//! Simulates events, and the host's waits for events, streams and contexts.
//!
//! A wait binds to the record that is latest when the wait is queued, so the event can be recorded again at once. Only
//! an external wait inside a capture binds later: at each launch of the graph.

use super::call_log::DriverResult;
use super::clock::Clock;
use super::codes;
use super::entry_points::{Call, CallArguments};
use super::operation::{Operation, Work};
use super::processes::SharedEvent;
use super::stream_table::{CaptureId, LegacyOrdering, StreamId};
use super::{MachineState, Simulated};
use crate::driver::{Context, Event};
use crate::error::Result;
use crate::stream::Stream;

const FIRST: usize = 0x6000_0000;
const STEP: usize = 0x10;

/// The point in the order of work that this process's last record of an event marks.
#[derive(Debug, Clone)]
pub(super) enum EventPoint {
    Never,
    Point(Clock),
    /// Recorded on a stream under capture. The clock orders only work of that capture.
    Captured(CaptureId, Clock),
}

#[derive(Debug)]
struct EventState {
    event: Event,
    recorded: EventPoint,
    slot: Option<SharedEvent>,
    /// The number of this process's last record in `slot`; 0 before the first.
    mine: u64,
    is_destroyed: bool,
}

#[derive(Debug, Default)]
pub(super) struct EventTable {
    all: Vec<EventState>,
    spare: Vec<Event>,
    destroyed: Vec<Event>,
    /// Records of destroyed events that other processes could still wait for.
    leaving: Vec<(SharedEvent, u64, EventPoint)>,
}

impl EventTable {
    fn create(&mut self, context: Context, life: u64) -> DriverResult<Event> {
        self.add(context, life, None)
    }

    /// Reuses a destroyed event's handle, if there is one, as the driver does.
    pub(super) fn create_shared(
        &mut self,
        context: Context,
        life: u64,
        slot: SharedEvent,
    ) -> DriverResult<Event> {
        let Some(free) = self.destroyed.pop() else { return self.add(context, life, Some(slot)) };
        let event = Event { context, life, ..free };
        *self.get_mut(event)? = EventState {
            event,
            recorded: EventPoint::Never,
            slot: Some(slot),
            mine: 0,
            is_destroyed: false,
        };
        Ok(event)
    }

    pub(super) fn destroy(&mut self, event: Event) -> DriverResult<()> {
        let state = self.get_mut(event)?;
        if std::mem::replace(&mut state.is_destroyed, true) {
            return Err(codes::INVALID_HANDLE);
        }
        let recorded = std::mem::replace(&mut state.recorded, EventPoint::Never);
        let (slot, mine) = (state.slot.take(), state.mine);
        if let Some(slot) = slot
            && mine > 0
        {
            self.leaving.retain(|(slot, mine, _)| !slot.is_reached(*mine));
            self.leaving.push((slot, mine, recorded));
        }
        self.destroyed.push(event);
        Ok(())
    }

    /// The events shared with other processes, and the destroyed ones in `leaving`, each with this process's last
    /// record.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&SharedEvent, u64, &EventPoint)> {
        let all = self.all.iter();
        all.filter_map(|event| Some((event.slot.as_ref()?, event.mine, &event.recorded)))
            .chain(self.leaving.iter().map(|(slot, mine, recorded)| (slot, *mine, recorded)))
    }

    pub(super) fn slot(&mut self, event: Event) -> DriverResult<Option<&SharedEvent>> {
        Ok(self.get_mut(event)?.slot.as_ref())
    }

    fn add(
        &mut self,
        context: Context,
        life: u64,
        slot: Option<SharedEvent>,
    ) -> DriverResult<Event> {
        let handle = self.all.len().checked_mul(STEP).and_then(|offset| FIRST.checked_add(offset));
        let handle = handle.ok_or(codes::OUT_OF_MEMORY)?;
        let event = Event { handle, context, life };
        let recorded = EventPoint::Never;
        self.all.push(EventState { event, recorded, slot, mine: 0, is_destroyed: false });
        Ok(event)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn points(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.all.iter_mut().filter_map(|event| match &mut event.recorded {
            EventPoint::Point(clock) => Some(clock),
            EventPoint::Never | EventPoint::Captured(..) => None,
        })
    }

    fn get_mut(&mut self, event: Event) -> DriverResult<&mut EventState> {
        let offset = event.handle.checked_sub(FIRST).filter(|offset| offset % STEP == 0);
        offset.and_then(|offset| self.all.get_mut(offset / STEP)).ok_or(codes::INVALID_HANDLE)
    }
}

impl MachineState {
    pub(super) fn spared_event(&mut self, context: Context) -> DriverResult<Option<Event>> {
        let life = self.contexts.life(context)?;
        let fits = |spare: &Event| (spare.context, spare.life) == (context, life);
        let at = self.events.spare.iter().position(fits);
        Ok(at.map(|at| self.events.spare.swap_remove(at)))
    }

    pub(super) fn spare_event(&mut self, event: Event) {
        self.events.spare.push(event);
    }

    fn alive_event(&mut self, event: Event) -> DriverResult<&mut EventState> {
        let state = self.events.get_mut(event)?;
        if state.is_destroyed {
            return Err(codes::INVALID_HANDLE);
        }
        let known = state.event;
        self.refuse_dead(known)?;
        self.events.get_mut(event)
    }

    pub(super) fn record(&mut self, event: Event, stream: Stream) -> DriverResult<()> {
        let id = self.native(stream)?;
        let context = self.alive_event(event)?.event.context;
        if context != self.streams.get(id).context {
            return Err(codes::INVALID_HANDLE);
        }
        self.refuse_implicit(id)?;
        let recorded = if let Some((capture, clock)) = self.captured_point(id)? {
            EventPoint::Captured(capture, clock)
        } else {
            self.advance(id);
            if let Some(slot) = self.events.get_mut(event)?.slot.clone() {
                let record = slot.record();
                self.events.get_mut(event)?.mine = record;
                self.enqueue(id, "record for another process", Work::Reach(slot, record));
            }
            EventPoint::Point(self.streams.get(id).clock.clone())
        };
        self.events.get_mut(event)?.recorded = recorded;
        Ok(())
    }

    pub(super) fn wait(&mut self, stream: Stream, event: Event) -> DriverResult<()> {
        let id = self.native(stream)?;
        let known = self.alive_event(event)?;
        let (recorded, mine, slot) = (known.recorded.clone(), known.mine, known.slot.clone());
        self.refuse_implicit(id)?;
        if let Some(slot) = slot
            && slot.records() != mine
            && self.streams.get(id).member.is_none()
        {
            let record = slot.records();
            self.advance(id);
            self.enqueue(id, "wait for another process", Work::Await(slot, record));
            return Ok(());
        }
        match recorded {
            EventPoint::Captured(capture, clock) => self.join_capture(id, capture, &clock),
            EventPoint::Never | EventPoint::Point(_) if self.streams.get(id).member.is_some() => {
                Err(self.isolate(id))
            }
            EventPoint::Never => Ok(()),
            EventPoint::Point(clock) => {
                self.advance(id);
                self.streams.get_mut(id).clock.join(&clock);
                Ok(())
            }
        }
    }

    /// On a stream under capture, adds a node to the graph. On any other stream, makes an ordinary wait.
    pub(super) fn wait_external(&mut self, stream: Stream, event: Event) -> DriverResult<()> {
        let id = self.native(stream)?;
        if self.capture_of(id).is_none() {
            return self.wait(stream, event);
        }
        self.alive_event(event)?;
        self.capture(id, Operation::external(event))
    }

    pub(super) fn latest(&mut self, event: Event) -> Clock {
        match self.events.get_mut(event).map(|event| &event.recorded) {
            Ok(EventPoint::Point(clock)) => clock.clone(),
            _ => Clock::default(),
        }
    }

    fn point(&mut self, event: Event) -> DriverResult<Clock> {
        let recorded = self.alive_event(event)?.recorded.clone();
        self.refuse_unsafe()?;
        match recorded {
            EventPoint::Never => Ok(Clock::default()),
            EventPoint::Point(clock) => Ok(clock),
            EventPoint::Captured(capture, _) => Err(self.captured_event(capture)),
        }
    }

    fn end_of_stream(&mut self, stream: Stream) -> DriverResult<Clock> {
        let id = self.native(stream)?;
        self.refuse_unsafe()?;
        self.refuse_implicit(id)?;
        self.refuse_capturing(id)?;
        // A host wait queues nothing, so it does not make a blocking stream wait for the legacy stream (H100, driver
        // 580, 2026-11).
        if self.streams.get(id).ordering == LegacyOrdering::Legacy {
            self.advance(id);
        }
        Ok(self.streams.get(id).clock.clone())
    }

    /// The point after all work queued in the current context, also on destroyed streams.
    pub(super) fn end_of_context(&mut self) -> DriverResult<Clock> {
        let context = self.contexts.needed()?;
        let mut end = Clock::default();
        let streams: Vec<StreamId> = self.streams.ids().collect();
        for id in streams
            .into_iter()
            .map(|id| self.streams.get(id))
            .filter(|stream| stream.context == context)
        {
            end.join(&id.clock);
        }
        Ok(end)
    }
}

impl Simulated {
    pub fn create_event(&self) -> Result<Event> {
        self.ask(Call::EventCreate, CallArguments::default(), |state| {
            let context = state.contexts.needed()?;
            let life = state.contexts.life(context)?;
            state.events.create(context, life)
        })
    }

    pub fn event(&self, handle: usize) -> Result<Event> {
        let nowhere = Event { handle, context: Context(std::num::NonZeroUsize::MIN), life: 0 };
        self.make("cuEventQuery", |state| Ok(state.events.get_mut(nowhere)?.event))
    }

    pub fn record_on(&self, event: Event, stream: Stream) -> Result<()> {
        let arguments = CallArguments::stream_and_event(stream, event);
        self.act(Call::EventRecord, arguments, |state| state.record(event, stream))
    }

    pub fn wait_on(&self, stream: Stream, event: Event) -> Result<()> {
        let arguments = CallArguments::stream_and_event(stream, event);
        self.act(Call::StreamWaitEvent, arguments, |state| state.wait(stream, event))
    }

    pub fn wait_external_on(&self, stream: Stream, event: Event) -> Result<()> {
        let arguments = CallArguments::stream_and_event(stream, event);
        self.act(Call::StreamWaitEvent, arguments, |state| state.wait_external(stream, event))
    }

    /// Whether the work before this process's last record has run. If so, the host is ordered after that work.
    pub fn query_event(&self, event: Event) -> Result<bool> {
        self.ask(Call::EventQuery, CallArguments::event(event), |state| {
            let point = state.point(event)?;
            let reached = state.schedule.reached(&point);
            if reached {
                state.learn(&point);
            }
            Ok(reached)
        })
    }

    pub fn synchronize_event(&self, event: Event) -> Result<()> {
        let arguments = CallArguments::event(event);
        self.synchronize(Call::EventSynchronize, arguments, |state| state.point(event)).map(drop)
    }

    /// For the legacy default stream, the host also waits for the blocking streams of its context.
    pub fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let arguments = CallArguments::stream(stream);
        let end = |state: &mut MachineState| state.end_of_stream(stream);
        self.synchronize(Call::StreamSynchronize, arguments, end).map(drop)
    }

    /// Waits like `cuModuleUnload` in relaxed mode, which invalidates no capture (H100, driver 580, 2026-11).
    pub(super) fn synchronize_current(&self) -> Result<()> {
        self.synchronize(Call::ModuleUnload, CallArguments::default(), MachineState::end_of_context)
            .map(drop)
    }

    /// Waits like `cuCtxSynchronize` in each context. If a stream is captured, fails and invalidates all captures.
    pub fn synchronize_all(&self) -> Result<()> {
        let contexts: Vec<Context> = self.lock().contexts.all().collect();
        for context in contexts {
            self.synchronize(Call::CtxSynchronize, CallArguments::context(context), |state| {
                state.refuse_captures()?;
                Ok(state.schedule.everything(&state.host))
            })?;
        }
        Ok(())
    }

    /// The host waits for the point that `end` returns. Returns false if an injected fault suppressed the wait.
    pub(super) fn synchronize(
        &self,
        call: Call,
        arguments: CallArguments,
        end: impl FnOnce(&mut MachineState) -> DriverResult<Clock>,
    ) -> Result<bool> {
        let end = self.called(call, arguments, |state| {
            state.refuse_inside_work()?;
            end(state)
        })?;
        if let Some(end) = &end {
            self.run_until(end);
            self.lock().learn(end);
        }
        Ok(end.is_some())
    }
}
