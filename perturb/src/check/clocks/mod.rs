//! Decides whether anything orders two operations of a record: vector clocks of streams, and the accesses to
//! bytes. Pure.
//!
//! An operation is work on the device, or an access by the host. It has a stream and a number there. A clock
//! has, for each stream, the number up to which all operations are done. The host has one clock for all
//! threads, in the record's order. So a wait of one thread also counts for a later call of another, which
//! accuses less. If an order is not known, the stream is in *fog*: its work is not checked until the host has
//! waited for it.

mod clock;
mod order;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use self::clock::Clock;
pub(crate) use self::clock::Rule;
use super::cells::{Access, Cells, How, Touch};
use super::found::{Found, Hit};
use super::operation::Operation;
use crate::launch;
use crate::memory::{Memory, Place};
use crate::streams::LEGACY;

/// The most accesses of a cell to keep, unless every pair is wanted. At this number, a new access drops its
/// stream's oldest one, or else the oldest. A dropped access is no longer compared, which accuses less.
const MOST: usize = 64;

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Legacy,
    /// A thread's own default stream.
    Own,
    Blocking,
    NonBlocking,
    /// Not a stream: the host, for its own memory accesses.
    Host,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) handle: u64,
    pub(crate) form: Form,
    /// The stack of the call that made the stream; 0 if unknown.
    pub(crate) made: u64,
    clock: Clock,
    count: u32,
}

impl Stream {
    fn is_blocking(&self) -> bool {
        matches!(self.form, Form::Legacy | Form::Own | Form::Blocking)
    }
}

#[derive(Debug)]
enum Event {
    /// The event is not recorded yet: a wait for it does nothing.
    Never,
    At(Clock),
    /// The event stands for work that the check does not see, such as a node of a graph.
    Elsewhere,
}

/// Counts of what the check could not see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unseen {
    /// Waits of a stream for unknown work.
    pub(crate) orders: u64,
    /// Operations on streams in fog, which were not compared.
    pub(crate) fog: u64,
    /// Launches that were given no address in known memory.
    pub(crate) without: u64,
    /// Launches of graphs that could not be read.
    pub(crate) graphs: u64,
    /// Launches whose repeat from the same memory left other bytes.
    pub(crate) varying: u64,
    /// Launches during which the host's patience ended.
    pub(crate) lost: u64,
}

/// What the host waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    Stream(usize),
    Event(u64),
    All,
}

/// The checker. Call its methods in the record's order.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) without: Option<Rule>,
    /// Whether to find every pair of operations. If not, an access that a newer one replaces is dropped, and a
    /// cell keeps at most [`MOST`].
    pub(crate) every: bool,
    pub(crate) streams: Vec<Stream>,
    handles: BTreeMap<(u64, u64), usize>,
    host: Clock,
    /// By thread: the clock that the thread's active wait or query covers.
    begun: BTreeMap<u64, Clock>,
    events: BTreeMap<u64, Event>,
    values: BTreeMap<u64, (Clock, Vec<u64>)>,
    launched: BTreeMap<u64, Clock>,
    /// By the number of a host function: the clock that is done when the function runs. None: the function ran
    /// before its queuing call was recorded.
    functions: BTreeMap<u64, Option<Clock>>,
    pub(crate) memory: Memory,
    pub(crate) cells: Cells,
    pub(crate) operations: Vec<Operation>,
    pub(crate) found: Found,
    pub(crate) unseen: Unseen,
    pub(crate) addresses: u64,
    hits: Vec<Hit>,
}

impl Checker {
    pub(crate) fn new(bounds: Vec<u64>, every: bool) -> Self {
        let legacy = Stream {
            handle: LEGACY,
            form: Form::Legacy,
            made: 0,
            clock: Clock::default(),
            count: 0,
        };
        Self {
            without: None,
            every,
            streams: alloc::vec![legacy],
            handles: BTreeMap::from([((LEGACY, 0), 0)]),
            host: Clock::default(),
            begun: BTreeMap::new(),
            events: BTreeMap::new(),
            values: BTreeMap::new(),
            launched: BTreeMap::new(),
            functions: BTreeMap::new(),
            memory: Memory::NEW,
            cells: Cells::new(bounds),
            operations: Vec::new(),
            found: Found::default(),
            unseen: Unseen::default(),
            addresses: 0,
            hits: Vec::new(),
        }
    }

    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    // Streams.

    /// The index of a handle's stream. `thread` is 0, except for a thread's own default stream. Makes an
    /// unknown stream.
    pub(crate) fn stream(&mut self, handle: u64, thread: u64) -> usize {
        if let Some(known) = self.handles.get(&(handle, thread)) {
            return *known;
        }
        // A stream whose creation was not seen may be a blocking one.
        self.make(handle, thread, if thread > 0 { Form::Own } else { Form::Blocking })
    }

    pub(crate) fn make(&mut self, handle: u64, thread: u64, form: Form) -> usize {
        let new = self.streams.len();
        self.streams.push(Stream { handle, form, made: 0, clock: Clock::default(), count: 0 });
        self.handles.insert((handle, thread), new);
        new
    }

    /// Forgets the handle of a destroyed stream. Another stream may get the handle.
    pub(crate) fn destroy(&mut self, handle: u64) {
        self.handles.remove(&(handle, 0));
    }

    fn clock(&self, stream: usize) -> Clock {
        self.streams.get(stream).map(|one| one.clock.clone()).unwrap_or_default()
    }

    fn join(&mut self, stream: usize, other: &Clock) {
        if let Some(one) = self.streams.get_mut(stream) {
            one.clock.join(other);
        }
    }

    /// Adds to a stream's clock the work that new work on the stream waits for by the rules of the legacy
    /// default stream.
    fn arrive(&mut self, stream: usize) {
        let taken = self.streams.get_mut(stream).map(|one| core::mem::take(&mut one.clock));
        let Some(mut clock) = taken else { return };
        self.join_blocking(stream, &mut clock);
        if let Some(one) = self.streams.get_mut(stream) {
            one.clock = clock;
        }
    }

    /// Adds the work of all blocking streams to the clock of the legacy default stream, or its work to a
    /// blocking stream's clock.
    fn join_blocking(&self, stream: usize, clock: &mut Clock) {
        if stream == 0 && self.has(Rule::Legacy) {
            for other in self.streams.iter().skip(1).filter(|one| one.is_blocking()) {
                clock.join(&other.clock);
            }
        }
        let is_blocking = self.streams.get(stream).is_some_and(Stream::is_blocking);
        if stream != 0
            && is_blocking
            && self.has(Rule::Blocking)
            && let Some(legacy) = self.streams.first()
        {
            clock.join(&legacy.clock);
        }
    }

    // Operations.

    /// Queues an operation on a stream, and compares its touches with older accesses, unless the stream is in
    /// fog. The touches lie in known memory.
    pub(crate) fn work(&mut self, stream: usize, mut operation: Operation, touches: &[Touch]) {
        self.arrive(stream);
        let Some(of) = self.streams.get_mut(stream) else { return };
        of.count += 1;
        (operation.stream, operation.number) =
            (u32::try_from(stream).unwrap_or(u32::MAX), of.count);
        let index = u32::try_from(self.operations.len()).unwrap_or(u32::MAX);
        self.operations.push(operation);
        self.addresses += touches.len() as u64;
        if of.clock.fog {
            self.unseen.fog += 1;
        } else {
            let clock = core::mem::take(&mut of.clock);
            for touch in touches {
                self.touch(index, &operation, &clock, touch);
            }
            if let Some(of) = self.streams.get_mut(stream) {
                of.clock = clock;
            }
            let hits = core::mem::take(&mut self.hits);
            self.found.add(index, &hits, &self.operations, &self.memory, self.every);
            self.hits = hits;
            self.hits.clear();
        }
        if let Some(of) = self.streams.get_mut(stream) {
            of.clock.set(stream, operation.number);
        }
    }

    fn touch(&mut self, index: u32, operation: &Operation, clock: &Clock, touch: &Touch) {
        let by_host = self.has(Rule::Host);
        let Self { host, every, hits, cells, .. } = self;
        let every = *every;
        let new = Access {
            operation: index,
            stream: operation.stream,
            number: operation.number,
            lost: operation.flags & launch::LOST != 0,
            site: super::found::site(operation),
            touch: *touch,
        };
        let is_over = |one: &Access, clock: &Clock| clock.has(one.stream, one.number);
        cells.each(touch, |low, high, list| {
            list.retain(|old| {
                if by_host && is_over(old, host) {
                    return false;
                }
                if old.operation == index || !old.touch.meets(touch) {
                    return true;
                }
                if is_over(old, clock) {
                    return every || !new.replaces(old);
                }
                if let Some(is_sure) = old.touch.conflicts(touch) {
                    let both = (
                        low.max(old.touch.low).max(touch.low),
                        high.min(old.touch.high).min(touch.high),
                    );
                    Hit::add(hits, old, touch, both, is_sure && !new.lost && !old.lost);
                }
                true
            });
            if !every && list.len() >= MOST {
                let is_same = |old: &Access| old.stream == new.stream;
                list.remove(list.iter().position(is_same).unwrap_or(0));
            }
            list.push(new);
        });
    }

    /// The host touches a byte, after all work that it has waited for. Compared only if the byte is in known
    /// memory.
    pub(crate) fn touched(&mut self, operation: Operation, address: u64, how: How) {
        let stream = self.on_host();
        let touch = Touch::exact(address, address.saturating_add(1), how);
        let touches = Some(touch).filter(|_| self.memory.find(address).is_some());
        self.work(stream, operation, touches.as_slice());
        let clock = self.clock(stream);
        self.host.join_known(&clock);
    }

    /// The index of the stream that stands for the host's own accesses.
    fn on_host(&mut self) -> usize {
        let stream = self.stream(u64::MAX, u64::MAX);
        if let Some(of) = self.streams.get_mut(stream) {
            of.form = Form::Host;
        }
        stream
    }

    // Memory.

    /// The bytes are newly allocated, so earlier accesses to their cells are forgotten.
    pub(crate) fn taken(&mut self, low: u64, size: u64) {
        if self.has(Rule::Again) {
            self.cells.clear(low, low.saturating_add(size));
        }
    }

    /// A pool's memory at `low` is allocated or freed, in a stream's order. Counts as a write of it.
    pub(crate) fn pooled(&mut self, stream: usize, operation: Operation, low: u64, is_free: bool) {
        let rule = if is_free { Rule::Freed } else { Rule::Allocated };
        let whole = self.memory.find(low).filter(|_| self.has(rule));
        let touches = whole.map(|one| Touch::exact(one.low, one.high(), How::Write));
        self.work(stream, operation, touches.as_slice());
    }

    /// A call without a stream frees the memory at `low`. For a pool's memory this counts as a write by the
    /// host; for other memory the host waits for all work.
    pub(crate) fn freed(&mut self, thread: u64, operation: Operation, low: u64) {
        match self.memory.find(low) {
            // A free of a pool's memory waits for nothing.
            Some(one) if one.place == Place::Pool => {
                self.begun.remove(&thread);
                let stream = self.on_host();
                let whole = Touch::exact(one.low, one.high(), How::Write);
                let touches = Some(whole).filter(|_| self.has(Rule::FreedByHost));
                self.work(stream, operation, touches.as_slice());
                let clock = self.clock(stream);
                self.host.join_known(&clock);
            }
            _ if self.has(Rule::Free) => self.waited(thread, For::All),
            _ => {}
        }
    }
}
