//! Passes the calls of a record to the clocks. Pure.

mod call;
mod evidence;
mod other;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

pub(crate) use self::call::read;
use self::call::{Bytes, Call, Graph, bounds, bytes, each, graph, text};
pub(crate) use self::evidence::Evidence;
use self::evidence::Given;
use super::cells::{How, Touch};
use super::clocks::{Checker, For};
use super::operation::Operation;
use crate::driver::handle;
use crate::entries::{ENTRIES, Kind as Does, Row};
use crate::graphs::{CALLS, UNREAD, WAITS};
use crate::kernel_arguments::hash;
use crate::launch;
use crate::memory::Place;
use crate::record::Kind;
use crate::streams::PER_THREAD;

/// The driver makes the host wait for a copy of more bytes than this from pageable memory.
const STAGED: u64 = 65_536;

/// Passes the calls of a record to the clocks.
pub(crate) struct Reader<'a> {
    words: &'a [u64],
    pub(crate) checker: Checker,
    pub(crate) calls: u64,
    /// The names of kernels, and of the launch of a graph, with their hashes.
    pub(crate) names: Vec<(String, u64)>,
    /// The index in `names` of each kernel, by handle.
    kernels: BTreeMap<u64, u32>,
    /// The number of launches so far, by the name's index.
    places: BTreeMap<u32, u32>,
    graphs: BTreeMap<u64, Graph>,
    /// The kernels of each graph launch, by its operation.
    pub(crate) inner: BTreeMap<u32, Vec<u32>>,
    /// By the operation of a graph launch: the touches of the graph's nodes, each after the stack of the call
    /// that made the node.
    nodes: BTreeMap<u32, Rc<Vec<(u64, Touch)>>>,
    /// As `nodes`, by the handle of an executable graph.
    made: BTreeMap<u64, Rc<Vec<(u64, Touch)>>>,
    /// The bytes of each thread's next call.
    bytes: BTreeMap<u64, Bytes>,
    pub(crate) codes: BTreeMap<u64, (String, String)>,
    pub(crate) stacks: BTreeMap<u64, &'a [u64]>,
    /// What this run shows about its launches.
    pub(crate) evidence: Evidence,
    /// What another run showed about its launches, if there was one.
    told: Option<&'a Evidence>,
    /// The launch that was being repeated when the process ended: hash of the name, and number.
    pub(crate) trying: Option<(u64, u64)>,
    touches: Vec<Touch>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(words: &'a [u64], every: bool, told: Option<&'a Evidence>) -> Self {
        Self {
            words,
            checker: Checker::new(bounds(words), every),
            calls: 0,
            names: Vec::new(),
            kernels: BTreeMap::new(),
            places: BTreeMap::new(),
            graphs: BTreeMap::new(),
            inner: BTreeMap::new(),
            nodes: BTreeMap::new(),
            made: BTreeMap::new(),
            bytes: BTreeMap::new(),
            codes: BTreeMap::new(),
            stacks: BTreeMap::new(),
            evidence: Evidence::default(),
            told,
            trying: None,
            touches: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) -> Self {
        let words = self.words;
        each(words, |kind, body| self.take(kind, body));
        self
    }

    fn take(&mut self, kind: u64, body: &'a [u64]) {
        let first = body.first().copied().unwrap_or(0);
        let rest = body.get(1..).unwrap_or_default();
        match kind {
            _ if kind == Kind::Call as u64 => {
                if let Some(call) = Call::read(body, false) {
                    self.calls += 1;
                    self.call(&call);
                }
            }
            _ if kind == Kind::Begin as u64 => {
                if let Some(call) = Call::read(body, true)
                    && let Some(what) = self.waits(&call)
                {
                    self.checker.begin(call.thread, what);
                }
            }
            _ if kind == Kind::Code as u64 => {
                if let Some((file, rest)) = text(rest)
                    && let Some((name, _)) = text(rest)
                {
                    self.codes.insert(first, (file, name));
                }
            }
            _ if kind == Kind::Stack as u64 => {
                self.stacks.insert(first, rest);
            }
            _ if kind == Kind::Kernel as u64 => {
                if let Some((name, _)) = text(rest.get(1..).unwrap_or_default()) {
                    let place = self.name(&name);
                    self.kernels.insert(first, place);
                }
            }
            _ if kind == Kind::Graph as u64 => {
                let graph = graph(body);
                let nodes = graph.made.iter().copied().zip(graph.touches.iter().copied());
                self.made.insert(first, Rc::new(nodes.filter(|one| one.0 > 0).collect()));
                self.graphs.insert(first, graph);
            }
            _ if kind == Kind::Bytes as u64 => {
                self.bytes.insert(first, bytes(body));
            }
            _ if kind == Kind::Host as u64 => {
                if let [_, stack, address, writes] = *body {
                    let how = if writes == 1 { How::Write } else { How::Read };
                    let stack = u32::try_from(stack).unwrap_or(0);
                    let operation = Operation { stack, ..Operation::OF_HOST };
                    self.checker.touched(operation, address, how);
                }
            }
            _ if kind == Kind::Ran as u64 => self.checker.ran(first),
            _ if kind == Kind::Trying as u64 => {
                self.trying = match body {
                    [name, place, 1] => Some((*name, *place)),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// The stacks of the calls that made the nodes that touch an address, for the graph launch `index`. Of the
    /// nodes that were only given addresses, those with the nearest address at or below count.
    pub(crate) fn made(&self, index: u32, address: u64) -> Vec<u64> {
        let Some(nodes) = self.nodes.get(&index) else { return Vec::new() };
        let below = |one: &Touch| one.how == How::Given && one.low <= address;
        let nearest = nodes.iter().filter(|one| below(&one.1)).map(|one| one.1.low).max();
        let has = |one: &Touch| match one.how {
            How::Given => Some(one.low) == nearest,
            _ => one.low <= address && address < one.high,
        };
        let mut found: Vec<u64> = nodes.iter().filter(|one| has(&one.1)).map(|one| one.0).collect();
        found.dedup();
        found
    }

    fn name(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|one| one.0 == name);
        let place = known.unwrap_or_else(|| {
            self.names.push((String::from(name), hash(name.as_bytes())));
            self.names.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    fn stream(&mut self, call: &Call<'_>, of: u64) -> usize {
        let thread = if of == PER_THREAD { call.thread + 1 } else { 0 };
        self.checker.stream(of, thread)
    }

    fn given(&mut self, call: &Call<'_>, of: u64) -> usize {
        self.stream(call, handle(of, call.per_thread))
    }

    /// What the host waits for in a call, or queries. None for other calls, and for waits that are handled
    /// elsewhere.
    fn waits(&mut self, call: &Call<'_>) -> Option<For> {
        match call.row {
            Row::cuStreamSynchronize | Row::cuStreamQuery => {
                Some(For::Stream(self.given(call, call.argument(0))))
            }
            Row::cuEventSynchronize | Row::cuEventQuery => Some(For::Event(call.argument(0))),
            // The driver returns a time only if both events are done. Only the second one is looked at.
            Row::cuEventElapsedTime | Row::cuEventElapsedTime_v2 => {
                Some(For::Event(call.argument(2)))
            }
            Row::cuCtxSynchronize
            | Row::cuCtxSynchronize_v2
            | Row::cuMemFree_v2
            | Row::cuMemFreeHost
            | Row::cuMemHostUnregister
            | Row::cuMemUnmap
            | Row::cuModuleUnload
            | Row::cuMemcpyAtoH_v2
            | Row::cuMemcpyHtoA_v2
            | Row::cuMemcpy3DPeer
            | Row::cuCtxDestroy_v2
            | Row::cuDevicePrimaryCtxReset_v2 => Some(For::All),
            _ => None,
        }
    }

    fn operation(call: &Call<'_>) -> Operation {
        Operation {
            row: u32::try_from(call.place).unwrap_or(u32::MAX),
            name: u32::MAX,
            stream: 0,
            number: 0,
            stack: u32::try_from(call.stack).unwrap_or(0),
            place: 0,
            numbered: call.operation,
            flags: 0,
        }
    }

    /// The operation for a launch, with its number among launches of this name. Counts the launch.
    fn launch(&mut self, call: &Call<'_>, name: u32) -> Operation {
        let place = self.places.entry(name).or_insert(0);
        *place += 1;
        Operation { name, place: *place - 1, ..Self::operation(call) }
    }

    fn call(&mut self, call: &Call<'_>) {
        let bytes = self.bytes.remove(&call.thread);
        if call.code != 0 {
            return;
        }
        if call.captured {
            // The call is part of a graph, which is read when it is instantiated.
            if matches!(call.row, Row::cuEventRecord | Row::cuEventRecordWithFlags) {
                self.checker.elsewhere(call.argument(0));
            }
            return;
        }
        match call.row {
            Row::cuLaunchKernel | Row::cuLaunchKernelEx | Row::cuLaunchCooperativeKernel => {
                self.kernel(call, bytes);
            }
            Row::cuGraphLaunch => self.graph(call, bytes),
            Row::cuMemFreeAsync => {
                let stream = self.stream(call, call.stream());
                let operation = Self::operation(call);
                self.checker.pooled(stream, operation, call.argument(0), true);
                self.follow(call);
            }
            Row::cuStreamWriteValue32_v2 | Row::cuStreamWriteValue64_v2 => {
                let stream = self.stream(call, call.stream());
                let operation = Self::operation(call);
                self.checker.work(stream, operation, &[]);
                self.checker.write_value(stream, call.argument(1), call.argument(2));
                let place = self.checker.memory.find(call.argument(1)).map(|one| one.place);
                if !matches!(place, Some(Place::Device | Place::Pool)) {
                    // The host can read the value.
                    self.checker.told(stream);
                }
            }
            row if ENTRIES.get(row as usize).is_some_and(|one| one.kind.is_operation()) => {
                self.copy_or_set(call, bytes);
            }
            _ => self.other(call),
        }
    }

    /// Adds the part of a touch that lies in known memory to `touches`. A touch by a given address ends with
    /// its cell.
    fn known(&mut self, touch: Touch) {
        let Some(range) = self.checker.memory.find(touch.low) else { return };
        let high = match touch.how {
            How::Given => range.high().min(self.checker.cells.end(touch.low)),
            _ => touch.high.min(range.high()),
        };
        if touch.low < high {
            self.touches.push(Touch { high, ..touch });
        }
    }

    /// A hash of the stack with this number. It is the same in each run of the program.
    fn stack_of(&self, number: u64) -> u64 {
        let frames = self.stacks.get(&number).copied().unwrap_or_default();
        frames.chunks_exact(2).fold(0, |found: u64, frame| {
            let [code, line] = *frame else { return found };
            let named = self
                .codes
                .get(&code)
                .map(|one| hash(one.0.as_bytes()) ^ hash(one.1.as_bytes()).rotate_left(1));
            (found ^ named.unwrap_or(0) ^ line).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
        })
    }

    /// Adds what is known of a launch's bytes to its flags and `touches`: by this run if it looked at the
    /// launch, else by the other run.
    fn compared(
        &mut self,
        call: &Call<'_>,
        operation: &mut Operation,
        bytes: Option<Bytes>,
        given: &[Given],
    ) {
        let name = self.names.get(operation.name as usize).map_or(0, |one| one.1);
        let launch = (name, operation.place);
        let memory = &self.checker.memory;
        let bytes = match (bytes, self.told) {
            (Some(bytes), _) => {
                let stack = self.stack_of(call.stack);
                self.evidence.keep(launch, stack, &bytes, given, memory);
                bytes
            }
            (None, Some(told)) if told.has(launch) => {
                let stack = self.stack_of(call.stack);
                let Some(bytes) = told.find(launch, stack, given, memory) else { return };
                bytes
            }
            _ => return,
        };
        self.checker.unseen.varying += u64::from(bytes.flags & launch::VARIES != 0);
        operation.flags = bytes.flags;
        self.checker.unseen.lost += u64::from(bytes.flags & launch::LOST != 0);
        for one in bytes.touches {
            self.known(one);
        }
    }

    fn kernel(&mut self, call: &Call<'_>, bytes: Option<Bytes>) {
        let stream = self.stream(call, call.stream());
        let name = self.kernels.get(&call.extra(1)).copied().unwrap_or(u32::MAX);
        let mut operation = self.launch(call, name);
        self.touches.clear();
        let pairs = call.extra.get(2..).unwrap_or_default().chunks_exact(2);
        let given: Vec<Given> = pairs
            .filter_map(|one| <[u64; 2]>::try_from(one).ok())
            .map(|[place, word]| (place + 1, word))
            .collect();
        for (place, word) in &given {
            self.known(Touch { low: *word, high: *word, how: How::Given, place: *place });
        }
        self.checker.unseen.without += u64::from(self.touches.is_empty());
        self.compared(call, &mut operation, bytes, &given);
        let touches = core::mem::take(&mut self.touches);
        self.checker.work(stream, operation, &touches);
        self.touches = touches;
    }

    fn graph(&mut self, call: &Call<'_>, bytes: Option<Bytes>) {
        let stream = self.stream(call, call.stream());
        let executable = call.argument(0);
        let name = self.name("cuGraphLaunch");
        let mut operation = self.launch(call, name);
        let known = self.graphs.get(&executable);
        let flags = known.map_or(UNREAD, |one| one.flags);
        let events = known.map(|one| one.events.clone()).unwrap_or_default();
        let touches = known.map(|one| one.touches.clone()).unwrap_or_default();
        let kernels = known.map(|one| one.kernels.clone()).unwrap_or_default();
        let index = u32::try_from(self.checker.operations.len()).unwrap_or(u32::MAX);
        let mut inner: Vec<u32> =
            kernels.iter().filter_map(|one| self.kernels.get(one).copied()).collect();
        inner.dedup();
        self.inner.insert(index, inner);
        if let Some(made) = self.made.get(&executable) {
            self.nodes.insert(index, Rc::clone(made));
        }
        // The touch's index among the graph's touches tells the same parameter of two nodes apart.
        let given: Vec<Given> = (0..)
            .zip(&touches)
            .filter(|one| one.1.how == How::Given)
            .map(|(at, one)| (at, one.low))
            .collect();
        self.touches.clear();
        for one in touches {
            self.known(one);
        }
        self.compared(call, &mut operation, bytes, &given);
        self.checker.unseen.without += u64::from(flags & UNREAD == 0 && self.touches.is_empty());
        self.checker.unseen.graphs += u64::from(flags & UNREAD != 0);
        if flags & (UNREAD | WAITS) != 0 {
            self.checker.unknown(stream);
        }
        if flags & UNREAD != 0 {
            self.checker.any_event();
        }
        let touches = core::mem::take(&mut self.touches);
        self.checker.launch(executable, stream, operation, &touches);
        self.touches = touches;
        for one in events {
            self.checker.record(one, stream);
        }
        if flags & CALLS != 0 {
            self.checker.told(stream);
        }
    }

    fn copy_or_set(&mut self, call: &Call<'_>, bytes: Option<Bytes>) {
        let stream = self.stream(call, call.stream());
        let mut operation = Self::operation(call);
        operation.flags = bytes.map_or(0, |one| one.flags);
        self.touches.clear();
        let copied = call.copied();
        for (low, high, writes) in &copied {
            let how = if *writes { How::Write } else { How::Read };
            self.known(Touch::exact(*low, *high, how));
        }
        for (low, high) in call.set() {
            self.known(Touch::exact(low, high, How::Write));
        }
        let touches = core::mem::take(&mut self.touches);
        self.checker.work(stream, operation, &touches);
        self.touches = touches;
        if matches!(call.row, Row::cuLaunchHostFunc | Row::cuStreamAddCallback) {
            self.checker.function(call.extra(0), stream);
        }
        let is_pageable = |low: u64| self.checker.memory.find(low).is_none();
        let waits = ENTRIES.get(call.place).is_some_and(|one| one.kind == Does::Blocking)
            || copied.iter().any(|(low, high, writes)| {
                is_pageable(*low) && (*writes || high.saturating_sub(*low) > STAGED)
            });
        if waits {
            self.checker.copied(call.thread, stream);
        }
    }
}
