//! Memory of ours that a copy is made in: filled in the order of a stream, given back once.
//!
//! A copy on a GPU is made without the host: [`Buffer::filled`] takes memory in the order of a stream,
//! which the caller has ordered after the producer's, and queues the copy there. A copy for the CPU is
//! [`on_host`]'s: its consumers have no stream, so the host waits. Nothing is decided here: which stream,
//! and how the memory is given back, is the caller's to say. No Python here.

use std::sync::Arc;

use crate::copy::Plan;
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::driver::copies::{Route, Transfer};
use crate::driver::fork::Process;
use crate::driver::host::HostMemory;
use crate::driver::{Context, Driver, Handle, Pointer};
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order::{self, Place};
use crate::stream::{Stream, Thread};

/// A stream and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// The stream.
    pub stream: Stream,
    /// Its device and context.
    pub place: Place,
}

/// How memory goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// In the order of the stream that it was filled on, which is alive until then (`cuMemFreeAsync`).
    InOrder,
    /// Once the host has waited for the context: nobody vouches that the consumer's stream is alive by
    /// then, or it is not known, and `cuMemFree` does not wait for work on stream-ordered memory. Whether
    /// that would end a capture is for whoever ends it to ask ([`order::check_host_wait`]).
    Waiting,
}

/// Memory on a GPU with a compact copy of an array.
#[derive(Debug)]
pub struct Buffer {
    driver: Handle,
    /// The process whose memory it is: a fork of it leaves it alone.
    process: Process,
    ptr: u64,
    queue: Queue,
    back: Return,
}

impl Buffer {
    /// A copy of `array`, whose memory is at `from`, queued on `queue`. Once there is memory for it,
    /// `before` makes `queue` wait for what the array is ready on; once it is queued, or a part of it
    /// is, `after` makes whoever uses the array's memory next wait for `queue`.
    pub fn filled(
        driver: &Handle,
        array: &Descriptor,
        from: Place,
        queue: Queue,
        before: impl FnOnce() -> Result<()>,
        after: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let element = array.dtype().element_size();
        let bytes = (array.layout().size() * element).unsigned_abs();
        let (process, back) = (Process::current(), Return::InOrder);
        let mut made = Self { driver: driver.clone(), process, ptr: 0, queue, back };
        let Some(plan) = Plan::new(array.layout(), element) else { return Ok(made) };
        let driver = driver.get()?;
        made.ptr = order::within(driver, queue.place, |_| driver.allocate(bytes, queue.stream))?;
        before()?;
        let copied = order::within(driver, queue.place, |to| {
            let route = route(driver, array.ptr(), from, (queue.place, to))?;
            fill(driver, &plan, array.ptr(), made.ptr, route, queue.stream)
        });
        copied.and(after())?;
        Ok(made)
    }

    /// The address of the copy; 0 where it has no elements.
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The stream that it was filled on, and where that is.
    pub const fn queue(&self) -> Queue {
        self.queue
    }

    /// The driver that it was made on.
    pub const fn driver(&self) -> &Handle {
        &self.driver
    }

    /// Whether the host waits before it goes back.
    pub fn waits(&self) -> bool {
        self.back == Return::Waiting
    }

    /// Whether it is of this process, and not of one that this is a fork of.
    pub fn is_current(&self) -> bool {
        self.process.is_current()
    }

    /// Says how it goes back; without that, in order, which is right in the call that filled it.
    pub fn set_return(&mut self, back: Return) {
        self.back = back;
    }

    fn give_back(&self) -> Result<()> {
        let (driver, Queue { stream, place }) = (self.driver.get()?, self.queue);
        if self.back == Return::Waiting {
            order::wait_on_host(driver, place)?;
        }
        order::within(driver, place, |_| match self.back {
            Return::InOrder => driver.free_on(self.ptr, stream.seen_from(Thread::current())),
            Return::Waiting => driver.free_now(self.ptr),
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.ptr != 0
            && self.process.is_current()
            && let Err(error) = self.give_back()
        {
            // Lost, since to free memory that is still in use would be worse.
            tracing::warn!(target: "cai_bridge", %error, "a copy's memory was not given back");
        }
    }
}

/// How a copy goes from the memory at `source`, which is at `from`, to a GPU. Pinned and managed memory is
/// reached by every GPU.
fn route(
    driver: &dyn Driver,
    source: u64,
    from: Place,
    (place, to): (Place, Context),
) -> Result<Route<'static>> {
    let is_gpus = |found: Pointer| found.kind == MemoryKind::Device;
    if from.ordinal == place.ordinal || !driver.pointer(source)?.is_some_and(is_gpus) {
        return Ok(Route::Device);
    }
    Ok(Route::Peer { from: order::within(driver, from, Ok)?, to })
}

/// Queues a plan's blocks on `stream`, whose context is current.
fn fill(
    driver: &dyn Driver,
    plan: &Plan,
    source: u64,
    target: u64,
    route: Route<'_>,
    stream: Stream,
) -> Result<()> {
    let block = plan.block();
    plan.each(|from, to| {
        // Neither wraps: both lie in arrays that lie in the address space.
        let (source, target) = (source.wrapping_add_signed(from), target.wrapping_add_signed(to));
        driver.copy(Transfer { source, target, block, route }, stream)
    })
}

/// A copy of `array` in memory of the host, made on `queue`, the producer's own; `None` where it has no
/// elements. The host waits.
pub fn on_host(
    driver: &Handle,
    array: &Descriptor,
    queue: Queue,
) -> Result<Option<Arc<HostMemory>>> {
    let element = array.dtype().element_size();
    let bytes = array.layout().size() * element;
    let Some(plan) = Plan::new(array.layout(), element) else { return Ok(None) };
    let memory = usize::try_from(bytes).ok().and_then(HostMemory::new).map(Arc::new);
    let none = || Error::new(Kind::HostMemory, format!("{bytes} bytes, which the host has not"));
    let memory = memory.ok_or_else(none)?;
    let driver = driver.get()?;
    order::within(driver, queue.place, |_| {
        let route = Route::Host(&memory);
        let copied = fill(driver, &plan, array.ptr(), memory.address(), route, queue.stream);
        let waited = driver.wait_stream(queue.stream);
        if waited.is_err() {
            // What was queued may still write there.
            std::mem::forget(Arc::clone(&memory));
        }
        copied.and(waited)
    })?;
    Ok(Some(memory))
}

/// What a compact copy of `array` at `ptr` is; on the host the device says nothing.
pub fn described(array: &Descriptor, ptr: u64, device: Device) -> Result<Descriptor> {
    let layout = Layout::from_elements(array.layout().shape(), None, array.dtype().element_size())?;
    Descriptor::new(ptr, array.dtype(), layout, device, false)
}
