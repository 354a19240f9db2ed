//! The array library of the simulated device: current streams, order between streams, and exceptions of callables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::driver::simulated::Simulated;
use crate::driver::{self, Event, Handle};
use crate::error::Result;
use crate::stream::{Stream, Thread};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamOnDevice {
    pub(super) ordinal: i32,
    pub(super) stream: Stream,
}

impl StreamOnDevice {
    pub(super) fn new(ordinal: i32, handle: u64) -> Self {
        Self { ordinal, stream: Stream::from_native(handle, Thread::current()) }
    }

    /// The stream as this thread can name it: another thread's per-thread stream becomes the legacy default stream.
    pub(super) fn seen_from_here(self) -> Self {
        Self { stream: self.stream.seen_from(Thread::current()), ..self }
    }
}

#[derive(Debug)]
pub(super) struct SimulatedLibrary {
    machine: Arc<Simulated>,
    current: Mutex<HashMap<(Thread, i32), u64>>,
    events: Mutex<HashMap<(Thread, i32), Event>>,
    raised: Mutex<Vec<PyErr>>,
}

/// The library whose machine is installed as the driver. A forked child inherits its parent's value.
static OPEN: Mutex<Option<Arc<SimulatedLibrary>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedLibrary {
    pub(super) fn new(devices: u32) -> Arc<Self> {
        Arc::new(Self {
            machine: Simulated::new(devices),
            current: Mutex::default(),
            events: Mutex::default(),
            raised: Mutex::default(),
        })
    }

    /// `None` if no library is open, or if this process inherited the library from its parent by a fork.
    pub(super) fn open() -> Option<Arc<Self>> {
        locked(&OPEN).clone().filter(|library| library.is_ours())
    }

    /// Fails in a forked child, which must not take the locks of `self` or of the machine.
    pub(super) fn machine(&self) -> Result<&Arc<Simulated>> {
        self.machine.process().check().map(|()| &self.machine)
    }

    fn is_ours(&self) -> bool {
        self.machine.process().is_current()
    }

    /// Installs the machine as this process's driver. Returns false if a simulated device is installed already.
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

    /// If this library's machine is installed, installs the real driver again. The caller must hold the interpreter's
    /// lock, so that no fork happens halfway through.
    pub(super) fn close(self: &Arc<Self>) {
        let mut open = locked(&OPEN);
        if self.is_ours() && open.as_ref().is_some_and(|open| Arc::ptr_eq(open, self)) {
            driver::install(None);
            *open = None;
        }
    }

    pub(super) fn abandon(&self) {
        if let Ok(machine) = self.machine() {
            machine.abandon();
            machine.forget_graphs();
        }
    }

    pub(super) fn is_open(self: &Arc<Self>) -> bool {
        self.is_ours() && locked(&OPEN).as_ref().is_some_and(|open| Arc::ptr_eq(open, self))
    }

    /// Fails if this library's machine is not installed as this process's driver.
    pub(super) fn check_lives(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.machine()?;
        if self.is_open() {
            return Ok(());
        }
        let testing = py.import("cai_bridge.testing")?;
        let words = testing.getattr("_work")?.getattr("ENDED")?;
        Err(PyErr::from_value(testing.getattr("SimulatedError")?.call1((words,))?))
    }

    /// The handle of the calling thread's current stream; 0, the legacy default stream, if none was set.
    pub(super) fn current_stream(&self, ordinal: i32) -> Result<u64> {
        self.machine()?;
        Ok(locked(&self.current).get(&(Thread::current(), ordinal)).copied().unwrap_or(0))
    }

    /// Returns the handle of the calling thread's previous current stream; 0 if none was set.
    pub(super) fn set_current_stream(&self, ordinal: i32, handle: u64) -> Result<u64> {
        self.machine()?;
        Ok(locked(&self.current).insert((Thread::current(), ordinal), handle).unwrap_or(0))
    }

    pub(super) fn order(&self, from: StreamOnDevice, to: StreamOnDevice) -> Result<()> {
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

    pub(super) fn raise_later(&self, error: PyErr) {
        locked(&self.raised).push(error);
    }

    pub(super) fn take_raised(&self) -> Vec<PyErr> {
        if self.is_ours() { std::mem::take(&mut *locked(&self.raised)) } else { Vec::new() }
    }
}
