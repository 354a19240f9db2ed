//! The table of streams: their state, and every way to name them.

use std::collections::HashMap;
use std::sync::Arc;

use super::clock::{Clock, Lane};
use crate::driver::Context;
use crate::stream::Thread;

const FIRST: u64 = 0x5000_0000;
const STEP: u64 = 0x10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StreamId(usize);

impl StreamId {
    /// The number that `cuStreamGetId` returns. Never 0.
    pub(super) const fn number(self) -> u64 {
        self.0 as u64 + 1
    }
}

/// How CUDA orders a stream with its context's legacy default stream. `Legacy` is that stream itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegacyOrdering {
    Legacy,
    Blocking,
    NonBlocking,
}

impl LegacyOrdering {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NonBlocking => "non-blocking",
            Self::Legacy | Self::Blocking => "blocking",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CaptureId(usize);

impl CaptureId {
    pub(super) const fn numbered(index: usize) -> Self {
        Self(index)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }
}

#[derive(Debug)]
pub(super) struct CaptureMember {
    pub(super) capture: CaptureId,
    /// `lane`, and the lanes of `clock`, belong to the capture, not to the schedule.
    pub(super) lane: Lane,
    pub(super) clock: Clock,
}

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) name: Arc<str>,
    pub(super) context: Context,
    pub(super) ordering: LegacyOrdering,
    pub(super) lane: Lane,
    pub(super) clock: Clock,
    pub(super) alive: bool,
    /// Whether a reset of the context destroyed the stream.
    pub(super) gone: bool,
    pub(super) member: Option<CaptureMember>,
}

#[derive(Debug, Default)]
pub(super) struct StreamTable {
    all: Vec<StreamState>,
    handles: Vec<StreamId>,
    created: usize,
    pub(super) legacy: HashMap<Context, StreamId>,
    pub(super) per_thread: HashMap<(Thread, Context), StreamId>,
    threads: Vec<Thread>,
    /// The blocking streams of each context. A destroyed stream stays in the list until the legacy default stream is
    /// ordered after its work, or the context is reset.
    pub(super) blocking: HashMap<Context, Vec<StreamId>>,
}

impl StreamTable {
    pub(super) fn get(&self, id: StreamId) -> &StreamState {
        &self.all[id.0]
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> &mut StreamState {
        &mut self.all[id.0]
    }

    pub(super) fn ids(&self) -> impl ExactSizeIterator<Item = StreamId> + use<> {
        (0..self.all.len()).map(StreamId)
    }

    pub(super) fn clocks(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.all.iter_mut().map(|stream| &mut stream.clock)
    }

    pub(super) fn add(
        &mut self,
        name: String,
        context: Context,
        ordering: LegacyOrdering,
        lane: Lane,
    ) -> StreamId {
        let id = StreamId(self.all.len());
        let name = Arc::from(name);
        self.all.push(StreamState {
            name,
            context,
            ordering,
            lane,
            clock: Clock::default(),
            alive: true,
            gone: false,
            member: None,
        });
        if ordering == LegacyOrdering::Blocking {
            self.blocking.entry(context).or_default().push(id);
        }
        id
    }

    /// Destroys the context's streams. The next use of a default stream makes a new one.
    pub(super) fn take_down(&mut self, context: Context) {
        for stream in self.all.iter_mut().filter(|stream| stream.context == context) {
            stream.gone |= std::mem::replace(&mut stream.alive, false);
        }
        self.legacy.remove(&context);
        self.per_thread.retain(|(_, of), _| *of != context);
        self.blocking.remove(&context);
    }

    /// Orders `clock`, which is the legacy stream's, after the context's blocking streams.
    pub(super) fn join_blocking(&mut self, context: Context, clock: &mut Clock) {
        let Some(blocking) = self.blocking.get_mut(&context) else { return };
        for other in &*blocking {
            clock.join(&self.all[other.0].clock);
        }
        // A dead stream gets no more work, so its clock need not be joined again.
        blocking.retain(|other| self.all[other.0].alive);
    }

    pub(super) const fn next_number(&mut self) -> usize {
        self.created += 1;
        self.created
    }

    pub(super) fn give_handle(&mut self, id: StreamId) -> Option<u64> {
        let offset = u64::try_from(self.handles.len()).ok()?.checked_mul(STEP)?;
        let handle = FIRST.checked_add(offset)?;
        self.handles.push(id);
        Some(handle)
    }

    pub(super) fn pass_handle_on(&mut self, handle: u64, id: StreamId) {
        if let Some(place) = place_of(handle).and_then(|place| self.handles.get_mut(place)) {
            *place = id;
        }
    }

    /// Returns a destroyed stream as well.
    pub(super) fn known(&self, handle: u64) -> Option<StreamId> {
        self.handles.get(place_of(handle)?).copied()
    }

    /// Numbers the threads from 1, in the order of their first use.
    pub(super) fn thread_number(&mut self, thread: Thread) -> usize {
        let known = self.threads.iter().position(|known| *known == thread);
        known.unwrap_or_else(|| {
            self.threads.push(thread);
            self.threads.len() - 1
        }) + 1
    }
}

fn place_of(handle: u64) -> Option<usize> {
    let offset = handle.checked_sub(FIRST).filter(|offset| offset % STEP == 0)?;
    usize::try_from(offset / STEP).ok()
}
