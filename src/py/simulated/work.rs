//! Python callables as queued work.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use super::library::{Library, Queue};
use crate::driver::simulated::{Simulated, Span};
use crate::error::Result;
use crate::py::interpreter::attached;

/// Spans as Python passes them: `(address, length)`.
pub(super) fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
    pairs.iter().map(|&(ptr, len)| Span { ptr, len }).collect()
}

/// A callable that may be dropped anywhere: the interpreter is attached to for it, and where there is
/// none any more it is left alone.
struct Callable(Option<Py<PyAny>>);

impl Drop for Callable {
    fn drop(&mut self) {
        let mut callable = self.0.take();
        attached(|_| drop(callable.take()));
        std::mem::forget(callable);
    }
}

/// Queues `run` on a stream. What it raises is kept until the next sync. Without it the work only
/// touches its memory.
pub(super) fn launch(
    library: &Arc<Library>,
    queue: Queue,
    name: &str,
    reads: &[Span],
    writes: &[Span],
    run: Option<Py<PyAny>>,
) -> Result<()> {
    let action = action(Arc::downgrade(library), Callable(run));
    let machine = library.machine()?;
    machine.on_device(queue.ordinal, || machine.launch(queue.stream, name, reads, writes, action))
}

fn action(library: Weak<Library>, run: Callable) -> impl Fn(&Simulated) + Send + Sync + 'static {
    move |_| {
        let Some(callable) = &run.0 else { return };
        let raised = attached(|py| callable.call0(py).err()).flatten();
        if let (Some(error), Some(library)) = (raised, library.upgrade()) {
            library.raise_later(error);
        }
    }
}
