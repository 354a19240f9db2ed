//! `_Session`: one simulated machine with its array library. A stream's `handle` is the driver's: 0 and 1 mean the
//! legacy default stream, 2 the calling thread's. Calls that can run queued work release the interpreter's lock.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lend::settle;
use super::library::{SimulatedLibrary, StreamOnDevice};
use super::record::{self, CallTuple, ReportTuple};
use super::work::{launch, spans};
use crate::driver::simulated::{CaptureMode, FaultError, Graph, Simulated};
use crate::error::Result;
use crate::py::interpreter::{Answer, act, detach, entry};
use crate::stream::Stream;

/// One simulated machine.
#[pyclass(frozen, weakref, module = "cai_bridge._core", name = "_Session")]
#[derive(Debug)]
pub(crate) struct Session(pub(super) Arc<SimulatedLibrary>);

/// A captured graph of one machine.
#[pyclass(frozen, module = "cai_bridge._core", name = "_CapturedGraph")]
#[derive(Debug)]
pub(crate) struct CapturedGraph(Graph);

impl From<FaultError> for PyErr {
    fn from(error: FaultError) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// Runs `call` without the interpreter's lock, then finishes each pending end that can be finished.
fn run(py: Python<'_>, call: impl FnOnce() -> Result<()> + Send) -> Answer<'_> {
    act(py, || {
        let done = detach(py, call);
        settle(py);
        Ok(done?)
    })
}

impl Session {
    fn on<R>(
        &self,
        device: i32,
        handle: u64,
        call: impl FnOnce(&Simulated, Stream) -> Result<R>,
    ) -> Result<R> {
        let (machine, queue) = (self.0.machine()?, StreamOnDevice::new(device, handle));
        machine.on_device(device, || call(machine, queue.stream))
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(devices: u32) -> Self {
        Self(SimulatedLibrary::new(devices))
    }

    fn enter(&self) -> bool {
        self.0.enter()
    }

    fn leave<'py>(&self, py: Python<'py>) -> Answer<'py> {
        act(py, || {
            self.0.close();
            detach(py, || self.0.abandon());
            // Drop the exceptions while this thread holds the lock. Then finish the ends that waited for the abandoned
            // work.
            drop(self.0.take_raised());
            settle(py);
            Ok(())
        })
    }

    /// Fails in a forked child of the process that created the machine.
    fn check_process(&self) -> PyResult<()> {
        Ok(self.0.machine().map(drop)?)
    }

    #[getter]
    fn is_here(&self) -> bool {
        self.0.machine().is_ok()
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    #[getter]
    fn device(&self) -> PyResult<Option<i32>> {
        Ok(self.0.machine()?.device())
    }

    fn set_device(&self, device: i32) -> PyResult<()> {
        Ok(self.0.machine()?.set_device(device)?)
    }

    /// Pops the calling thread's current context, as `cuCtxSetCurrent(NULL)` does.
    fn unset_device(&self) -> PyResult<()> {
        self.0.machine()?.unset_device();
        Ok(())
    }

    fn reset_device<'py>(&self, py: Python<'py>, device: i32) -> Answer<'py> {
        run(py, || self.0.machine()?.reset_device(device))
    }

    fn set_current_stream<'py>(&self, py: Python<'py>, device: i32, handle: u64) -> Answer<'py> {
        entry(py, || Ok(self.0.set_current_stream(device, handle)?))
    }

    fn current_stream<'py>(&self, py: Python<'py>, device: i32) -> Answer<'py> {
        entry(py, || Ok(self.0.current_stream(device)?))
    }

    /// If `handle` is given, the new stream gets that handle, which must be a destroyed stream's.
    #[pyo3(signature = (device, blocking, name=None, handle=None))]
    fn create_stream(
        &self,
        device: i32,
        blocking: bool,
        name: Option<&str>,
        handle: Option<u64>,
    ) -> PyResult<u64> {
        let machine = self.0.machine()?;
        let handle = match handle {
            Some(handle) => {
                machine.create_stream_again(device, blocking, handle)?;
                handle
            }
            None => machine.create_stream(device, blocking)?,
        };
        if let Some(name) = name {
            machine.name_stream(handle, name)?;
        }
        Ok(handle)
    }

    fn destroy_stream(&self, handle: u64) -> PyResult<()> {
        Ok(self.0.machine()?.destroy_stream(handle)?)
    }

    fn stream_name(&self, device: i32, handle: u64) -> PyResult<String> {
        Ok(self.on(device, handle, Simulated::stream_name)?)
    }

    fn synchronize_stream<'py>(&self, py: Python<'py>, device: i32, handle: u64) -> Answer<'py> {
        run(py, || self.on(device, handle, Simulated::synchronize_stream))
    }

    fn synchronize_all<'py>(&self, py: Python<'py>) -> Answer<'py> {
        run(py, || self.0.machine()?.synchronize_all())
    }

    fn run_all<'py>(&self, py: Python<'py>) -> Answer<'py> {
        run(py, || self.0.machine()?.run_all())
    }

    #[getter]
    fn pending(&self) -> PyResult<usize> {
        Ok(self.0.machine()?.pending())
    }

    fn take_raised<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let raised = self.0.take_raised();
        raised.into_iter().map(|error| error.into_value(py).into_bound(py).into_any()).collect()
    }

    fn record_event(&self, device: i32, handle: u64) -> PyResult<usize> {
        let event = self.on(device, handle, |machine, stream| {
            let event = machine.create_event()?;
            machine.record_on(event, stream)?;
            Ok(event)
        })?;
        Ok(event.handle)
    }

    fn wait_event(&self, device: i32, handle: u64, event: usize) -> PyResult<()> {
        Ok(self
            .on(device, handle, |machine, stream| machine.wait_on(stream, machine.event(event)?))?)
    }

    fn query_event(&self, event: usize) -> PyResult<bool> {
        let machine = self.0.machine()?;
        Ok(machine.query_event(machine.event(event)?)?)
    }

    fn synchronize_event<'py>(&self, py: Python<'py>, event: usize) -> Answer<'py> {
        run(py, || {
            let machine = self.0.machine()?;
            machine.synchronize_event(machine.event(event)?)
        })
    }

    fn order(&self, first: (i32, u64), then: (i32, u64)) -> PyResult<()> {
        Ok(self
            .0
            .order(StreamOnDevice::new(first.0, first.1), StreamOnDevice::new(then.0, then.1))?)
    }

    #[pyo3(signature = (device, handle, name, reads, writes, run=None))]
    #[allow(clippy::too_many_arguments, reason = "a launch has as many")]
    #[allow(clippy::needless_pass_by_value, reason = "what PyO3 extracts is owned")]
    fn launch(
        &self,
        device: i32,
        handle: u64,
        name: &str,
        reads: Vec<(u64, u64)>,
        writes: Vec<(u64, u64)>,
        run: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let queue = StreamOnDevice::new(device, handle);
        Ok(launch(&self.0, queue, name, &spans(&reads), &spans(&writes), run)?)
    }

    /// Checks an access by the host. Does nothing inside queued work: the launch declares the accesses of the work.
    #[allow(clippy::needless_pass_by_value, reason = "what PyO3 extracts is owned")]
    fn touch(&self, name: &str, reads: Vec<(u64, u64)>, writes: Vec<(u64, u64)>) -> PyResult<()> {
        let machine = self.0.machine()?;
        if !machine.is_inside_work() {
            machine.host_touch(name, &spans(&reads), &spans(&writes));
        }
        Ok(())
    }

    /// Makes later allocations of device memory, except from pools, accessible to other processes.
    fn share_memory(&self) -> PyResult<()> {
        Ok(self.0.machine()?.share_memory()?)
    }

    /// Runs this process's queued work up to each point that another OS process waits for.
    fn run_needed<'py>(&self, py: Python<'py>) -> Answer<'py> {
        run(py, || {
            self.0.machine()?.run_needed();
            Ok(())
        })
    }

    #[getter]
    fn bytes_in_use(&self) -> PyResult<u64> {
        Ok(self.0.machine()?.bytes_in_use())
    }

    /// The number of the newest operation or host access.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.0.machine()?.sequence())
    }

    fn load<'py>(&self, py: Python<'py>, ptr: u64, length: u64) -> Answer<'py> {
        entry(py, || Ok(PyBytes::new(py, &self.0.machine()?.load(ptr, length)?)))
    }

    fn store(&self, ptr: u64, data: &[u8]) -> PyResult<()> {
        Ok(self.0.machine()?.store(ptr, data)?)
    }

    fn device_of(&self, ptr: u64) -> PyResult<Option<i32>> {
        Ok(self.0.machine()?.device_of(ptr))
    }

    fn reports(&self) -> PyResult<Vec<ReportTuple>> {
        Ok(self.0.machine()?.reports().iter().map(record::report).collect())
    }

    fn reports_left_out(&self) -> PyResult<u64> {
        Ok(self.0.machine()?.reports_left_out())
    }

    fn clear_reports(&self) -> PyResult<()> {
        drop(self.0.machine()?.take_reports());
        Ok(())
    }

    fn fail(&self, call: &str, nth: u32, error: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(self.0.machine()?.fail(call, nth, record::code(error)?)?)
    }

    fn suppress(&self, call: &str, nth: u32) -> PyResult<()> {
        Ok(self.0.machine()?.suppress(call, nth)?)
    }

    fn clear_faults(&self) -> PyResult<usize> {
        Ok(self.0.machine()?.clear_faults())
    }

    fn calls(&self) -> PyResult<Vec<CallTuple>> {
        Ok(self.0.machine()?.calls().iter().map(record::call).collect())
    }

    fn clear_calls(&self) -> PyResult<()> {
        self.0.machine()?.clear_calls();
        Ok(())
    }

    fn begin_capture(&self, device: i32, handle: u64, mode: &str) -> PyResult<()> {
        let mode = match mode {
            "global" => CaptureMode::Global,
            "thread_local" => CaptureMode::ThreadLocal,
            "relaxed" => CaptureMode::Relaxed,
            other => {
                let text = format!("mode: got {other:?}; allowed: global, thread_local, relaxed");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(self.on(device, handle, |machine, stream| machine.begin_capture(stream, mode))?)
    }

    fn end_capture(&self, device: i32, handle: u64) -> PyResult<CapturedGraph> {
        Ok(CapturedGraph(self.on(device, handle, Simulated::end_capture)?))
    }

    fn launch_graph(&self, graph: &CapturedGraph, device: i32, handle: u64) -> PyResult<()> {
        Ok(self.on(device, handle, |machine, stream| machine.launch_graph(graph.0, stream))?)
    }
}
