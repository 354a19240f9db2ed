//! The events of a while, kept for `cai_bridge.trace`, which makes a file of them.
//!
//! They come from any thread, with the interpreter lock or without, so they are kept without Python
//! objects; what they mean is read from them once the trace is over (`cai_bridge._trace_format`). There
//! is one trace at a time. In a fork nothing is kept: its lock may be held there for good.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::callsite::rebuild_interest_cache;
use tracing::{Event, Level};

use super::fields::{Fields, Value, dict};
use crate::driver::fork::Process;
use crate::local::local;
use crate::py::interpreter::enter;
use crate::stream::Thread;

/// 0, or one more than the number of the process whose trace is open: what every event asks, without
/// the lock.
static OPEN: AtomicU64 = AtomicU64::new(0);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);
/// How many traces there were: tells a thread whether it has given its name to this one.
static NUMBER: AtomicU64 = AtomicU64::new(0);

local! {
    /// The last trace that this thread has given its name to.
    static NAMED: Cell<u64> = const { Cell::new(0) };
}

/// What a trace has kept.
struct Session {
    began: u64,
    ended: u64,
    limit: usize,
    left_out: u64,
    records: VecDeque<EventRecord>,
    threads: Vec<(u64, String)>,
}

/// An event.
struct EventRecord {
    name: &'static str,
    at: u64,
    thread: u64,
    fields: Vec<(&'static str, Value)>,
}

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

fn this_process() -> u64 {
    u64::from(Process::current().number()) + 1
}

/// `at` in nanoseconds of the traces' clock, which begins with the first of them.
pub(crate) fn clock(at: Instant) -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a trace is open.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) == this_process()
}

/// Keeps `event`, if a trace is open.
pub(crate) fn keep(event: &Event<'_>) {
    if !is_open() {
        return;
    }
    // Before all else: what follows may have to wait.
    let at = clock(Instant::now());
    introduce();
    let metadata = event.metadata();
    // Elsewhere the event's name says what its message does.
    let with_text = *metadata.level() <= Level::WARN;
    let Fields { values: mut fields, text, .. } = Fields::of(event, with_text);
    if with_text {
        fields.push(("message", Value::Text(text.into())));
    }
    let made =
        EventRecord { name: metadata.name(), at, thread: Thread::current().number(), fields };
    if let Some(session) = &mut *session() {
        if session.records.len() < session.limit {
            session.records.push_back(made);
        } else {
            session.left_out += 1;
        }
    }
}

/// Gives the calling thread's name to the trace, once.
fn introduce() {
    let number = NUMBER.load(Ordering::Relaxed);
    // First, since to ask for the name may bring further events.
    if NAMED.replace(number).is_some_and(|before| before != number) {
        let name = enter(name_of_thread).unwrap_or_default();
        if let Some(session) = &mut *session() {
            session.threads.push((Thread::current().number(), name));
        }
    }
}

#[cold]
fn name_of_thread(py: Python<'_>) -> String {
    let module = py.import("cai_bridge._trace");
    let asked = module.and_then(|module| module.call_method0("thread_name")?.extract());
    asked.unwrap_or_else(|error: PyErr| {
        error.write_unraisable(py, None);
        String::new()
    })
}

/// Opens the trace, of at most `limit` events.
#[pyfunction]
pub(crate) fn _start_trace(limit: usize) -> PyResult<()> {
    let by = OPEN.compare_exchange(0, this_process(), Ordering::Relaxed, Ordering::Relaxed);
    if let Err(by) = by {
        let what = if by == this_process() {
            ""
        } else {
            ", in the process that this one was forked from"
        };
        return Err(PyRuntimeError::new_err(format!(
            "trace: got a second trace while one is open{what}; allowed: one at a time"
        )));
    }
    *session() = Some(Session {
        began: clock(Instant::now()),
        ended: 0,
        limit,
        left_out: 0,
        records: VecDeque::new(),
        threads: Vec::new(),
    });
    NUMBER.fetch_add(1, Ordering::Relaxed);
    introduce();
    rebuild_interest_cache();
    Ok(())
}

/// Closes the trace, and hands out what it has kept. None is open in a fork.
#[pyfunction]
pub(crate) fn _stop_trace() -> Option<Recording> {
    if !is_open() {
        return None;
    }
    let mut session = session().take()?;
    session.ended = clock(Instant::now());
    OPEN.store(0, Ordering::Relaxed);
    rebuild_interest_cache();
    Some(Recording(Mutex::new(session)))
}

/// What a trace has kept, once it is closed.
#[pyclass(frozen, module = "cai_bridge._core", name = "_Recording")]
pub(crate) struct Recording(Mutex<Session>);

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recording")
    }
}

impl Recording {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event as Python has it: its name, when it was, the number of its thread, and its fields.
type EventFields<'py> = (&'static str, u64, u64, Bound<'py, PyDict>);

#[pymethods]
impl Recording {
    /// When the trace was opened and closed, in nanoseconds of its clock.
    #[getter]
    fn times(&self) -> (u64, u64) {
        let session = self.session();
        (session.began, session.ended)
    }

    /// How many events there was no room for.
    #[getter]
    fn left_out(&self) -> u64 {
        self.session().left_out
    }

    /// The numbers and names of the threads.
    #[getter]
    fn threads(&self) -> Vec<(u64, String)> {
        self.session().threads.clone()
    }

    /// The first events, `most` at most, which are then forgotten.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<EventFields<'py>>> {
        let some: Vec<EventRecord> = {
            let mut session = self.session();
            let most = most.min(session.records.len());
            session.records.drain(..most).collect()
        };
        let told =
            |event: EventRecord| Ok((event.name, event.at, event.thread, dict(py, event.fields)?));
        some.into_iter().map(told).collect()
    }
}
