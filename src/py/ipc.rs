//! The driver calls of `cai_bridge.share`. `cai_bridge._share` decides how long memory and events live.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::interpreter::{Answer, act, detach, entry, inside};
use super::source::ready_streams;
use super::views::BaseView;
use crate::buffer::copy_to;
use crate::capture::{Route, host_route};
use crate::device::{Context, Place};
use crate::driver::ipc::Name;
use crate::driver::own_stream::OwnStream;
use crate::driver::{Driver, Event, Handle, prepared};
use crate::error::{Error, Result};
use crate::order::within;
use crate::stream::Alive;

/// A GPU.
#[pyclass(frozen, module = "cai_bridge._core", name = "_IpcDevice")]
#[derive(Debug)]
pub(super) struct IpcDevice {
    driver: Handle,
    place: Place,
}

/// A stream of the bridge's own on a GPU. It exists as long as the GPU's primary context.
#[pyclass(frozen, module = "cai_bridge._core", name = "_IpcStream")]
#[derive(Debug)]
pub(super) struct IpcStream {
    driver: Handle,
    place: Place,
    stream: OwnStream,
}

/// An event that two processes share. Dropping this object does not destroy the event.
#[pyclass(frozen, module = "cai_bridge._core", name = "_IpcEvent")]
#[derive(Debug)]
pub(super) struct IpcEvent {
    driver: Handle,
    place: Place,
    event: Event,
}

/// Adds the classes by `setattr`, so that the module's `__all__` does not list them.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.setattr("_IpcDevice", py.get_type::<IpcDevice>())?;
    module.setattr("_IpcStream", py.get_type::<IpcStream>())?;
    module.setattr("_IpcEvent", py.get_type::<IpcEvent>())
}

/// Runs `call` in the primary context of `place`, without the interpreter's lock.
fn call<R: Send>(
    py: Python<'_>,
    driver: &Handle,
    place: Place,
    call: impl FnOnce(&dyn Driver, Context) -> Result<R> + Send,
) -> Result<R> {
    detach(py, || {
        let driver = driver.get()?;
        within(driver, place, |context| call(driver, context))
    })
}

fn named(name: &[u8]) -> PyResult<Name> {
    name.try_into()
        .map_err(|_| PyValueError::new_err(format!("name: got {} bytes; allowed: 64", name.len())))
}

impl IpcDevice {
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        made: impl FnOnce(&dyn Driver, Context) -> Result<R> + Send,
    ) -> Result<R> {
        call(py, &self.driver, self.place, made)
    }
}

#[pymethods]
impl IpcDevice {
    #[new]
    fn new(py: Python<'_>, ordinal: i32) -> PyResult<Self> {
        inside(|| {
            let driver = prepared(|call| detach(py, call))?;
            Ok(Self { driver, place: Place::gpu(ordinal) })
        })
    }

    /// Identifies the GPU among the GPUs of all drivers in this process.
    #[getter]
    fn key(&self) -> (usize, i32) {
        let driver = match &self.driver {
            Handle::Cuda => 0,
            Handle::Simulated(machine) => Arc::as_ptr(machine).addr(),
            Handle::Borrowed(machine) => Arc::as_ptr(machine).addr(),
        };
        (driver, self.place.ordinal)
    }

    /// The GPU's UUID, the same in every process. Makes no context.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            let ordinal = self.place.ordinal;
            let uuid = detach(py, || self.driver.get()?.uuid(ordinal))?;
            Ok(PyBytes::new(py, &uuid))
        })
    }

    /// Fails if the host may not wait for the view's array, because of a graph capture.
    #[staticmethod]
    fn refuse_capture<'py>(view: &Bound<'py, BaseView>) -> Answer<'py> {
        let py = view.py();
        act(py, || {
            let view = view.get();
            let held = view.share_for_hand_over(py)?;
            let ready = ready_streams(py, "share", &held)?;
            let Some((ready, also)) = ready else { return Ok(()) };
            let check = |stream: Alive<'_>| {
                let driver = view.driver.get()?;
                let status = within(driver, stream.place(), |_| driver.capture_status(stream))?;
                match host_route(status) {
                    Route::Refused(kind) => Err(Error::new(kind, "an array that is captured")),
                    _ => Ok(()),
                }
            };
            check(ready)?;
            Ok(also.map_or(Ok(()), check)?)
        })
    }

    /// Returns the start and length of the allocation at `ptr`, whether it can have an IPC handle of its own, and its
    /// memory pool or `None`.
    fn allocation<'py>(&self, py: Python<'py>, ptr: u64) -> Answer<'py> {
        entry(py, || {
            let found = self.call(py, |driver, _| driver.allocation(ptr))?;
            Ok((found.range.0, found.range.1, found.is_legacy, found.pool))
        })
    }

    fn name_memory<'py>(&self, py: Python<'py>, ptr: u64) -> Answer<'py> {
        entry(py, || Ok(PyBytes::new(py, &self.call(py, |driver, _| driver.name_memory(ptr))?)))
    }

    fn open_memory<'py>(&self, py: Python<'py>, name: &[u8]) -> Answer<'py> {
        entry(py, || {
            let name = named(name)?;
            Ok(self.call(py, |driver, _| driver.open_memory(&name))?)
        })
    }

    fn close_memory<'py>(&self, py: Python<'py>, ptr: u64) -> Answer<'py> {
        act(py, || Ok(self.call(py, |driver, _| driver.close_memory(ptr))?))
    }

    fn create_pool<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let ordinal = self.place.ordinal;
        entry(py, || Ok(self.call(py, |driver, _| driver.create_pool(ordinal))?))
    }

    /// Exports the pool as a file descriptor, which the caller must close.
    fn export_pool<'py>(&self, py: Python<'py>, pool: u64) -> Answer<'py> {
        entry(py, || Ok(self.call(py, |driver, _| driver.export_pool(pool))?))
    }

    fn import_pool<'py>(&self, py: Python<'py>, file: i32) -> Answer<'py> {
        entry(py, || Ok(self.call(py, |driver, _| driver.import_pool(file))?))
    }

    fn name_pointer<'py>(&self, py: Python<'py>, ptr: u64) -> Answer<'py> {
        entry(py, || Ok(PyBytes::new(py, &self.call(py, |driver, _| driver.name_pointer(ptr))?)))
    }

    fn import_pointer<'py>(&self, py: Python<'py>, pool: u64, name: &[u8]) -> Answer<'py> {
        entry(py, || {
            let name = named(name)?;
            Ok(self.call(py, |driver, _| driver.import_pointer(pool, &name))?)
        })
    }

    fn stream<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let place = self.place;
        entry(py, || {
            let stream = self.call(py, |driver, context| OwnStream::new(driver, place, context))?;
            Ok(IpcStream { driver: self.driver.clone(), place, stream })
        })
    }

    fn event<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            let event = self.call(py, |driver, context| driver.create_shared_event(context))?;
            Ok(IpcEvent { driver: self.driver.clone(), place: self.place, event })
        })
    }

    fn open_event<'py>(&self, py: Python<'py>, name: &[u8]) -> Answer<'py> {
        entry(py, || {
            let name = named(name)?;
            let event = self.call(py, |driver, context| driver.open_event(&name, context))?;
            Ok(IpcEvent { driver: self.driver.clone(), place: self.place, event })
        })
    }
}

impl IpcStream {
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        made: impl FnOnce(&dyn Driver, Alive<'_>) -> Result<R> + Send,
    ) -> Result<R> {
        call(py, &self.driver, self.place, |driver, _| made(driver, self.stream.alive(driver)?))
    }
}

#[pymethods]
impl IpcStream {
    fn __cuda_stream__(&self) -> (i32, u64) {
        (0, self.stream.native())
    }

    fn record<'py>(&self, py: Python<'py>, event: &Bound<'py, IpcEvent>) -> Answer<'py> {
        let event = event.get().event;
        act(py, || {
            Ok(self.call(py, |driver, stream| {
                event.check_life(driver.life(event.context)?, "cuEventRecord")?;
                driver.record_event(event, stream)
            })?)
        })
    }

    fn wait<'py>(&self, py: Python<'py>, event: &Bound<'py, IpcEvent>) -> Answer<'py> {
        let event = event.get().event;
        act(py, || {
            Ok(self.call(py, |driver, stream| {
                event.check_life(driver.life(event.context)?, "cuStreamWaitEvent")?;
                driver.wait_event(stream, event)
            })?)
        })
    }

    fn allocate<'py>(&self, py: Python<'py>, pool: u64, nbytes: u64) -> Answer<'py> {
        entry(py, || {
            Ok(self.call(py, |driver, stream| {
                let made = driver.allocate_from(pool, nbytes, stream);
                made.map_err(|error| error.of_memory(nbytes))
            })?)
        })
    }

    fn free<'py>(&self, py: Python<'py>, ptr: u64) -> Answer<'py> {
        act(py, || Ok(self.call(py, |driver, stream| driver.free_on(ptr, stream))?))
    }

    /// Queues a copy of the view's array to the address `target` on the GPU. The copy has no gaps. This stream does not
    /// wait for the array.
    fn copy<'py>(&self, view: &Bound<'py, BaseView>, target: u64) -> Answer<'py> {
        let (py, view) = (view.py(), view.get());
        act(py, || {
            view.check_leased()?;
            Ok(self.call(py, |driver, stream| copy_to(driver, &view.array, target, stream))?)
        })
    }
}

#[pymethods]
impl IpcEvent {
    /// The bytes by which another process opens the event.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Answer<'py> {
        entry(py, || {
            let made = |driver: &dyn Driver, _: Context| driver.name_event(self.event);
            Ok(PyBytes::new(py, &call(py, &self.driver, self.place, made)?))
        })
    }

    /// Makes the host wait until the event's last recording is reached.
    fn wait<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let made = |driver: &dyn Driver, _: Context| driver.wait_until(self.event);
        act(py, || Ok(call(py, &self.driver, self.place, made)?))
    }

    /// Destroys the event. Only for an event that `open_event` returned; the caller must not use the event afterwards.
    fn close<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let made = |driver: &dyn Driver, _: Context| driver.close_event(self.event);
        act(py, || Ok(call(py, &self.driver, self.place, made)?))
    }
}
