//! The crate's `tracing` events, handed to Python's `logging` under `cai_bridge`, and to an open trace.
//!
//! With logging off no event is made: the level of Python's logger is kept here, and `tracing` checks it with
//! one load. `cai_bridge._events` reports a change. A trace takes every event; events of level `TRACE`, and
//! fields whose names begin with `trace.`, are for the trace alone.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tracing::callsite::rebuild_interest_cache;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::fields::{Fields, dict};
use super::trace;
use crate::local::local;
use crate::py::interpreter::{enter, is_over, raise_later};

/// The levels of Python's `logging`, divided by ten; 0 if logging is off.
static WANTED: AtomicU8 = AtomicU8::new(0);

struct ToPython;

local! {
    /// Whether this thread is in the midst of telling an event.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// The telling of an event, until dropped.
struct TellingGuard;

impl TellingGuard {
    fn begin() -> Option<Self> {
        let began = TELLING.replace(true) == Some(false);
        // Made only then: its end would end the telling that is under way.
        began.then(|| Self)
    }
}

impl Drop for TellingGuard {
    fn drop(&mut self) {
        TELLING.replace(false);
    }
}

/// Whether this thread is in the midst of telling an event.
pub(crate) fn is_telling() -> bool {
    TELLING.get().unwrap_or(false)
}

/// Runs `call`, and tells nothing of what it does where `quiet`.
pub(crate) fn quietly<R>(quiet: bool, call: impl FnOnce() -> R) -> R {
    let _telling = quiet.then(TellingGuard::begin).flatten();
    call()
}

/// The level of an event as `logging` has it; 0 for one that is not for it.
fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 0,
    }
}

fn is_logged(level: Level) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    wanted != 0 && python_level(level) >= wanted
}

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // `tracing::enabled!` asks by a hint, which is no event.
        !metadata.is_span() && (trace::is_open() || is_logged(*metadata.level()))
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match WANTED.load(Ordering::Relaxed) {
            _ if trace::is_open() => LevelFilter::TRACE,
            0 => LevelFilter::OFF,
            1..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            _ => LevelFilter::ERROR,
        })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        trace::keep(event);
        // Calls by a log handler are not logged: that would never end. Nor is anything once the interpreter
        // ends, since `logging` ends with it.
        let Some(_telling) = TellingGuard::begin() else { return };
        if !is_logged(*event.metadata().level()) || is_over() {
            return;
        }
        enter(|py| {
            // A handler that fails has been reported by `logging` itself; an event is no reason to
            // fail the hand-over that it tells of. An interrupt comes once that is done.
            match forward(py, event) {
                Err(error) if !error.is_instance_of::<PyException>(py) => raise_later(py, error),
                Err(error) => error.write_unraisable(py, None),
                Ok(()) => {}
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn forward(py: Python<'_>, event: &Event<'_>) -> PyResult<()> {
    let Fields { values, text, .. } = Fields::of(event, true);
    let values = values.into_iter().filter(|(name, _)| !name.starts_with("trace."));
    let level = python_level(*event.metadata().level());
    let fields = dict(py, values)?;
    py.import("cai_bridge._events")?.call_method1("emit", (level, text, fields))?;
    Ok(())
}

/// Tells which level of Python's `logging` is wanted; 0 for none.
#[pyfunction]
pub(crate) fn _set_event_level(level: u8) {
    WANTED.store(level, Ordering::Relaxed);
    rebuild_interest_cache();
}

/// Makes [`ToPython`] the subscriber of this module. A second import finds it installed.
pub(crate) fn install() {
    let _ = tracing::subscriber::set_global_default(ToPython);
}
