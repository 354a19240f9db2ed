//! Simulates streams, and the order between them that CUDA guarantees.
//!
//! CUDA orders a context's legacy default stream with its blocking streams, which include the per-thread default
//! streams. An action on the legacy stream follows all earlier actions of the blocking streams, and their later actions
//! follow it. An action is anything queued: work, an event's record, a wait. Non-blocking streams take no part.

use std::sync::Arc;

use super::call_log::DriverResult;
use super::codes;
use super::report::ReportKind;
use super::stream_table::{LegacyOrdering, StreamId};
use super::{MachineState, Simulated};
use crate::driver::Context;
use crate::error::Result;
use crate::stream::{Stream, Thread};

impl MachineState {
    /// Default streams are those of the current context. Fails with a report if no live stream has the handle.
    pub(super) fn stream(&mut self, stream: Stream) -> DriverResult<StreamId> {
        match stream {
            Stream::Legacy => self.contexts.needed().map(|context| self.legacy(context)),
            Stream::PerThread(thread) => {
                self.contexts.needed().map(|context| self.per_thread(thread, context))
            }
            Stream::Handle(handle) => self.alive(handle),
        }
    }

    /// For another thread's per-thread default stream, makes a report and returns the calling thread's own.
    pub(super) fn native(&mut self, stream: Stream) -> DriverResult<StreamId> {
        let here = Thread::current();
        if let Stream::PerThread(thread) = stream
            && thread != here
        {
            let context = self.contexts.needed()?;
            let named = self.per_thread(thread, context);
            let name = Arc::clone(&self.streams.get(named).name);
            let why = "the handle 2 names the calling thread's stream, which a real driver takes";
            self.report_stream(ReportKind::ForeignThread, name, why);
            return Ok(self.per_thread(here, context));
        }
        self.stream(stream)
    }

    fn alive(&mut self, handle: u64) -> DriverResult<StreamId> {
        let known = self.streams.known(handle);
        let (name, why) = match known.map(|id| (id, self.streams.get(id))) {
            Some((id, stream)) if stream.alive => return Ok(id),
            Some((_, stream)) => (
                Arc::clone(&stream.name),
                "it was destroyed; a real driver may die of this (SIGSEGV)",
            ),
            None => {
                let name = format!("the stream {handle:#x}");
                (name.into(), "no stream has this handle; a real driver may die of this (SIGSEGV)")
            }
        };
        self.report_stream(ReportKind::DeadStream, name, why);
        Err(codes::INVALID_HANDLE)
    }

    fn legacy(&mut self, context: Context) -> StreamId {
        if let Some(id) = self.streams.legacy.get(&context) {
            return *id;
        }
        let name = format!("legacy default stream ({})", self.contexts.describe(context));
        let id = self.streams.add(name, context, LegacyOrdering::Legacy, self.schedule.add_lane());
        self.streams.legacy.insert(context, id);
        id
    }

    fn per_thread(&mut self, thread: Thread, context: Context) -> StreamId {
        if let Some(id) = self.streams.per_thread.get(&(thread, context)) {
            return *id;
        }
        let number = self.streams.thread_number(thread);
        let place = self.contexts.describe(context);
        let name = format!("per-thread default stream of thread#{number} ({place})");
        let id =
            self.streams.add(name, context, LegacyOrdering::Blocking, self.schedule.add_lane());
        self.streams.per_thread.insert((thread, context), id);
        id
    }

    /// Call this before the stream's next action. Under CUDA's rules for the legacy default stream, that action follows
    /// the work of certain other streams: merges their clocks into the stream's clock.
    pub(super) fn advance(&mut self, id: StreamId) {
        let mut clock = std::mem::take(&mut self.streams.get_mut(id).clock);
        let (context, ordering) = (self.streams.get(id).context, self.streams.get(id).ordering);
        match ordering {
            LegacyOrdering::NonBlocking => {}
            LegacyOrdering::Blocking => {
                if let Some(legacy) = self.streams.legacy.get(&context) {
                    clock.join(&self.streams.get(*legacy).clock);
                }
            }
            LegacyOrdering::Legacy => self.streams.join_blocking(context, &mut clock),
        }
        clock.forget(&self.host);
        self.streams.get_mut(id).clock = clock;
    }

    pub(super) fn blocking(&self, context: Context) -> &[StreamId] {
        self.streams.blocking.get(&context).map_or(&[], Vec::as_slice)
    }

    fn create_stream(&mut self, context: Context, blocking: bool) -> DriverResult<u64> {
        let id = self.add_stream(context, blocking);
        self.streams.give_handle(id).ok_or(codes::OUT_OF_MEMORY)
    }

    fn add_stream(&mut self, context: Context, blocking: bool) -> StreamId {
        let place = self.contexts.describe(context);
        let ordering =
            if blocking { LegacyOrdering::Blocking } else { LegacyOrdering::NonBlocking };
        let name =
            format!("stream#{} ({place}, {})", self.streams.next_number(), ordering.as_str());
        self.streams.add(name, context, ordering, self.schedule.add_lane())
    }
}

const CREATE: &str = "cuStreamCreate";

impl Simulated {
    /// Returns the handle, which is above 2 and was no other stream's.
    pub fn create_stream(&self, ordinal: i32, blocking: bool) -> Result<u64> {
        self.make(CREATE, |state| {
            let context = state.contexts.primary(ordinal)?;
            state.create_stream(context, blocking)
        })
    }

    pub fn create_stream_in(&self, context: Context, blocking: bool) -> Result<u64> {
        self.make(CREATE, |state| {
            state.contexts.ordinal(context)?;
            state.create_stream(context, blocking)
        })
    }

    /// Makes a stream with the handle of a destroyed stream. CUDA's driver reuses such a handle for the next stream,
    /// even while work of the destroyed stream is pending (50 of 50 times, H200, driver 580, 2026-11).
    pub fn create_stream_again(&self, ordinal: i32, blocking: bool, handle: u64) -> Result<()> {
        self.make(CREATE, |state| {
            let context = state.contexts.primary(ordinal)?;
            let before = state.streams.known(handle).ok_or(codes::INVALID_HANDLE)?;
            if state.streams.get(before).alive {
                return Err(codes::INVALID_VALUE);
            }
            let id = state.add_stream(context, blocking);
            state.streams.pass_handle_on(handle, id);
            Ok(())
        })
    }

    pub fn name_stream(&self, handle: u64, name: &str) -> Result<()> {
        self.make("cuStreamSetName", |state| {
            let id = state.alive(handle)?;
            let place = state.contexts.describe(state.streams.get(id).context);
            let stream = state.streams.get_mut(id);
            stream.name = format!("stream '{name}' ({place}, {})", stream.ordering.as_str()).into();
            Ok(())
        })
    }

    /// Invalidates the stream's capture, if any. The stream's queued work still runs.
    pub fn destroy_stream(&self, handle: u64) -> Result<()> {
        self.make("cuStreamDestroy", |state| {
            if state.streams.known(handle).is_some_and(|id| state.streams.get(id).gone) {
                return Err(codes::CONTEXT_IS_DESTROYED);
            }
            let id = state.alive(handle)?;
            state.spoil_capture_of(id);
            state.streams.get_mut(id).alive = false;
            Ok(())
        })
    }

    /// Whether a stream, live or destroyed, was ever given this handle.
    pub fn gave_stream(&self, handle: u64) -> bool {
        self.lock().streams.known(handle).is_some()
    }

    pub fn stream_name(&self, stream: Stream) -> Result<String> {
        self.make("cuStreamGetId", |state| {
            let id = state.stream(stream)?;
            Ok(state.streams.get(id).name.as_ref().to_owned())
        })
    }
}
