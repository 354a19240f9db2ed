//! Forwards the crate's `tracing` events to Python's `logging`, under `cai_bridge`, and to an open trace. Events of
//! level `TRACE`, and fields whose names begin with `trace.`, go to the trace only.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tracing::callsite::rebuild_interest_cache;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::fields::{ReportFields, dict};
use super::trace;
use crate::py::interpreter::{enter, is_over, raise_later};
use crate::py::this_thread::Once;

/// The lowest level that Python's logger accepts, as a number of `logging`; 0 if logging is off.
static WANTED: AtomicU8 = AtomicU8::new(0);

/// Whether [`ToPython`] is the global subscriber of `tracing`.
static INSTALLED: AtomicBool = AtomicBool::new(false);

struct ToPython;

/// Whether this thread is forwarding an event to `logging`, or is inside [`quietly`].
pub(crate) fn is_telling() -> bool {
    Once::Telling.is_on()
}

/// Runs `call`. If `quiet`, this thread's events are not logged during `call`; a trace still gets the events.
pub(crate) fn quietly<R>(quiet: bool, call: impl FnOnce() -> R) -> R {
    let _telling = quiet.then(|| Once::Telling.begin()).flatten();
    call()
}

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

/// Whether a warning of this thread would reach Python's `logging`, or the program's own subscriber.
pub(crate) fn is_warning_read() -> bool {
    if INSTALLED.load(Ordering::Relaxed) {
        is_logged(Level::WARN) && !is_telling() && !is_over()
    } else {
        tracing::enabled!(target: "cai_bridge", Level::WARN)
    }
}

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // `tracing::enabled!` asks with metadata of kind hint, so check only that it is not a span.
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
        // Log nothing while this thread forwards another event: a log handler that calls the bridge might never end.
        let Some(_telling) = Once::Telling.begin() else { return };
        if !is_logged(*event.metadata().level()) || is_over() {
            return;
        }
        enter(|py| {
            // If logging fails, the call that made the event must not fail.
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
    let ReportFields { values, text, .. } = ReportFields::of(event, true);
    let values = values.into_iter().filter(|(name, _)| !name.starts_with("trace."));
    let level = python_level(*event.metadata().level());
    let fields = dict(py, values)?;
    py.import("cai_bridge._events")?.call_method1("emit", (level, text, fields))?;
    Ok(())
}

/// Sets the lowest level that Python's logger accepts, as a number of `logging`; 0 turns logging off.
#[pyfunction]
pub(crate) fn _set_event_level(level: u8) {
    WANTED.store(level, Ordering::Relaxed);
    rebuild_interest_cache();
}

/// Changes nothing if `tracing` has a global subscriber already.
pub(crate) fn install() {
    if tracing::subscriber::set_global_default(ToPython).is_ok() {
        INSTALLED.store(true, Ordering::Relaxed);
    }
}
