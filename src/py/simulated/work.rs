//! Python callables as queued work.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use super::library::{SimulatedLibrary, StreamOnDevice};
use crate::driver::simulated::{Simulated, Span};
use crate::error::Result;
use crate::py::anywhere::Anywhere;
use crate::py::interpreter::attached;

/// Each pair is `(address, length)`.
pub(super) fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
    pairs.iter().map(|&(ptr, len)| Span { ptr, len }).collect()
}

/// Queues work that calls `run`. While the library exists, an exception of `run` goes to `take_raised`.
pub(super) fn launch(
    library: &Arc<SimulatedLibrary>,
    queue: StreamOnDevice,
    name: &str,
    reads: &[Span],
    writes: &[Span],
    run: Option<Py<PyAny>>,
) -> Result<()> {
    let action = action(Arc::downgrade(library), Anywhere::new(run));
    let machine = library.machine()?;
    machine.on_device(queue.ordinal, || machine.launch(queue.stream, name, reads, writes, action))
}

fn action(
    library: Weak<SimulatedLibrary>,
    run: Anywhere,
) -> impl Fn(&Simulated) + Send + Sync + 'static {
    move |_| {
        let Some(callable) = run.get() else { return };
        let raised = attached(|py| callable.call0(py).err()).flatten();
        if let (Some(error), Some(library)) = (raised, library.upgrade()) {
            library.raise_later(error);
        }
    }
}
