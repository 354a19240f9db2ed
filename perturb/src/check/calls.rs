//! The calls of a record, given to the clocks. Pure.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::cells::{How, Touch};
use super::clocks::{Checker, For, Form, Operation};
use crate::compared;
use crate::copies;
use crate::driver::handle;
use crate::entries::{ENTRIES, Kind as Does, Row};
use crate::graphs::{CALLS, GIVEN, UNREAD, WAITS, WRITES};
use crate::memory::{Place, gives};
use crate::record::{AT, Kind, hash, line};
use crate::streams::PER_THREAD;

/// Of so many bytes from pageable memory the driver has the host wait.
const STAGED: u64 = 65_536;

/// The words of a record; None if another build wrote it.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<u64>> {
    let (head, body) = bytes.split_at_checked(AT)?;
    if head != line().as_bytes() {
        return None;
    }
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_le_bytes);
    Some(body.chunks_exact(8).map(word).collect())
}

/// What is written, one by one: its kind, and its words. What a process did not write to its end is left out.
fn each<'a>(words: &'a [u64], mut call: impl FnMut(u64, &'a [u64])) {
    let mut rest = words;
    while let Some((head, behind)) = rest.split_first() {
        let size = usize::try_from(head & ((1 << 48) - 1)).unwrap_or(usize::MAX);
        let Some((body, next)) = behind.split_at_checked(size) else { break };
        call(head >> 48, body);
        rest = next;
    }
}

/// A text among words, and what is behind it.
fn text(words: &[u64]) -> Option<(String, &[u64])> {
    let (size, rest) = words.split_first()?;
    let size = usize::try_from(*size).ok()?;
    let (chunks, rest) = rest.split_at_checked(size.div_ceil(8))?;
    let bytes: Vec<u8> = chunks.iter().flat_map(|one| one.to_le_bytes()).take(size).collect();
    Some((String::from_utf8_lossy(&bytes).into_owned(), rest))
}

/// A call of the driver.
#[derive(Clone, Copy)]
struct Call<'a> {
    row: Row,
    place: usize,
    thread: u64,
    per_thread: bool,
    captured: bool,
    code: u64,
    stack: u64,
    operation: u64,
    arguments: &'a [u64],
    /// What the arguments point to.
    extra: &'a [u64],
}

impl<'a> Call<'a> {
    /// Reads a call, or its beginning, which has neither stack nor operation.
    fn read(words: &'a [u64], begins: bool) -> Option<Self> {
        let (head, rest) = words.split_at_checked(2)?;
        let [thread, head] = *head else { return None };
        let (stack, operation, rest) = match rest {
            _ if begins => (0, 0, rest),
            [stack, operation, rest @ ..] => (*stack, *operation, rest),
            _ => return None,
        };
        let place = usize::try_from(head & 0xffff).ok()?;
        let (arguments, extra) = rest.split_at_checked(ENTRIES.get(place)?.arguments)?;
        Some(Self {
            row: Row::at(place)?,
            place,
            thread,
            per_thread: head >> 16 & 1 == 1,
            captured: head >> 17 & 1 == 1,
            code: head >> 32,
            stack,
            operation,
            arguments,
            extra,
        })
    }

    fn argument(&self, at: usize) -> u64 {
        self.arguments.get(at).copied().unwrap_or(0)
    }

    fn extra(&self, at: usize) -> u64 {
        self.extra.get(at).copied().unwrap_or(0)
    }

    /// The stream that work goes to.
    fn stream(&self) -> u64 {
        let given = match ENTRIES.get(self.place).map(|one| one.kind) {
            Some(Does::Work(at)) => self.argument(at),
            Some(Does::Kernel(..) | Does::Config) => self.extra(0),
            Some(Does::Copy | Does::ToHost | Does::FromHost) => self.argument(3),
            _ => 0,
        };
        handle(given, self.per_thread)
    }

    /// From, to, and how many bytes of each copy between two ranges.
    fn copied(&self) -> Vec<(u64, u64, bool)> {
        let two = |to: u64, from: u64, size: u64| {
            alloc::vec![
                (from, from.saturating_add(size), false),
                (to, to.saturating_add(size), true)
            ]
        };
        match self.row {
            Row::cuMemcpyAsync
            | Row::cuMemcpyHtoDAsync_v2
            | Row::cuMemcpyDtoHAsync_v2
            | Row::cuMemcpyDtoDAsync_v2
            | Row::cuMemcpyDtoD_v2
            | Row::cuMemcpy
            | Row::cuMemcpyDtoH_v2
            | Row::cuMemcpyHtoD_v2 => two(self.argument(0), self.argument(1), self.argument(2)),
            Row::cuMemcpyPeerAsync => two(self.argument(0), self.argument(2), self.argument(4)),
            Row::cuMemcpy2DAsync_v2 | Row::cuMemcpy2D_v2 | Row::cuMemcpy2DUnaligned_v2 => {
                copies::plane_of(self.extra)
            }
            Row::cuMemcpy3DAsync_v2 | Row::cuMemcpy3DPeerAsync | Row::cuMemcpy3D_v2 => {
                copies::box_of(self.extra)
            }
            Row::cuMemcpyBatchAsync | Row::cuMemcpyBatchAsync_v2 => {
                let parts = self.extra.chunks_exact(3);
                parts
                    .filter_map(|one| <[u64; 3]>::try_from(one).ok())
                    .flat_map(|[to, from, size]| two(to, from, size))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a set writes.
    fn set(&self) -> Vec<(u64, u64)> {
        let [to, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(|at| self.argument(at));
        let wide = match self.row {
            Row::cuMemsetD8Async | Row::cuMemsetD8_v2 | Row::cuMemsetD2D8Async => 1,
            Row::cuMemsetD16Async | Row::cuMemsetD16_v2 | Row::cuMemsetD2D16Async => 2,
            Row::cuMemsetD32Async | Row::cuMemsetD32_v2 | Row::cuMemsetD2D32Async => 4,
            _ => return Vec::new(),
        };
        match self.row {
            Row::cuMemsetD2D8Async | Row::cuMemsetD2D16Async | Row::cuMemsetD2D32Async => {
                copies::rows(to, second, fourth.saturating_mul(wide), fifth)
            }
            _ => copies::rows(to, 0, third.saturating_mul(wide), 1),
        }
    }
}

/// What a kernel was given, and what is known of it besides.
#[derive(Debug, Default)]
struct Graph {
    flags: u64,
    events: Vec<u64>,
    touches: Vec<Touch>,
    /// Its kernels, by their handles.
    kernels: Vec<u64>,
}

/// Which bytes a launch changed and read.
#[derive(Debug, Default)]
struct Bytes {
    flags: u64,
    touches: Vec<Touch>,
}

/// Gives the calls of a record to the clocks.
pub(crate) struct Reader<'a> {
    words: &'a [u64],
    pub(crate) checker: Checker,
    pub(crate) calls: u64,
    /// Names of kernels, and their hashes; by handle their places.
    pub(crate) names: Vec<(String, u64)>,
    kernels: BTreeMap<u64, u32>,
    places: BTreeMap<u32, u32>,
    graphs: BTreeMap<u64, Graph>,
    /// The kernels of a graph's launch, by the operation.
    pub(crate) inner: BTreeMap<u32, Vec<u32>>,
    bytes: BTreeMap<u64, Bytes>,
    pub(crate) codes: BTreeMap<u64, (String, String)>,
    pub(crate) stacks: BTreeMap<u64, &'a [u64]>,
    /// A launch that was being made again when the process ended.
    pub(crate) trying: Option<(u64, u64)>,
    touches: Vec<Touch>,
}

/// The addresses that a record names.
fn bounds(words: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    each(words, |kind, body| {
        if kind == Kind::Graph as u64 {
            for touch in graph(body).touches {
                found.push(touch.low);
                if touch.how != How::Given {
                    found.push(touch.high);
                }
            }
        }
        if kind != Kind::Call as u64 {
            return;
        }
        let Some(call) = Call::read(body, false).filter(|one| one.code == 0) else { return };
        match call.row {
            Row::cuLaunchKernel | Row::cuLaunchKernelEx | Row::cuLaunchCooperativeKernel => {
                found.extend(call.extra.iter().skip(3).step_by(2));
            }
            Row::cuMemHostRegister_v2 | Row::cuMemMap => {
                found.extend([call.argument(0), call.argument(0).saturating_add(call.argument(1))]);
            }
            row if gives(row) => {
                let size = match row {
                    Row::cuMemAllocPitch_v2 => call.extra(1).saturating_mul(call.argument(3)),
                    _ => call.argument(1),
                };
                found.extend([call.extra(0), call.extra(0).saturating_add(size)]);
            }
            _ => {
                found.extend(call.copied().iter().flat_map(|one| [one.0, one.1]));
                found.extend(call.set().iter().flat_map(|one| [one.0, one.1]));
            }
        }
    });
    found
}

/// Reads what was written of a graph.
fn graph(words: &[u64]) -> Graph {
    let mut found = Graph::default();
    let mut rest = words.iter().copied().skip(1);
    let mut next = || rest.next().unwrap_or(0);
    found.flags = next();
    for _ in 0..next() {
        found.events.push(next());
    }
    for _ in 0..next() {
        let (_, kernel, count) = (next(), next(), next());
        if kernel != 0 {
            found.kernels.push(kernel);
        }
        for _ in 0..count {
            let (how, low, high) = (next(), next(), next());
            found.touches.push(match how {
                GIVEN => Touch { low, high: low, how: How::Given, place: high },
                WRITES => Touch::exact(low, high, How::Write),
                _ => Touch::exact(low, high, How::Read),
            });
        }
    }
    found
}

/// Reads what was written of a launch's bytes.
fn bytes(words: &[u64]) -> Bytes {
    let mut found = Bytes::default();
    let mut rest = words.iter().copied().skip(1);
    let mut next = || rest.next().unwrap_or(0);
    found.flags = next();
    for _ in 0..next() {
        let (low, high) = (next(), next());
        found.touches.push(Touch::exact(low, high, How::Write));
    }
    for _ in 0..next() {
        let byte = next();
        found.touches.push(Touch::exact(byte, byte.saturating_add(1), How::Read));
    }
    found
}

impl<'a> Reader<'a> {
    pub(crate) fn new(words: &'a [u64], every: bool) -> Self {
        Self {
            words,
            checker: Checker::new(bounds(words), every),
            calls: 0,
            names: Vec::new(),
            kernels: BTreeMap::new(),
            places: BTreeMap::new(),
            graphs: BTreeMap::new(),
            inner: BTreeMap::new(),
            bytes: BTreeMap::new(),
            codes: BTreeMap::new(),
            stacks: BTreeMap::new(),
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
                self.graphs.insert(first, graph(body));
            }
            _ if kind == Kind::Bytes as u64 => {
                self.bytes.insert(first, bytes(body));
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

    /// What the host waits for in a call, or asks.
    fn waits(&mut self, call: &Call<'_>) -> Option<For> {
        match call.row {
            Row::cuStreamSynchronize | Row::cuStreamQuery => {
                Some(For::Stream(self.given(call, call.argument(0))))
            }
            Row::cuEventSynchronize | Row::cuEventQuery => Some(For::Event(call.argument(0))),
            // It has a time only if both are over.
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
            lost: false,
        }
    }

    /// The operation of a launch, counted by its name.
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
            // It is part of a graph, which is read when it is made ready.
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
                    // The host can see it.
                    self.checker.told(stream);
                }
            }
            row if ENTRIES.get(row as usize).is_some_and(|one| one.kind.is_operation()) => {
                self.copy_or_set(call, bytes);
            }
            _ => self.other(call),
        }
    }

    /// The part of a touch that lies in known memory, and what a given address may reach.
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

    fn compared(&mut self, operation: &mut Operation, bytes: Option<Bytes>) {
        let Some(bytes) = bytes else { return };
        self.checker.unseen.varying += u64::from(bytes.flags & compared::VARIES != 0);
        operation.lost = bytes.flags & compared::LOST != 0;
        self.checker.unseen.lost += u64::from(operation.lost);
        for one in bytes.touches {
            self.known(one);
        }
    }

    fn kernel(&mut self, call: &Call<'_>, bytes: Option<Bytes>) {
        let stream = self.stream(call, call.stream());
        let name = self.kernels.get(&call.extra(1)).copied().unwrap_or(u32::MAX);
        let mut operation = self.launch(call, name);
        self.touches.clear();
        for pair in call.extra.get(2..).unwrap_or_default().chunks_exact(2) {
            if let [place, word] = *pair {
                self.known(Touch { low: word, high: word, how: How::Given, place: place + 1 });
            }
        }
        self.checker.unseen.without += u64::from(self.touches.is_empty());
        self.compared(&mut operation, bytes);
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
        self.touches.clear();
        for one in touches {
            self.known(one);
        }
        self.compared(&mut operation, bytes);
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
        operation.lost = bytes.is_some_and(|one| one.flags & compared::LOST != 0);
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

    /// Memory is given out, or goes.
    fn follow(&mut self, call: &Call<'_>) {
        self.checker.memory.follow(call.row, call.arguments, [call.extra(0), call.extra(1)]);
    }

    fn take_memory(&mut self, call: &Call<'_>) {
        self.follow(call);
        let low = match call.row {
            Row::cuMemHostRegister_v2 | Row::cuMemMap => call.argument(0),
            _ => call.extra(0),
        };
        if let Some(range) = self.checker.memory.find(low) {
            self.checker.taken(range.low, range.size);
            if range.place == Place::Pool {
                let at = if call.row == Row::cuMemAllocAsync { 2 } else { 3 };
                let stream = self.given(call, call.argument(at));
                let operation = Self::operation(call);
                self.checker.pooled(stream, operation, low, false);
            }
        }
    }

    fn other(&mut self, call: &Call<'_>) {
        match call.row {
            Row::cuMemAlloc_v2
            | Row::cuMemAllocPitch_v2
            | Row::cuMemAllocManaged
            | Row::cuMemAllocAsync
            | Row::cuMemAllocFromPoolAsync
            | Row::cuMemAllocHost_v2
            | Row::cuMemHostAlloc
            | Row::cuMemHostRegister_v2
            | Row::cuMemMap => self.take_memory(call),
            Row::cuMemFree_v2 | Row::cuMemFreeHost | Row::cuMemHostUnregister | Row::cuMemUnmap => {
                let operation = Self::operation(call);
                self.checker.freed(call.thread, operation, call.argument(0));
                self.follow(call);
            }
            Row::cuIpcGetMemHandle => self.follow(call),
            Row::cuStreamCreate | Row::cuStreamCreateWithPriority => {
                let form =
                    if call.argument(1) & 1 == 0 { Form::Blocking } else { Form::NonBlocking };
                self.checker.make(call.extra(0), 0, form);
            }
            Row::cuStreamDestroy_v2 => self.checker.destroy(call.argument(0)),
            Row::cuEventCreate => self.checker.event(call.extra(0)),
            Row::cuEventDestroy_v2 => self.checker.forget(call.argument(0)),
            Row::cuEventRecord | Row::cuEventRecordWithFlags => {
                let stream = self.given(call, call.argument(1));
                self.checker.record(call.argument(0), stream);
            }
            Row::cuStreamWaitEvent => {
                let stream = self.given(call, call.argument(0));
                self.checker.wait(stream, call.argument(1));
            }
            Row::cuStreamWaitValue32_v2 | Row::cuStreamWaitValue64_v2 => self.wait_value(call),
            Row::cuStreamBatchMemOp_v2 => {
                let stream = self.given(call, call.argument(0));
                self.checker.unknown(stream);
            }
            Row::cuWaitExternalSemaphoresAsync => {
                let stream = self.given(call, call.argument(3));
                self.checker.unknown(stream);
            }
            Row::cuGraphExecKernelNodeSetParams
            | Row::cuGraphExecKernelNodeSetParams_v2
            | Row::cuGraphExecMemcpyNodeSetParams
            | Row::cuGraphExecMemsetNodeSetParams
            | Row::cuGraphExecChildGraphNodeSetParams => {
                // Its nodes touch something else now; how they wait stays.
                if let Some(graph) = self.graphs.get_mut(&call.argument(0)) {
                    graph.touches.clear();
                }
            }
            Row::cuGraphExecNodeSetParams
            | Row::cuGraphExecEventRecordNodeSetEvent
            | Row::cuGraphExecEventWaitNodeSetEvent
            | Row::cuGraphExecDestroy => {
                self.graphs.remove(&call.argument(0));
            }
            _ => {
                if let Some(what) = self.waits(call) {
                    self.checker.waited(call.thread, what);
                }
            }
        }
    }

    fn wait_value(&mut self, call: &Call<'_>) {
        /// The low bits of the flags: at least, exactly.
        const AT_LEAST: u64 = 0;
        const EXACTLY: u64 = 1;
        let stream = self.given(call, call.argument(0));
        let (address, wanted, how) = (call.argument(1), call.argument(2), call.argument(3) & 3);
        let is_short = call.row == Row::cuStreamWaitValue32_v2;
        #[allow(clippy::cast_possible_truncation)] // so wide are the values that are compared
        self.checker.wait_value(stream, address, |value| match how {
            AT_LEAST if is_short => (value as u32).wrapping_sub(wanted as u32).cast_signed() >= 0,
            AT_LEAST => value.wrapping_sub(wanted).cast_signed() >= 0,
            EXACTLY if is_short => value as u32 == wanted as u32,
            EXACTLY => value == wanted,
            _ => false,
        });
    }
}
