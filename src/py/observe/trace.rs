//! Records events for `cai_bridge.trace`, without Python objects, since events come from any thread, with or without
//! the interpreter lock. A process that was forked while a trace was open records nothing and can open no trace: the
//! trace's lock can stay held there for ever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::callsite::rebuild_interest_cache;
use tracing::{Event, Level};

use super::fields::{ReportFields, Value, dict};
use crate::driver::fork::Process;
use crate::py::interpreter::enter;
use crate::py::this_thread::DOING;
use crate::stream::Thread;

struct Traces {
    /// One more than the number of forks that led to the process whose trace is open; 0 if no trace is open.
    open: AtomicU64,
    session: Mutex<Option<TraceSession>>,
    number: AtomicU64,
    began: OnceLock<Instant>,
}

static TRACES: Traces = Traces {
    open: AtomicU64::new(0),
    session: Mutex::new(None),
    number: AtomicU64::new(0),
    began: OnceLock::new(),
};

struct TraceSession {
    began: u64,
    ended: u64,
    limit: usize,
    left_out: u64,
    records: VecDeque<EventRecord>,
    threads: Vec<(u64, String)>,
}

struct EventRecord {
    name: &'static str,
    at: u64,
    thread: u64,
    fields: Vec<(&'static str, Value)>,
}

fn session() -> MutexGuard<'static, Option<TraceSession>> {
    TRACES.session.lock().unwrap_or_else(PoisonError::into_inner)
}

fn this_process() -> u64 {
    u64::from(Process::current().number()) + 1
}

/// Converts `at` to nanoseconds on the traces' clock, which starts at 0 when it is first used.
pub(crate) fn clock(at: Instant) -> u64 {
    let began = *TRACES.began.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn is_open() -> bool {
    TRACES.open.load(Ordering::Relaxed) == this_process()
}

/// Records `event`, if this process has a trace open. Beyond the trace's limit, only counts `event`.
pub(crate) fn keep(event: &Event<'_>) {
    if !is_open() {
        return;
    }
    // Read the clock first: the next steps can wait.
    let at = clock(Instant::now());
    introduce();
    let metadata = event.metadata();
    let with_text = *metadata.level() <= Level::WARN;
    let ReportFields { values: mut fields, text, .. } = ReportFields::of(event, with_text);
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

/// Records the calling thread's name, at most once per trace.
fn introduce() {
    let number = TRACES.number.load(Ordering::Relaxed);
    // Set the number first: asking for the name can cause further events.
    if DOING.with(|doing| doing.trace.replace(number)).is_some_and(|before| before != number) {
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

/// Opens a trace of at most `limit` events. Fails if a trace is open, or was open when this process was forked.
#[pyfunction]
pub(crate) fn _start_trace(limit: usize) -> PyResult<()> {
    let by = TRACES.open.compare_exchange(0, this_process(), Ordering::Relaxed, Ordering::Relaxed);
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
    // Set the number first: a thread that records an event introduces itself once for each number.
    TRACES.number.fetch_add(1, Ordering::Relaxed);
    *session() = Some(TraceSession {
        began: clock(Instant::now()),
        ended: 0,
        limit,
        left_out: 0,
        records: VecDeque::new(),
        threads: Vec::new(),
    });
    introduce();
    rebuild_interest_cache();
    Ok(())
}

/// Closes the trace and returns its recording. `None` if this process has no trace open.
#[pyfunction]
pub(crate) fn _stop_trace() -> Option<Recording> {
    if !is_open() {
        return None;
    }
    let mut session = session().take()?;
    session.ended = clock(Instant::now());
    TRACES.open.store(0, Ordering::Relaxed);
    rebuild_interest_cache();
    Some(Recording(Mutex::new(session)))
}

/// The recorded events of a closed trace.
#[pyclass(frozen, module = "cai_bridge._core", name = "_Recording")]
pub(crate) struct Recording(Mutex<TraceSession>);

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recording")
    }
}

impl Recording {
    fn session(&self) -> MutexGuard<'_, TraceSession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event's name, time, thread number and fields.
type EventFields<'py> = (&'static str, u64, u64, Bound<'py, PyDict>);

#[pymethods]
impl Recording {
    /// When the trace was opened and closed, in nanoseconds on the traces' clock.
    #[getter]
    fn times(&self) -> (u64, u64) {
        let session = self.session();
        (session.began, session.ended)
    }

    /// How many events were left out, since the trace had reached its limit.
    #[getter]
    fn left_out(&self) -> u64 {
        self.session().left_out
    }

    /// The numbers and names of the threads that made events, and of the thread that opened the trace.
    #[getter]
    fn threads(&self) -> Vec<(u64, String)> {
        self.session().threads.clone()
    }

    /// Removes and returns the oldest events, at most `most`.
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
