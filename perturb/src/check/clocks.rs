//! Happens-before over a record: vector clocks of streams, and who touches which bytes. Pure.
//!
//! What runs on the device is an operation: it has a stream and a number there. A clock says of each stream up to which
//! number all is over. The host has one clock for all threads, in the order of the record: on what one thread has
//! waited for, another one's later call counts as well, which accuses less. Where an order is not known, a stream is in
//! *fog*: nothing is said of what it does, until the host has waited for it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::cells::{Access, Cells, How, Touch};
use super::found::{Found, Hit};
use crate::memory::{Memory, Place};
use crate::streams::LEGACY;

/// So many accesses of a cell are kept in mind: the oldest of a stream goes for a new one of its own. What is dropped is
/// not compared any longer, which accuses less.
const MOST: usize = 64;

/// The rules, so that tests can leave one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What the host has waited for is over, for whatever comes.
    Host,
    /// The legacy default stream waits for blocking streams, and they for it.
    Legacy,
    Blocking,
    /// An event stands for what its stream had queued when it was recorded last; a stream waits for it.
    Record,
    Wait,
    /// The host waits for a stream, for an event, for everything.
    Stream,
    Event,
    All,
    /// A wait covers what was queued when it began.
    Begin,
    /// A copy with pageable memory makes the host wait.
    Copy,
    /// Memory that is not from a pool is freed when everything is over.
    Free,
    /// Memory of a pool is written by its allocation, its free, and a free by the host.
    Allocated,
    Freed,
    FreedByHost,
    /// Memory that is given out again is another one.
    Again,
    /// A stream waits for a value that another one writes.
    Value,
    /// An order that is not known.
    Fog,
    /// A launch of a graph waits for the one before.
    Graph,
    /// When a host function runs, what was queued before it is over.
    Function,
}

/// Of each stream, up to which of its operations all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    numbers: Vec<u32>,
    /// Whether it is behind something whose order is not known.
    fog: bool,
}

impl Clock {
    fn join(&mut self, other: &Self) {
        self.fog |= other.fog;
        self.join_known(other);
    }

    fn join_known(&mut self, other: &Self) {
        if self.numbers.len() < other.numbers.len() {
            self.numbers.resize(other.numbers.len(), 0);
        }
        for (to, from) in self.numbers.iter_mut().zip(&other.numbers) {
            *to = (*to).max(*from);
        }
    }

    fn has(&self, stream: u32, number: u32) -> bool {
        self.numbers.get(stream as usize).copied().unwrap_or(0) >= number
    }

    fn set(&mut self, stream: usize, number: u32) {
        if self.numbers.len() <= stream {
            self.numbers.resize(stream + 1, 0);
        }
        if let Some(to) = self.numbers.get_mut(stream) {
            *to = number;
        }
    }
}

/// What kind of stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Legacy,
    /// A thread's own default stream.
    Own,
    Blocking,
    NonBlocking,
    /// The host, where it touches memory by itself.
    Host,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) handle: u64,
    pub(crate) form: Form,
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
    /// It was made, and not recorded yet: a wait for it is none.
    Never,
    At(Clock),
    /// It stands for something that is not seen: a node of a graph, another process's work.
    Elsewhere,
}

/// An operation, as the report needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its row in the table, and its name: an index, or `u32::MAX`.
    pub(crate) row: u32,
    pub(crate) name: u32,
    pub(crate) stream: u32,
    pub(crate) number: u32,
    pub(crate) stack: u32,
    /// Which launch of its name it is, from 0 on.
    pub(crate) place: u32,
    /// As `cai-bridge perturb` numbers it, and 1 more; 0: it does not.
    pub(crate) numbered: u64,
    /// The host's patience has ended with it.
    pub(crate) lost: bool,
}

/// What was not seen, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unseen {
    /// Waits for what is not known, and operations behind them.
    pub(crate) orders: u64,
    pub(crate) fog: u64,
    /// Launches without a known address; of graphs that could not be read.
    pub(crate) without: u64,
    pub(crate) graphs: u64,
    /// Launches that leave something else when they are made again; those with which the host's patience ended.
    pub(crate) varying: u64,
    pub(crate) lost: u64,
}

/// What the host waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    Stream(usize),
    Event(u64),
    All,
}

/// Call its methods in the order of the record.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) without: Option<Rule>,
    /// Whether each pair is found, and not only one of each two lines at least.
    pub(crate) every: bool,
    pub(crate) streams: Vec<Stream>,
    handles: BTreeMap<(u64, u64), usize>,
    host: Clock,
    /// What each thread's wait covers, if it has begun one.
    begun: BTreeMap<u64, Clock>,
    events: BTreeMap<u64, Event>,
    values: BTreeMap<u64, (Clock, Vec<u64>)>,
    launched: BTreeMap<u64, Clock>,
    /// What is over when a host function runs; None: it ran before its call was written down.
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
        let legacy =
            Stream { handle: LEGACY, form: Form::Legacy, clock: Clock::default(), count: 0 };
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

    /// The stream of a handle; `thread` is 0 but for a thread's own default stream.
    pub(crate) fn stream(&mut self, handle: u64, thread: u64) -> usize {
        if let Some(known) = self.handles.get(&(handle, thread)) {
            return *known;
        }
        // One that was made unseen may be a blocking one, for all that is known.
        self.make(handle, thread, if thread > 0 { Form::Own } else { Form::Blocking })
    }

    pub(crate) fn make(&mut self, handle: u64, thread: u64, form: Form) -> usize {
        let new = self.streams.len();
        self.streams.push(Stream { handle, form, clock: Clock::default(), count: 0 });
        self.handles.insert((handle, thread), new);
        new
    }

    /// Its handle may come back as another one's.
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

    /// Joins to a stream's clock what anything on it comes behind.
    fn arrive(&mut self, stream: usize) {
        let taken = self.streams.get_mut(stream).map(|one| core::mem::take(&mut one.clock));
        let Some(mut clock) = taken else { return };
        self.join_blocking(stream, &mut clock);
        if let Some(one) = self.streams.get_mut(stream) {
            one.clock = clock;
        }
    }

    /// The legacy default stream waits for all blocking streams, and each of them for it.
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

    /// Work is queued. What it touches lies in known memory.
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
        let Self { operations, host, every, hits, cells, .. } = self;
        let (every, site) = (*every, super::found::site(operation));
        let is_over = |one: &Access, clock: &Clock| {
            let by = operations.get(one.operation as usize);
            by.is_some_and(|by| clock.has(by.stream, by.number))
        };
        let new = Access { operation: index, site, touch: *touch };
        cells.each(touch, |low, high, list| {
            list.retain(|old| {
                if by_host && is_over(old, host) {
                    return false;
                }
                if old.operation == index || !old.touch.meets(touch) {
                    return true;
                }
                if is_over(old, clock) {
                    return every || !new.replaces(old, operations);
                }
                if let Some(is_sure) = old.touch.conflicts(touch) {
                    let lost = operation.lost
                        || operations.get(old.operation as usize).is_some_and(|one| one.lost);
                    let both = (
                        low.max(old.touch.low).max(touch.low),
                        high.min(old.touch.high).min(touch.high),
                    );
                    Hit::add(hits, old, touch, both, is_sure && !lost);
                }
                true
            });
            if !every && list.len() >= MOST {
                let is_same = |old: &Access| {
                    operations
                        .get(old.operation as usize)
                        .is_some_and(|by| by.stream == operation.stream)
                };
                list.remove(list.iter().position(is_same).unwrap_or(0));
            }
            list.push(new);
        });
    }

    // Memory.

    /// What was in use there is another memory's now.
    pub(crate) fn taken(&mut self, low: u64, size: u64) {
        if self.has(Rule::Again) {
            self.cells.clear(low, low.saturating_add(size));
        }
    }

    /// Memory of a pool is allocated, or freed, in a stream's order.
    pub(crate) fn pooled(&mut self, stream: usize, operation: Operation, low: u64, is_free: bool) {
        let rule = if is_free { Rule::Freed } else { Rule::Allocated };
        let whole = self.memory.find(low).filter(|_| self.has(rule));
        let touches = whole.map(|one| Touch::exact(one.low, one.high(), How::Write));
        self.work(stream, operation, touches.as_slice());
    }

    /// Memory is freed by a call that has no stream.
    pub(crate) fn freed(&mut self, thread: u64, operation: Operation, low: u64) {
        match self.memory.find(low) {
            // It waits for nothing.
            Some(one) if one.place == Place::Pool => {
                self.begun.remove(&thread);
                let stream = self.stream(u64::MAX, u64::MAX);
                if let Some(of) = self.streams.get_mut(stream) {
                    of.form = Form::Host;
                }
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

    // Order.

    /// An event is made.
    pub(crate) fn event(&mut self, event: u64) {
        self.events.insert(event, Event::Never);
    }

    pub(crate) fn forget(&mut self, event: u64) {
        self.events.remove(&event);
    }

    pub(crate) fn record(&mut self, event: u64, stream: usize) {
        if !self.has(Rule::Record) && self.events.contains_key(&event) {
            return;
        }
        self.arrive(stream);
        let clock = self.clock(stream);
        self.events.insert(event, Event::At(clock));
    }

    /// An event stands for what is not seen.
    pub(crate) fn elsewhere(&mut self, event: u64) {
        self.events.insert(event, Event::Elsewhere);
    }

    /// Any event may have been recorded, unseen.
    pub(crate) fn any_event(&mut self) {
        for event in self.events.values_mut() {
            *event = Event::Elsewhere;
        }
    }

    pub(crate) fn wait(&mut self, stream: usize, event: u64) {
        self.arrive(stream);
        match self.events.get(&event) {
            Some(Event::At(clock)) if self.has(Rule::Wait) => {
                let clock = clock.clone();
                self.join(stream, &clock);
            }
            Some(Event::Never | Event::At(_)) => {}
            Some(Event::Elsewhere) | None => self.unknown(stream),
        }
    }

    /// The stream waits for what is not known.
    pub(crate) fn unknown(&mut self, stream: usize) {
        self.unseen.orders += 1;
        if let Some(one) = self.streams.get_mut(stream)
            && self.without != Some(Rule::Fog)
        {
            one.clock.fog = true;
        }
    }

    fn everything(&self) -> Clock {
        let mut all = Clock::default();
        self.streams.iter().for_each(|one| all.join(&one.clock));
        all
    }

    fn pending(&self, what: For) -> Clock {
        match what {
            For::Stream(_) if !self.has(Rule::Stream) => Clock::default(),
            For::Event(_) if !self.has(Rule::Event) => Clock::default(),
            For::All if !self.has(Rule::All) => Clock::default(),
            For::Stream(stream) => {
                let mut clock = self.clock(stream);
                if stream == 0 {
                    self.join_blocking(0, &mut clock);
                }
                clock
            }
            For::Event(event) => match self.events.get(&event) {
                Some(Event::At(clock)) => clock.clone(),
                Some(Event::Never) => Clock::default(),
                Some(Event::Elsewhere) | None => Clock { fog: true, ..self.everything() },
            },
            For::All => self.everything(),
        }
    }

    /// A thread of the host begins to wait.
    pub(crate) fn begin(&mut self, thread: u64, what: For) {
        let clock = self.pending(what);
        self.begun.insert(thread, clock);
    }

    /// It has waited.
    pub(crate) fn waited(&mut self, thread: u64, what: For) {
        let begun = self.begun.remove(&thread);
        let clock = match begun {
            Some(begun) if self.has(Rule::Begin) => begun,
            _ => self.pending(what),
        };
        self.is_over(&clock);
        match what {
            For::Stream(stream) => {
                if let Some(one) = self.streams.get_mut(stream) {
                    one.clock.fog = false;
                }
            }
            For::All => self.streams.iter_mut().for_each(|one| one.clock.fog = false),
            For::Event(_) => {}
        }
    }

    /// The host has waited for what was just queued on a stream.
    pub(crate) fn copied(&mut self, thread: u64, stream: usize) {
        if self.has(Rule::Copy) {
            self.begun.remove(&thread);
            self.waited(thread, For::Stream(stream));
        }
    }

    /// The host may know that all is over on a stream, from now on.
    pub(crate) fn told(&mut self, stream: usize) {
        let clock = self.clock(stream);
        self.is_over(&clock);
    }

    fn is_over(&mut self, clock: &Clock) {
        if clock.fog {
            // What the fog hid is over, and nobody knows what that was.
            let all = self.everything();
            self.host.join_known(&all);
        }
        self.host.join_known(clock);
    }

    /// A host function was queued.
    pub(crate) fn function(&mut self, number: u64, stream: usize) {
        if !self.has(Rule::Function) {
            return;
        }
        let clock = self.clock(stream);
        if self.functions.remove(&number).is_some() {
            self.is_over(&clock);
        } else {
            self.functions.insert(number, Some(clock));
        }
    }

    /// It runs.
    pub(crate) fn ran(&mut self, number: u64) {
        match self.functions.remove(&number) {
            Some(Some(clock)) => self.is_over(&clock),
            _ => {
                self.functions.insert(number, None);
            }
        }
    }

    // Values.

    pub(crate) fn write_value(&mut self, stream: usize, address: u64, value: u64) {
        let clock = self.clock(stream);
        let known = self.values.entry(address).or_default();
        known.0.join(&clock);
        known.1.push(value);
    }

    /// A stream waits until a value is there. `is_met` tells which ones do.
    pub(crate) fn wait_value(&mut self, stream: usize, address: u64, is_met: impl Fn(u64) -> bool) {
        self.arrive(stream);
        let known =
            self.values.get(&address).filter(|one| one.1.iter().any(|value| is_met(*value)));
        match known.map(|one| one.0.clone()) {
            Some(clock) if self.has(Rule::Value) => self.join(stream, &clock),
            Some(_) => {}
            // Somebody else writes it, or will.
            None => self.unknown(stream),
        }
    }

    // Graphs.

    /// A graph is launched: what its nodes touch is touched by the launch.
    pub(crate) fn launch(
        &mut self,
        executable: u64,
        stream: usize,
        operation: Operation,
        touches: &[Touch],
    ) {
        if let Some(before) = self.launched.get(&executable).filter(|_| self.has(Rule::Graph)) {
            let before = before.clone();
            self.join(stream, &before);
        }
        self.work(stream, operation, touches);
        let clock = self.clock(stream);
        self.launched.insert(executable, clock);
    }
}
