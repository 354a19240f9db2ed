//! What an array library adds to the machine: a current stream a device and thread, order between
//! its streams, and what its callables raised.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::driver::simulated::Simulated;
use crate::driver::{self, Event, Handle};
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// A stream and the device that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) ordinal: i32,
    pub(super) stream: Stream,
}

impl Queue {
    /// The stream that the driver calls `handle`, seen from this thread.
    pub(super) fn new(ordinal: i32, handle: u64) -> Self {
        Self { ordinal, stream: Stream::from_native(handle, Thread::current()) }
    }

    /// The same as this thread can name it.
    pub(super) fn seen_from_here(self) -> Self {
        Self { stream: self.stream.seen_from(Thread::current()), ..self }
    }
}

/// The simulated array library.
#[derive(Debug)]
pub(super) struct Library {
    machine: Arc<Simulated>,
    /// The current stream of each thread and device, as the driver names it.
    current: Mutex<HashMap<(Thread, i32), u64>>,
    /// An event of its own for each thread and device.
    events: Mutex<HashMap<(Thread, i32), Event>>,
    raised: Mutex<Vec<PyErr>>,
}

/// The one whose machine is this process's driver.
static OPEN: Mutex<Option<Arc<Library>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    pub(super) fn new(devices: u32) -> Arc<Self> {
        Arc::new(Self {
            machine: Simulated::new(devices),
            current: Mutex::default(),
            events: Mutex::default(),
            raised: Mutex::default(),
        })
    }

    /// The library whose machine is this process's driver just now.
    pub(super) fn open() -> Option<Arc<Self>> {
        locked(&OPEN).clone().filter(|library| library.is_ours())
    }

    /// The machine. A fork of the process that it belongs to is refused: none of the locks here, nor
    /// the machine's own, may be touched there.
    pub(super) fn machine(&self) -> Result<&Arc<Simulated>> {
        self.machine.process().check().map(|()| &self.machine)
    }

    fn is_ours(&self) -> bool {
        self.machine.process().is_current()
    }

    /// Makes the machine this process's driver; `false` where a simulated one is in place already.
    pub(super) fn enter(self: &Arc<Self>) -> bool {
        let mut open = locked(&OPEN);
        if open.as_ref().is_some_and(|open| open.is_ours())
            || matches!(driver::current(), Ok(Handle::Simulated(_)))
        {
            return false;
        }
        driver::install(Some(Arc::clone(&self.machine)));
        *open = Some(Arc::clone(self));
        true
    }

    /// Gives the real driver back. To be called with the interpreter attached: then no thread is in
    /// the middle of it where Python forks.
    pub(super) fn close(self: &Arc<Self>) {
        let mut open = locked(&OPEN);
        if self.is_ours() && open.as_ref().is_some_and(|open| Arc::ptr_eq(open, self)) {
            driver::install(None);
            *open = None;
        }
    }

    /// Drops all that was queued and captured.
    pub(super) fn abandon(&self) {
        if let Ok(machine) = self.machine() {
            machine.abandon();
            machine.forget_graphs();
        }
    }

    pub(super) fn is_open(self: &Arc<Self>) -> bool {
        self.is_ours() && locked(&OPEN).as_ref().is_some_and(|open| Arc::ptr_eq(open, self))
    }

    /// Refuses an array of a device whose block has ended, in the words of the Python side.
    pub(super) fn check_lives(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.machine()?;
        if self.is_open() {
            return Ok(());
        }
        let testing = py.import("cai_bridge.testing")?;
        let words = testing.getattr("_work")?.getattr("ENDED")?;
        Err(PyErr::from_value(testing.getattr("SimulatedError")?.call1((words,))?))
    }

    /// The calling thread's current stream of a device; 0, the driver's other name for the legacy
    /// default stream, where none was set.
    pub(super) fn current_stream(&self, ordinal: i32) -> Result<u64> {
        self.machine()?;
        Ok(locked(&self.current).get(&(Thread::current(), ordinal)).copied().unwrap_or(0))
    }

    /// Sets it; returns the one before.
    pub(super) fn set_current_stream(&self, ordinal: i32, handle: u64) -> Result<u64> {
        self.machine()?;
        Ok(locked(&self.current).insert((Thread::current(), ordinal), handle).unwrap_or(0))
    }

    /// Work queued on `to` after this call runs after work queued on `from` before it.
    pub(super) fn order(&self, from: Queue, to: Queue) -> Result<()> {
        let from = from.seen_from_here();
        if from == to {
            return Ok(());
        }
        let machine = self.machine()?;
        let event = machine.on_device(from.ordinal, || {
            let event = self.event(from.ordinal)?;
            machine.record_on(event, from.stream)?;
            Ok(event)
        })?;
        machine.on_device(to.ordinal, || machine.wait_on(to.stream, event))
    }

    fn event(&self, ordinal: i32) -> Result<Event> {
        let key = (Thread::current(), ordinal);
        if let Some(event) = locked(&self.events).get(&key) {
            return Ok(*event);
        }
        let event = self.machine()?.create_event()?;
        locked(&self.events).insert(key, event);
        Ok(event)
    }

    /// Keeps what a callable raised for the next sync.
    pub(super) fn raise_later(&self, error: PyErr) {
        locked(&self.raised).push(error);
    }

    pub(super) fn take_raised(&self) -> Vec<PyErr> {
        if self.is_ours() { std::mem::take(&mut *locked(&self.raised)) } else { Vec::new() }
    }
}
