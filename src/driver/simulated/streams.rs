//! Streams, and the order that CUDA gives them.
//!
//! Each stream is a lane. The legacy default stream of a context is ordered with its blocking
//! streams, per-thread default streams included: an action on it comes after all of theirs before,
//! and theirs come after it. An action is anything that is queued: work, an event recorded, a wait.
//! Streams made later come after it as well. Non-blocking streams take no part.

use std::collections::HashMap;
use std::sync::Arc;

use super::calls::DriverResult;
use super::capture::Member;
use super::clock::{Clock, Lane};
use super::codes;
use super::report::ReportKind;
use super::{Simulated, State};
use crate::driver::Context;
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// Handles look like pointers, and are the same numbers in every run. None is used twice.
const FIRST: u64 = 0x5000_0000;
const STEP: u64 = 0x10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StreamId(usize);

/// How a stream takes part in the legacy default stream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Legacy,
    Blocking,
    NonBlocking,
}

impl Role {
    /// What it is called where a stream is named.
    const fn as_str(self) -> &'static str {
        match self {
            Self::NonBlocking => "non-blocking",
            Self::Legacy | Self::Blocking => "blocking",
        }
    }
}

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) name: Arc<str>,
    pub(super) context: Context,
    pub(super) role: Role,
    pub(super) lane: Lane,
    /// What the next work on it is ordered after.
    pub(super) clock: Clock,
    alive: bool,
    /// Whether it went with its context.
    gone: bool,
    /// Its part in a capture, if it is being captured.
    pub(super) member: Option<Member>,
}

/// All streams, by every way to name one.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<StreamState>,
    handles: Vec<StreamId>,
    legacy: HashMap<Context, StreamId>,
    per_thread: HashMap<(Thread, Context), StreamId>,
    threads: Vec<Thread>,
    /// The blocking streams of each context that its legacy stream has yet to be ordered after.
    blocking: HashMap<Context, Vec<StreamId>>,
}

impl Streams {
    pub(super) fn get(&self, id: StreamId) -> &StreamState {
        &self.all[id.0]
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> &mut StreamState {
        &mut self.all[id.0]
    }

    pub(super) fn ids(&self) -> impl ExactSizeIterator<Item = StreamId> + use<> {
        (0..self.all.len()).map(StreamId)
    }

    /// What the next work on each is ordered after.
    pub(super) fn clocks(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.all.iter_mut().map(|stream| &mut stream.clock)
    }

    fn add(&mut self, name: String, context: Context, role: Role, lane: Lane) -> StreamId {
        let id = StreamId(self.all.len());
        let name = Arc::from(name);
        self.all.push(StreamState {
            name,
            context,
            role,
            lane,
            clock: Clock::default(),
            alive: true,
            gone: false,
            member: None,
        });
        if role == Role::Blocking {
            self.blocking.entry(context).or_default().push(id);
        }
        id
    }

    /// Ends all streams of a context that was reset; it has new default streams when it is used again.
    pub(super) fn take_down(&mut self, context: Context) {
        for stream in self.all.iter_mut().filter(|stream| stream.context == context) {
            stream.gone |= std::mem::replace(&mut stream.alive, false);
        }
        self.legacy.remove(&context);
        self.per_thread.retain(|(_, of), _| *of != context);
        self.blocking.remove(&context);
    }

    /// The stream that had or has the handle.
    fn known(&self, handle: u64) -> Option<StreamId> {
        let offset = handle.checked_sub(FIRST).filter(|offset| offset % STEP == 0)?;
        self.handles.get(usize::try_from(offset / STEP).ok()?).copied()
    }

    /// The thread's number in reports: counted here, so that it is the same in every run.
    fn thread_number(&mut self, thread: Thread) -> usize {
        let known = self.threads.iter().position(|known| *known == thread);
        known.unwrap_or_else(|| {
            self.threads.push(thread);
            self.threads.len() - 1
        }) + 1
    }
}

impl State {
    /// The stream of that name, for the simulated device's own calls: a per-thread default stream
    /// is the named thread's, whoever calls.
    pub(super) fn stream(&mut self, stream: Stream) -> DriverResult<StreamId> {
        match stream {
            Stream::Legacy => self.contexts.needed().map(|context| self.legacy(context)),
            Stream::PerThread(thread) => {
                self.contexts.needed().map(|context| self.per_thread(thread, context))
            }
            Stream::Handle(handle) => self.alive(handle),
        }
    }

    /// The stream that a driver call takes: its handle 2 means the calling thread's, whoever is named.
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
        let id = self.streams.add(name, context, Role::Legacy, self.schedule.add_lane());
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
        let id = self.streams.add(name, context, Role::Blocking, self.schedule.add_lane());
        self.streams.per_thread.insert((thread, context), id);
        id
    }

    /// An action on a stream, from the host: takes over what the stream is implicitly ordered after.
    pub(super) fn advance(&mut self, id: StreamId) {
        let mut clock = std::mem::take(&mut self.streams.get_mut(id).clock);
        let (context, role) = (self.streams.get(id).context, self.streams.get(id).role);
        match role {
            Role::NonBlocking => {}
            Role::Blocking => {
                if let Some(legacy) = self.streams.legacy.get(&context) {
                    clock.join(&self.streams.get(*legacy).clock);
                }
            }
            Role::Legacy => {
                if let Some(blocking) = self.streams.blocking.get_mut(&context) {
                    let all = &self.streams.all;
                    for other in &*blocking {
                        clock.join(&all[other.0].clock);
                    }
                    // Nothing comes to a dead stream any more, so once is enough.
                    blocking.retain(|other| all[other.0].alive);
                }
            }
        }
        clock.forget(&self.host);
        self.streams.get_mut(id).clock = clock;
    }

    /// The blocking streams of a context.
    pub(super) fn blocking(&self, context: Context) -> &[StreamId] {
        self.streams.blocking.get(&context).map_or(&[], Vec::as_slice)
    }

    fn create_stream(&mut self, context: Context, blocking: bool) -> DriverResult<u64> {
        let number = self.streams.handles.len();
        let place = self.contexts.describe(context);
        let role = if blocking { Role::Blocking } else { Role::NonBlocking };
        let offset = u64::try_from(number).ok().and_then(|number| number.checked_mul(STEP));
        let handle = offset.and_then(|offset| FIRST.checked_add(offset));
        let handle = handle.ok_or(codes::OUT_OF_MEMORY)?;
        let name = format!("stream#{} ({place}, {})", number + 1, role.as_str());
        let id = self.streams.add(name, context, role, self.schedule.add_lane());
        self.streams.handles.push(id);
        Ok(handle)
    }
}

const CREATE: &str = "cuStreamCreate";

impl Simulated {
    /// Makes a stream in a device's primary context; returns its handle, which is above 2 and never
    /// used for another stream.
    pub fn create_stream(&self, ordinal: i32, blocking: bool) -> Result<u64> {
        self.make(CREATE, |state| {
            let context = state.contexts.primary(ordinal)?;
            state.create_stream(context, blocking)
        })
    }

    /// The same in a context of the caller's choice.
    pub fn create_stream_in(&self, context: Context, blocking: bool) -> Result<u64> {
        self.make(CREATE, |state| {
            state.contexts.ordinal(context)?;
            state.create_stream(context, blocking)
        })
    }

    /// Gives a stream a name of the program's own, for reports.
    pub fn name_stream(&self, handle: u64, name: &str) -> Result<()> {
        self.make("cuStreamSetName", |state| {
            let id = state.alive(handle)?;
            let place = state.contexts.describe(state.streams.get(id).context);
            let stream = state.streams.get_mut(id);
            stream.name = format!("stream '{name}' ({place}, {})", stream.role.as_str()).into();
            Ok(())
        })
    }

    /// Destroys a stream. What is queued on it still runs; the handle is dead.
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

    /// How reports name a stream.
    pub fn stream_name(&self, stream: Stream) -> Result<String> {
        self.make("cuStreamGetId", |state| {
            let id = state.stream(stream)?;
            Ok(state.streams.get(id).name.as_ref().to_owned())
        })
    }
}
