//! Events, and the host's waits.
//!
//! A wait binds to the record that was latest when it was queued, so an event may be recorded again
//! at once; a wait on an event that was never recorded does nothing. Refused, as the driver does: an
//! event of one context recorded on a stream of another.

use super::calls::{Arguments, Call};
use super::capture::CaptureId;
use super::clock::Clock;
use super::codes::{self, failed};
use super::streams::StreamId;
use super::work::Operation;
use super::{Simulated, State};
use crate::driver::{Context, Event};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Events look like pointers, and are the same numbers in every run.
const FIRST: usize = 0x6000_0000;
const STEP: usize = 0x10;

/// What an event stands for.
#[derive(Debug, Clone)]
pub(super) enum Recorded {
    Never,
    /// The point of a stream.
    Point(Clock),
    /// The point of a stream that was being captured: it is ordered inside that capture only.
    Captured(CaptureId, Clock),
}

#[derive(Debug)]
struct EventState {
    event: Event,
    recorded: Recorded,
}

/// All events, and those that the bridge has to spare.
#[derive(Debug, Default)]
pub(super) struct Events {
    all: Vec<EventState>,
    spare: Vec<Event>,
}

impl Events {
    fn create(&mut self, context: Context, life: u64) -> Result<Event> {
        let handle = self.all.len().checked_mul(STEP).and_then(|offset| FIRST.checked_add(offset));
        let handle =
            handle.ok_or_else(|| failed(Call::EventCreate.name(), codes::OUT_OF_MEMORY))?;
        let event = Event { handle, context, life };
        self.all.push(EventState { event, recorded: Recorded::Never });
        Ok(event)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The points of streams that events stand for.
    pub(super) fn points(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.all.iter_mut().filter_map(|event| match &mut event.recorded {
            Recorded::Point(clock) => Some(clock),
            Recorded::Never | Recorded::Captured(..) => None,
        })
    }

    fn get_mut(&mut self, call: Call, event: Event) -> Result<&mut EventState> {
        let offset = event.handle.checked_sub(FIRST).filter(|offset| offset % STEP == 0);
        offset
            .and_then(|offset| self.all.get_mut(offset / STEP))
            .ok_or_else(|| failed(call.name(), codes::INVALID_HANDLE))
    }
}

impl State {
    pub(super) fn create_event(&mut self) -> Result<Event> {
        self.called_for(Call::EventCreate, Arguments::default(), |state| {
            let name = Call::EventCreate.name();
            let context = state.contexts.needed(name)?;
            let life = state.contexts.life(name, context)?;
            state.events.create(context, life)
        })
    }

    /// An event of nobody else's, used again where one was given back.
    pub(super) fn take_event(&mut self, context: Context) -> Result<Event> {
        let life = self.contexts.life(Call::EventCreate.name(), context)?;
        let fits = |spare: &Event| (spare.context, spare.life) == (context, life);
        match self.events.spare.iter().position(fits) {
            Some(at) => Ok(self.events.spare.swap_remove(at)),
            None => self.create_event(),
        }
    }

    pub(super) fn spare_event(&mut self, event: Event) {
        self.events.spare.push(event);
    }

    /// An event that can be touched: of the life that its context is in.
    fn alive_event(&mut self, call: Call, event: Event) -> Result<&mut EventState> {
        let known = self.events.get_mut(call, event)?.event;
        self.refuse_dead(call.name(), known)?;
        self.events.get_mut(call, event)
    }

    pub(super) fn record(&mut self, event: Event, stream: Stream) -> Result<()> {
        let call = Call::EventRecord;
        let id = self.native(call.name(), stream)?;
        let context = self.alive_event(call, event)?.event.context;
        if context != self.streams.get(id).context {
            return Err(failed(call.name(), codes::INVALID_HANDLE));
        }
        self.refuse_implicit(call.name(), id)?;
        let recorded = if let Some((capture, clock)) = self.captured_point(call.name(), id)? {
            Recorded::Captured(capture, clock)
        } else {
            self.advance(id);
            Recorded::Point(self.streams.get(id).clock.clone())
        };
        self.events.get_mut(call, event)?.recorded = recorded;
        Ok(())
    }

    pub(super) fn wait(&mut self, stream: Stream, event: Event) -> Result<()> {
        let call = Call::StreamWaitEvent;
        let id = self.native(call.name(), stream)?;
        let recorded = self.alive_event(call, event)?.recorded.clone();
        self.refuse_implicit(call.name(), id)?;
        match recorded {
            Recorded::Captured(capture, clock) => {
                self.join_capture(call.name(), id, capture, &clock)
            }
            Recorded::Never | Recorded::Point(_) if self.streams.get(id).member.is_some() => {
                Err(self.isolate(call.name(), id))
            }
            Recorded::Never => Ok(()),
            Recorded::Point(clock) => {
                self.advance(id);
                self.streams.get_mut(id).clock.join(&clock);
                Ok(())
            }
        }
    }

    /// A wait for what is outside the capture, which is a node of the graph: whenever the graph is
    /// launched it waits for what the event stands for then. Outside a capture it is a wait like any.
    pub(super) fn wait_external(&mut self, stream: Stream, event: Event) -> Result<()> {
        let call = Call::StreamWaitEvent;
        let id = self.native(call.name(), stream)?;
        if self.capture_of(id).is_none() {
            return self.wait(stream, event);
        }
        self.alive_event(call, event)?;
        self.capture(call.name(), id, Operation::external(event))
    }

    /// What an event stands for now, for a node of a graph that waits for it.
    pub(super) fn latest(&mut self, event: Event) -> Clock {
        match self.events.get_mut(Call::StreamWaitEvent, event).map(|event| &event.recorded) {
            Ok(Recorded::Point(clock)) => clock.clone(),
            _ => Clock::default(),
        }
    }

    /// The point that an event stands for, for a call by which the host learns of it.
    fn point(&mut self, call: Call, event: Event) -> Result<Clock> {
        let recorded = self.alive_event(call, event)?.recorded.clone();
        self.refuse_unsafe(call.name())?;
        match recorded {
            Recorded::Never => Ok(Clock::default()),
            Recorded::Point(clock) => Ok(clock),
            Recorded::Captured(capture, _) => Err(self.captured_event(call.name(), capture)),
        }
    }

    fn end_of_stream(&mut self, stream: Stream) -> Result<Clock> {
        let call = Call::StreamSynchronize.name();
        let id = self.native(call, stream)?;
        self.refuse_unsafe(call)?;
        self.refuse_implicit(call, id)?;
        self.refuse_capturing(call, id)?;
        self.advance(id);
        Ok(self.streams.get(id).clock.clone())
    }

    fn end_of_context(&mut self) -> Result<Clock> {
        let call = Call::CtxSynchronize.name();
        let context = self.contexts.needed(call)?;
        self.refuse_unsafe(call)?;
        self.refuse_context_capturing(call, context)?;
        let mut end = self.host.clone();
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
    /// `cuEventCreate` in the calling thread's context, without timing.
    pub fn create_event(&self) -> Result<Event> {
        self.lock().create_event()
    }

    /// The event of that handle, for a program that keeps handles.
    pub fn event(&self, handle: usize) -> Result<Event> {
        let nowhere = Event { handle, context: Context(std::num::NonZeroUsize::MIN), life: 0 };
        Ok(self.lock().events.get_mut(Call::EventQuery, nowhere)?.event)
    }

    /// `cuEventRecord`.
    pub fn record_on(&self, event: Event, stream: Stream) -> Result<()> {
        let arguments = Arguments { event: Some(event), ..Arguments::stream(stream) };
        self.lock()
            .called(Call::EventRecord, arguments, |state| state.record(event, stream))
            .map(drop)
    }

    /// `cuStreamWaitEvent`.
    pub fn wait_on(&self, stream: Stream, event: Event) -> Result<()> {
        let arguments = Arguments { event: Some(event), ..Arguments::stream(stream) };
        self.lock()
            .called(Call::StreamWaitEvent, arguments, |state| state.wait(stream, event))
            .map(drop)
    }

    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`.
    pub fn wait_external_on(&self, stream: Stream, event: Event) -> Result<()> {
        let arguments = Arguments { event: Some(event), ..Arguments::stream(stream) };
        self.lock()
            .called(Call::StreamWaitEvent, arguments, |state| state.wait_external(stream, event))
            .map(drop)
    }

    /// `cuEventQuery`: whether the event has been reached. Makes nothing run; where it says yes, the
    /// host is ordered after the event.
    pub fn query_event(&self, event: Event) -> Result<bool> {
        let call = Call::EventQuery;
        self.lock().called_for(call, Arguments::event(event), |state| {
            let point = state.point(call, event)?;
            let reached = state.schedule.reached(&point);
            if reached {
                state.learn(&point);
            }
            Ok(reached)
        })
    }

    /// `cuEventSynchronize`: the host waits for the event.
    pub fn synchronize_event(&self, event: Event) -> Result<()> {
        let call = Call::EventSynchronize;
        self.synchronize(call, Arguments::event(event), |state| state.point(call, event))
    }

    /// `cuStreamSynchronize`: the host waits for all work of the stream; for the legacy default
    /// stream that is also all work of its context's blocking streams.
    pub fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let call = Call::StreamSynchronize;
        self.synchronize(call, Arguments::stream(stream), |state| state.end_of_stream(stream))
    }

    pub(super) fn synchronize_current(&self) -> Result<()> {
        self.synchronize(Call::CtxSynchronize, Arguments::default(), State::end_of_context)
    }

    /// The host waits for all work of all devices. Not a driver call: neither logged, nor made to
    /// fail, nor refused in a capture.
    pub fn synchronize_all(&self) -> Result<()> {
        let end = {
            let state = self.lock();
            state.refuse_inside_work("synchronize_all")?;
            state.schedule.everything()
        };
        self.run_until(&end);
        self.lock().learn(&end);
        Ok(())
    }

    fn synchronize(
        &self,
        call: Call,
        arguments: Arguments,
        end: impl FnOnce(&mut State) -> Result<Clock, Error>,
    ) -> Result<()> {
        let end = self.lock().called(call, arguments, |state| {
            state.refuse_inside_work(call.name())?;
            end(state)
        })?;
        if let Some(end) = end {
            self.run_until(&end);
            self.lock().learn(&end);
        }
        Ok(())
    }
}
