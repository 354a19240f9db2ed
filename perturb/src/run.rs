//! What the library does before and after each driver call of the program.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::entries::{ENTRIES, Entry, Kind, Row};
use crate::log::{self, Count};
use crate::numbers::number;
use crate::record;
use crate::recording::{self, Noted};
use crate::settings::{Mode, PATIENCE, Settings};
use crate::state::{STATE, State, key};
use crate::streams::{Behind, Key, Launch};
use crate::sys::{self, now};
use crate::{design, driver, functions, gate, serial, stack, told};

/// The driver makes the host wait for a copy of more bytes than this from pageable memory.
const STAGED: u64 = 65_536;

/// Whether the program has called a hooked function of the driver, in a mode other than `Off`.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether the process is ending: the driver may be gone.
static ENDED: AtomicBool = AtomicBool::new(false);

/// At the first driver call, registers handlers for forks and for the end of the process. Exit handlers run in
/// reverse order, so driver calls from handlers that the program registers later are still seen.
fn start(settings: &Settings) {
    if settings.mode == Mode::Off || STARTED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: this library has both functions, and is never unloaded: it is preloaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_end);
    }
}

unsafe extern "C" fn in_child() {
    renew();
}

extern "C" fn at_end() {
    ENDED.store(true, Relaxed);
    record::flush();
}

/// Runs in a fork's child, and resets the library's state.
fn renew() {
    STATE.renew();
    *STATE.lock() = State::NEW;
    gate::renew();
    record::renew();
    functions::renew();
    told::renew();
}

/// A driver call of the program.
struct Call<'a> {
    row: usize,
    kind: Kind,
    entry: &'static Entry,
    per_thread: bool,
    arguments: &'a [u64],
    settings: &'static Settings,
}

/// The work that a call queues on a stream.
#[derive(Clone, Copy)]
struct Work {
    key: Key,
    behind: Behind,
    /// Whether the host waits after this work until all work is done.
    settles: bool,
}

/// What is known of a call before the driver runs it, and needed after the driver answered.
pub(crate) struct Called {
    /// The work that the call queues. None for a captured call, for one that queues no work, and in the record
    /// mode.
    work: Option<Work>,
    /// Whether the call ends an active capture. False in the record mode, where `noted` has it.
    ends: bool,
    /// The facts for the record, if calls are recorded.
    noted: Option<Noted>,
}

/// Runs before the driver's function. None: the library leaves the call alone, because it is off, makes the
/// call itself, or the process is ending.
pub(crate) fn before(row: usize, per_thread: bool, arguments: &[u64]) -> Option<Called> {
    let call = Call::new(row, per_thread, arguments)?;
    if ENDED.load(Relaxed) || sys::thread(|own| core::mem::replace(&mut own.inside, true))? {
        return None;
    }
    let records = call.settings.mode == Mode::Record;
    let work = if records { call.counted() } else { call.before() };
    let ends = !records && call.kind == Kind::End && driver::is_capturing(call.handle(0));
    let noted = call.settings.records().then(|| recording::before(row, per_thread, arguments));
    sys::thread(|own| own.inside = false);
    Some(Called { work, ends, noted })
}

/// If calls are recorded, replaces a host function among the arguments by this library's wrapper, and notes
/// that the thread is inside a driver call of the program.
pub(crate) fn replace(
    row: usize,
    per_thread: bool,
    arguments: &mut [u64],
    called: &mut Option<Called>,
) {
    if let Some(noted) = called.as_mut().and_then(|one| one.noted.as_mut()) {
        noted.function = functions::wrap(row, per_thread, arguments).unwrap_or(0);
        sys::thread(|own| own.calling = true);
    }
}

/// Runs after the driver's function, which returned `code`. Returns the code for the program, which `told` may
/// change.
pub(crate) fn after(
    row: usize,
    per_thread: bool,
    arguments: &[u64],
    called: Option<Called>,
    code: u32,
) -> u32 {
    let (Some(mut called), Some(call)) = (called, Call::new(row, per_thread, arguments)) else {
        return code;
    };
    sys::thread(|own| own.inside = true);
    let mut answer = code;
    if call.settings.mode != Mode::Record {
        call.after(code, &called);
    }
    if let Some(noted) = called.noted.take() {
        sys::thread(|own| own.calling = false);
        if noted.function > 0 {
            functions::failed(arguments, code);
        }
        if let Some(row) = Row::at(row).filter(|_| call.settings.mode == Mode::Record) {
            answer = told::after(row, arguments, code);
        }
        recording::after(row, per_thread, arguments, answer, noted);
    }
    sys::thread(|own| own.inside = false);
    answer
}

impl<'a> Call<'a> {
    fn new(row: usize, per_thread: bool, arguments: &'a [u64]) -> Option<Self> {
        let settings = Settings::get();
        if !STARTED.load(Relaxed) {
            start(settings);
        }
        let entry = ENTRIES.get(row).filter(|_| settings.mode != Mode::Off)?;
        Some(Self { row, kind: entry.kind, entry, per_thread, arguments, settings })
    }

    fn argument(&self, place: usize) -> u64 {
        self.arguments.get(place).copied().unwrap_or(0)
    }

    fn handle(&self, place: usize) -> u64 {
        driver::handle(self.argument(place), self.per_thread)
    }

    /// The stream of an operation, and its kernel or 0. None if the call is no operation.
    fn work(&self) -> Option<(u64, u64)> {
        match self.kind {
            Kind::Work(stream) => Some((self.handle(stream), 0)),
            Kind::Kernel(stream, kernel) => Some((self.handle(stream), self.argument(kernel))),
            Kind::Config => {
                let config = self.argument(0) as *const u64;
                // SAFETY: the caller passes a `CUlaunchConfig`: seven unsigned ints, four bytes of padding,
                // and the stream (CUDA Driver API, `CUlaunchConfig_st`).
                let stream = if config.is_null() { 0 } else { unsafe { config.add(4).read() } };
                Some((driver::handle(stream, self.per_thread), self.argument(1)))
            }
            Kind::Copy | Kind::ToHost | Kind::FromHost => Some((self.handle(3), 0)),
            Kind::OnDefault | Kind::Blocking => Some((driver::handle(0, self.per_thread), 0)),
            _ => None,
        }
    }

    /// Whether the host waits for the operation: a blocking copy, a copy to pageable memory, or a large copy
    /// from pageable memory.
    fn blocks(&self) -> bool {
        let to = matches!(self.kind, Kind::Copy | Kind::ToHost);
        let from = matches!(self.kind, Kind::Copy | Kind::FromHost);
        self.kind == Kind::Blocking
            || (to && driver::is_pageable(self.argument(0)))
            || (from && self.argument(2) > STAGED && driver::is_pageable(self.argument(1)))
    }

    /// Counts the call, in the record mode. Returns None, since this mode neither delays nor marks work.
    fn counted(&self) -> Option<Work> {
        let mut state = STATE.lock();
        state.counts.call(self.row);
        if self.kind.is_operation() {
            state.counts.add(Count::Seen);
        }
        None
    }

    /// Acts before the call, in the serial and the late mode. Returns the work that the call queues; None if it
    /// is captured, or the call queues none.
    fn before(&self) -> Option<Work> {
        STATE.lock().counts.call(self.row);
        match self.kind {
            Kind::Stream => self.host_waits(Wait::Stream(self.handle(0))),
            Kind::Event => self.host_waits(Wait::Event(self.argument(0))),
            Kind::All => self.host_waits(Wait::All),
            Kind::Record => Self::mark(self.handle(1), |state, key, blocking| {
                state.streams.record(self.argument(0), key, blocking, now());
            }),
            Kind::Wait => Self::mark(self.handle(0), |state, key, blocking| {
                state.streams.wait(key, blocking, self.argument(1), now());
            }),
            Kind::Destroy => {
                let mut state = STATE.lock();
                state.streams.destroy(self.argument(0));
                state.marks.destroy(self.argument(0));
            }
            Kind::DestroyContext => forget(self.argument(0)),
            Kind::Begin => self.begin(),
            _ => return self.operation(),
        }
        None
    }

    /// Runs before a capture begins. In the late mode, prepares the context's gate first, because that makes
    /// the host wait; not if a capture is active already.
    fn begin(&self) {
        if let Some(key) = key(self.handle(0)).filter(|_| self.settings.mode == Mode::Late)
            && STATE.lock().captures == 0
        {
            // SAFETY: the program is about to use the stream, whose context it is.
            unsafe { gate::prepare(key.context) };
        }
        STATE.lock().captures += 1;
    }

    fn after(&self, code: u32, called: &Called) {
        let serial = self.settings.mode == Mode::Serial;
        match self.kind {
            Kind::Begin if code != 0 => serial::ended(false),
            Kind::End if called.ends => serial::ended(serial),
            // The argument is an int; the word's upper half is undefined.
            #[allow(clippy::cast_possible_truncation)]
            Kind::Release if !driver::is_active(self.argument(0) as i32) => {
                gate::contexts().into_iter().for_each(forget);
            }
            _ => {}
        }
        match called.work.filter(|_| code == 0) {
            Some(work) if serial => serial::worked(work.key.handle),
            Some(work) => {
                mark(work.key, work.behind);
                if work.settles {
                    wait_for_all(self.settings.delay);
                }
            }
            None => {}
        }
    }

    /// Calls `act` with a stream's key and whether it is blocking, unless the stream is being captured.
    fn mark(handle: u64, act: impl FnOnce(&mut State, Key, bool)) {
        let Some(key) = key(handle) else { return };
        if !driver::is_capturing(handle) {
            // SAFETY: the program is about to use the stream, and nothing captures it.
            let blocking = unsafe { driver::is_blocking(handle) };
            act(&mut STATE.lock(), key, blocking);
        }
    }

    fn operation(&self) -> Option<Work> {
        let (handle, kernel) = self.work()?;
        let count = sys::thread(|own| {
            own.count += 1;
            (own.number, own.count - 1)
        })?;
        let operation = number(count.0, count.1);
        if driver::is_capturing(handle) {
            let mut state = STATE.lock();
            state.counts.add(Count::Seen);
            state.counts.add(Count::Captured);
            return None;
        }
        let blocks = self.blocks();
        let key = key(handle)?;
        // SAFETY: the program is about to use the stream, and nothing captures it.
        let blocking = unsafe { driver::is_blocking(handle) };
        let set = self.settings;
        let is_free = set.chosen.is_free(operation);
        if !is_free {
            wait_for_all(set.delay);
        }
        serial::works(handle);
        let launch = {
            let mut state = STATE.lock();
            state.counts.add(Count::Seen);
            if blocks {
                state.counts.add(Count::HostWaits);
            }
            let able = set.mode == Mode::Late && !blocks && is_free;
            let launch = state.streams.launch(key, blocking, now(), set.late(), |index| {
                let by_seed = || set.seed.is_some_and(|seed| design::is_late(seed, index));
                able && set.stream.map_or_else(by_seed, |stream| stream == index)
            });
            let most = state.streams.most();
            state.counts.at_least(Count::Streams, most);
            launch
        };
        let late = launch.late && queued(key, launch);
        if late {
            STATE.lock().counts.add(Count::Late);
        }
        if set.trace || set.stacks.contains(&operation) {
            let name = driver::name_of(kernel).filter(|_| kernel != 0);
            let name = name.unwrap_or(self.entry.symbol.as_bytes());
            log::trace(&log::Operation {
                number: operation,
                stream: launch.index,
                handle,
                blocking,
                late,
                function: self.entry.symbol,
                name,
            });
        }
        if set.stacks.contains(&operation) {
            stack::write(operation);
        }
        if blocks {
            self.host_waits(Wait::Stream(handle));
        }
        let behind = launch.gate.filter(|_| late).unwrap_or(launch.without);
        Some(Work { key, behind, settles: !is_free || set.chosen.settles(operation) })
    }

    /// Runs before the host waits, in the late mode, unless it is `patient`. If the host would wait for late
    /// work, the gates open one by one. Before each gate opens, all work that no gate holds up is done, except
    /// during a capture. This is the least helpful order that the program allows.
    fn host_waits(&self, wait: Wait) {
        if self.settings.mode != Mode::Late || self.settings.patient {
            return;
        }
        let needed = {
            let state = STATE.lock();
            match wait {
                Wait::Stream(handle) => {
                    drop(state);
                    let Some(key) = key(handle) else { return };
                    STATE.lock().streams.of_stream(key)
                }
                Wait::Event(event) => state.streams.of_event(event),
                Wait::All => state.streams.of_all(),
            }
        };
        let is_pending = || STATE.lock().streams.is_pending(needed, now());
        let mut has_opened = false;
        while is_pending() {
            if some_run(now()) {
                sys::rest();
                continue;
            }
            let ticket = {
                let mut state = STATE.lock();
                if !core::mem::replace(&mut has_opened, true) {
                    state.counts.add(Count::Opened);
                }
                state.streams.open_first(now())
            };
            gate::open(ticket);
        }
    }
}

/// Queues the gate that a late operation needs, if it needs a new one. Returns false on failure: then the
/// operation is not late.
fn queued(key: Key, launch: Launch) -> bool {
    let Some(behind) = launch.gate else { return true };
    let beside = STATE.lock().captures > 0;
    // SAFETY: the program is about to use the stream, and nothing captures it.
    let queued = unsafe { gate::queue(key.context, key.handle, behind, beside) };
    let mut state = STATE.lock();
    if queued {
        state.counts.add(Count::Gates);
    } else {
        state.counts.add(Count::Failed);
        state.streams.failed(launch);
    }
    queued
}

/// What the host is about to wait for: a stream or an event, by its handle, or all work.
#[derive(Clone, Copy)]
enum Wait {
    Stream(u64),
    Event(u64),
    All,
}

/// Waits until all marked work is done; during a capture not at all. Gives up two delays and a second after the
/// last gate's time: pending work may wait for this thread.
fn wait_for_all(delay: u64) {
    let opened = STATE.lock().streams.of_all().until.max(now());
    let ends = opened.saturating_add(delay.saturating_mul(2)).saturating_add(PATIENCE);
    // At the time `u64::MAX` no gate is closed, so this asks for all work.
    while now() < ends && some_run(u64::MAX) {
        sys::rest();
    }
}

/// Records an event behind the work that was just queued on a stream, and keeps it as the work's mark.
fn mark(key: Key, behind: Behind) {
    let kept = STATE.lock().marks.take(key, behind);
    // SAFETY: the context is the stream's, which the program has just used.
    let Some(event) = kept.or_else(|| unsafe { driver::new_event(key.context) }) else { return };
    // SAFETY: the program has just used the stream, which was not being captured before the call; the event
    // lives as long as the context.
    let is_marked = unsafe { driver::record(event, key.handle) };
    let State { streams, marks, .. } = &mut *STATE.lock();
    if is_marked {
        marks.put(key, behind, event, |one| streams.is_pending(one, now()));
    } else {
        marks.give_back(key, event);
    }
}

/// Whether marked work is unfinished that no gate holds up at the time `at`. False during a capture: then the
/// driver is not asked.
fn some_run(at: u64) -> bool {
    // Holds the lock, so that no other thread destroys a context meanwhile.
    let State { streams, marks, captures, .. } = &mut *STATE.lock();
    // SAFETY: the events live as long as their contexts. A context is forgotten before it dies.
    let is_pending = |event| unsafe { driver::is_pending(event) };
    *captures == 0 && marks.some_run(|one| streams.is_pending(one, at), is_pending)
}

fn forget(context: u64) {
    let mut state = STATE.lock();
    state.streams.forget(context);
    state.marks.forget(context);
    state.events.retain(|one| one.0 != context);
    state.last = None;
    drop(state);
    gate::forget(context);
}
