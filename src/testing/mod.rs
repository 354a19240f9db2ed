//! A CUDA device that needs no GPU, for the tests of code that uses this crate.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::array::{DeviceStream, SimulatedStream, WorkStream};
use crate::driver::Handle;
use crate::driver::simulated::{CaptureMode, Graph, Simulated};
use crate::error::{Error, Kind, Result};
use crate::stream::{Stream, Thread};

/// A simulated machine with GPUs. It has memory, streams, and work that runs late.
///
/// Queued work runs as late as is legal, so that a missing wait shows in the values. Every access is checked against
/// the earlier ones. [`check`](SimulatedCuda::check) fails if nothing orders a write and another access to the same
/// bytes, or if freed memory is used. It names the first such mistake. [`reports`](SimulatedCuda::reports) returns all
/// of them instead.
///
/// Arrays and streams belong to the machine that they were made on. They cannot be used on another machine.
///
/// A mistake also fails a test that forgets [`check`](SimulatedCuda::check). When the last clone of the machine is
/// dropped, the drop checks, and panics with the first mistake unless the test panics already.
///
/// ```should_panic
/// # use cai_bridge::Array;
/// # use cai_bridge::testing::SimulatedCuda;
/// let cuda = SimulatedCuda::new(1);
/// let (mine, theirs) = (cuda.stream(0)?, cuda.stream(0)?);
/// let x = Array::from_host(&mine, &[1.0_f32; 4], &[4])?;
/// let tensor = x.to_dlpack(&mine)?;
/// // SAFETY: deliberately wrong: the tensor is ready on another stream, and the device reports it.
/// let wrong = unsafe { Array::from_dlpack(tensor, &theirs) }?;
/// wrong.to_vec::<f32>(&theirs)?;
/// # Ok::<(), cai_bridge::Error>(())
/// ```
///
/// # Examples
///
/// ```
/// use cai_bridge::Array;
/// use cai_bridge::testing::SimulatedCuda;
///
/// let cuda = SimulatedCuda::new(1);
/// let (mine, theirs) = (cuda.stream(0)?, cuda.stream(0)?);
/// let x = Array::from_host(&mine, &[1.0_f32; 4], &[4])?;
/// assert_eq!(x.to_vec::<f32>(&theirs)?, [1.0; 4]);
/// cuda.check()?;
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedCuda(Arc<Checked>);

/// Unless the thread panics already, the drop runs the queued work, and panics with the first mistake since the last
/// check.
#[derive(Debug)]
struct Checked(Arc<Simulated>);

impl Drop for Checked {
    fn drop(&mut self) {
        if std::thread::panicking() || self.0.process().check().is_err() {
            return;
        }
        let done = self.0.run_all();
        let found = self.0.take_reports();
        if let Some(report) = found.first() {
            panic!("{}, which the test did not check", report.message);
        }
        if let Err(error) = done {
            panic!("{error}, which the test did not check");
        }
        if let Some(unused) = self.0.take_unused() {
            panic!("{unused}");
        }
    }
}

impl SimulatedCuda {
    /// Makes a machine with `devices` GPUs.
    ///
    /// # Examples
    ///
    /// See [`SimulatedCuda`].
    #[must_use]
    pub fn new(devices: u32) -> Self {
        Self(Arc::new(Checked(Simulated::new(devices))))
    }

    /// Makes a non-blocking stream on the GPU `ordinal`.
    ///
    /// # Errors
    ///
    /// There is no such GPU.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// assert!(SimulatedCuda::new(1).stream(0).is_ok());
    /// assert!(SimulatedCuda::new(1).stream(1).is_err());
    /// ```
    pub fn stream(&self, ordinal: i32) -> Result<DeviceStream> {
        SimulatedStream::new(&self.handle(), ordinal).map(DeviceStream::Simulated)
    }

    /// Runs the queued work. Fails with the program's first mistake since the last call of `check` or
    /// [`reports`](SimulatedCuda::reports), if there is one.
    ///
    /// # Errors
    ///
    /// [`Misuse`](Kind::Misuse): the text says what is wrong, for a race with both accesses. Or the work cannot run.
    ///
    /// # Examples
    ///
    /// See [`SimulatedCuda`].
    pub fn check(&self) -> Result<()> {
        match self.reports()?.into_iter().next() {
            None => Ok(()),
            Some(report) => Err(Error::new(Kind::Misuse, report)),
        }
    }

    /// Runs the queued work, and returns the program's mistakes since the last call of `reports` or
    /// [`check`](SimulatedCuda::check): the first 10,000 of them.
    ///
    /// A test that expects a race calls this after it has dropped its arrays. Freeing memory is an access, too: a
    /// free that nothing orders is reported, at the latest when the last clone of the machine is dropped.
    ///
    /// # Errors
    ///
    /// The work cannot run.
    ///
    /// # Examples
    ///
    /// See [`suppress`](SimulatedCuda::suppress).
    pub fn reports(&self) -> Result<Vec<String>> {
        self.0.0.run_all()?;
        let found = self.0.0.take_reports().into_iter().map(|report| report.message);
        Ok(found.chain(self.0.0.take_unused()).collect())
    }

    /// Makes the `nth` next call (1 is the first) of the driver's entry point `call` fail with `code`, a `CUresult`.
    /// That call does nothing else. The fault stays until that call comes.
    ///
    /// # Errors
    ///
    /// [`Misuse`](Kind::Misuse): the driver has no such call, or `nth` or `code` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let stream = cuda.stream(0)?;
    /// cuda.fail("cuMemAllocAsync", 1, 2)?;
    /// let failed = Array::empty::<f32>(&stream, &[4]).unwrap_err();
    /// assert_eq!(failed.driver_code().unwrap().code, 2);
    /// assert!(Array::empty::<f32>(&stream, &[4]).is_ok());
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn fail(&self, call: &str, nth: u32, code: u32) -> Result<()> {
        let made = self.0.0.fail(call, nth, code);
        made.map_err(|error| Error::new(Kind::Misuse, error.to_string()))
    }

    /// Makes the `nth` next call (1 is the first) of the driver's entry point `call` do nothing and report success. A
    /// test can leave out a wait (`cuStreamWaitEvent`) to see whether the wait is needed. If that call does not come
    /// before the next [`check`](SimulatedCuda::check) or [`reports`](SimulatedCuda::reports), the fault is dropped and
    /// counts as a mistake after all others. Several such faults count as one mistake, which names the first fault.
    ///
    /// # Errors
    ///
    /// [`Misuse`](Kind::Misuse): the driver has no such call, its caller uses what the call returns, or `nth` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// assert!(cuda.suppress("cuMemAllocAsync", 1).is_err()); // the caller uses the address
    /// let (mine, theirs) = (cuda.stream(0)?, cuda.stream(0)?);
    /// let x = Array::from_host(&mine, &[1.0_f32; 4], &[4])?;
    /// cuda.suppress("cuStreamWaitEvent", 1)?;
    /// x.to_vec::<f32>(&theirs)?; // does not wait for `mine`
    /// drop(x);
    /// let found = cuda.reports()?;
    /// assert!(found[0].contains("nothing orders"), "{found:?}");
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn suppress(&self, call: &str, nth: u32) -> Result<()> {
        let made = self.0.0.suppress(call, nth);
        made.map_err(|error| Error::new(Kind::Misuse, error.to_string()))
    }

    /// Captures the work that `work` queues on `stream` into a graph, in the global mode, which is the strictest. None
    /// of it runs before the graph is [launched](SimulatedGraph::launch).
    ///
    /// # Errors
    ///
    /// The error that `work` returns. Or `stream` cannot be captured. Or `work` made a call that a capture does not
    /// allow, or left another stream in the capture.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Error, Grid, Kernel, scope};
    ///
    /// static ADD_ONE: Kernel = Kernel::new("add_one", "").on_host(|call| {
    ///     let more: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| x + 1.0).collect();
    ///     call.store(0, &more)
    /// });
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let stream = cuda.stream(0)?;
    /// let mut x = Array::from_host(&stream, &[0.0_f32; 4], &[4])?;
    /// let graph = cuda.capture(&stream, || {
    ///     scope(&stream, |s| {
    ///         let mut x = x.on_mut(s)?.view_mut::<f32>()?;
    ///         // SAFETY: the stand-in alone runs.
    ///         unsafe { s.launch(&ADD_ONE, Grid::cover(4, 4), (&mut x,)) }
    ///     })
    /// })?;
    /// graph.launch(&stream)?;
    /// graph.launch(&stream)?;
    /// assert_eq!(x.to_vec::<f32>(&stream)?, [2.0; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn capture<E: From<Error>>(
        &self,
        stream: &impl WorkStream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<SimulatedGraph, E> {
        let on = Stream::from_native(stream.handle(), Thread::current());
        let machine = &self.0.0;
        machine.begin_capture(on, CaptureMode::Global)?;
        let done = catch_unwind(AssertUnwindSafe(work));
        let graph = machine.end_capture(on);
        done.unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(SimulatedGraph { cuda: self.clone(), graph: graph? })
    }

    /// The number of bytes that are allocated and not freed.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let x = Array::empty::<f64>(&cuda.stream(0)?, &[4])?;
    /// assert_eq!(cuda.bytes_in_use(), 32);
    /// drop(x);
    /// assert_eq!(cuda.bytes_in_use(), 0);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn bytes_in_use(&self) -> u64 {
        self.0.0.bytes_in_use()
    }

    /// The simulated machine itself, whose calls can be made to fail.
    #[doc(hidden)]
    pub fn machine(&self) -> &Simulated {
        &self.0.0
    }

    fn handle(&self) -> Handle {
        Handle::Simulated(Arc::clone(&self.0.0))
    }
}

/// A graph of the work that a [capture](SimulatedCuda::capture) took.
///
/// # Examples
///
/// See [`SimulatedCuda::capture`].
#[derive(Debug)]
pub struct SimulatedGraph {
    cuda: SimulatedCuda,
    graph: Graph,
}

impl SimulatedGraph {
    /// Queues the graph's work on `stream`. The work runs after the earlier work on `stream` and after the graph's
    /// previous launch. If the work uses freed memory, [`SimulatedCuda::reports`] says so.
    ///
    /// # Errors
    ///
    /// `stream` is being captured or was destroyed. Or it is a legacy default stream, and a blocking stream of its
    /// context is being captured.
    ///
    /// # Examples
    ///
    /// See [`SimulatedCuda::capture`].
    pub fn launch(&self, stream: &impl WorkStream) -> Result<()> {
        let on = Stream::from_native(stream.handle(), Thread::current());
        self.cuda.0.0.launch_graph(self.graph, on)
    }
}
