//! `DLPackView.__dlpack__` for a consumer that asks for another device, or for a copy.
//!
//! Managed and pinned memory is reached by every GPU, and is handed out as a GPU's own without a copy.
//! A copy on a GPU is made on the consumer's stream, after what the array is ready on, in memory that
//! was taken there; a copy in the host's memory on the producer's, and the host waits, since a consumer
//! on the CPU has no stream (Python array API 2025.12, ``array.__dlpack__``, ``stream``). What is wanted
//! is [`super::wish`]'s to say; refused here are GPUs that the machine does not have.

use pyo3::prelude::*;

use super::adopt;
use super::keep::Keep;
use super::view::View;
use crate::buffer::{self, Buffer, Queue, Return};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::dlpack::encode;
use crate::driver::Driver;
use crate::error::{Error, Kind, Result};
use crate::order::{self, Place};
use crate::stream::{Ready, Request, Stream, Thread, plan};

const DOOR: &str = "__dlpack__";

/// Where the streams of the GPU `ordinal` are: the array's own context where that is its device.
pub(super) fn place(view: &View, ordinal: i32) -> Result<Place> {
    /// `CUDA_ERROR_INVALID_DEVICE`.
    const INVALID_DEVICE: u32 = 101;
    if ordinal == view.place.ordinal {
        return Ok(view.place);
    }
    match view.driver.get()?.primary_context(ordinal) {
        Ok(_) => Ok(Place::of(Device::cuda(ordinal))),
        Err(error)
            if error.kind() == Kind::DeviceOrdinal
                || error.driver_code().is_some_and(|failed| failed.code == INVALID_DEVICE) =>
        {
            let got = format!("(2, {ordinal}), which this machine does not have");
            Err(Error::new(Kind::DlDevice, got))
        }
        Err(error) => Err(error),
    }
}

/// Work queued on `to` after this call runs after what the array is ready on.
fn order_from(view: &View, to: Queue) -> Result<()> {
    let here = Thread::current();
    match view.ready {
        Ready::On(from) if to.place.ordinal != view.place.ordinal => {
            let from = (view.place, from.seen_from(here));
            order::across(DOOR, view.driver.get()?, from, (to.place, to.stream))
        }
        ready => {
            let edge = plan(ready, Request::On(to.stream), here);
            order::carry_out(DOOR, &view.driver, view.place, edge, |call| call())
        }
    }
}

/// Work queued on the producer's stream after this call runs after work queued on `from` before it. Where
/// the producer's is not known, the legacy default stream stands in.
fn order_back(view: &View, from: Queue) -> Result<()> {
    let here = Thread::current();
    let to = match view.ready {
        Ready::On(stream) => stream.seen_from(here),
        Ready::Nothing => Stream::Legacy,
    };
    if from.place.ordinal != view.place.ordinal {
        let from = (from.place, from.stream);
        return order::across(DOOR, view.driver.get()?, from, (view.place, to));
    }
    let edge = plan(Ready::On(from.stream), Request::On(to), here);
    order::carry_out(DOOR, &view.driver, view.place, edge, |call| call())
}

/// Makes the array usable as `request` asks, on a device that need not be the producer's.
pub(super) fn order_before(
    py: Python<'_>,
    view: &View,
    place: Place,
    request: Request,
) -> Result<()> {
    match request {
        Request::On(stream) => py.detach(|| order_from(view, Queue { stream, place })),
        _ => Ok(()),
    }
}

/// The stream of `handle`, and the device and context that it is of.
fn queue_of(driver: &dyn Driver, handle: u64) -> Result<Queue> {
    let context = Some(driver.stream_context(handle)?);
    // The ordinal is what is asked here; the context alone says where to ask.
    let ordinal =
        order::within(driver, Place { ordinal: 0, context }, |_| driver.current_ordinal())?;
    Ok(Queue { stream: Stream::Handle(handle), place: Place { ordinal, context } })
}

/// The stream that a copy at `place` is made on: `stream`, where that is of the device; else the legacy
/// default stream there, and the one that is to wait for it.
fn queues(driver: &dyn Driver, place: Place, stream: Stream) -> Result<(Queue, Option<Queue>)> {
    let Stream::Handle(handle) = stream else { return Ok((Queue { stream, place }, None)) };
    let asked = queue_of(driver, handle)?;
    if asked.place.ordinal == place.ordinal {
        return Ok((asked, None));
    }
    Ok((Queue { stream: Stream::Legacy, place }, Some(asked)))
}

/// The producer's own stream, as this thread can name it; `idle` where nothing is pending.
fn producers(ready: Ready, idle: Stream) -> Stream {
    match ready {
        Ready::On(stream) => stream.seen_from(Thread::current()),
        Ready::Nothing => idle,
    }
}

/// What a managed tensor of a copy on a GPU holds.
struct Copied {
    buffer: Option<Buffer>,
    /// The stream that the memory goes back on, and whatever keeps its context.
    _keep: Keep,
}

impl Drop for Copied {
    /// Gives the memory back from whatever thread this is, without the interpreter lock, since that may
    /// wait. Where the interpreter is gone, so may the driver be: the memory is left to the end of the
    /// process.
    fn drop(&mut self) {
        let mut buffer = self.buffer.take();
        Python::try_attach(|py| py.detach(|| drop(buffer.take())));
        std::mem::forget(buffer);
    }
}

/// Whether a copy that is made on `queue` holds the producer. A GPU's memory is let go at once: whoever
/// uses it next does so in the order of the producer's stream, which waits for the copy. Pinned and
/// managed memory may be used next by the host. A context that is not primary goes with its owner, whom
/// the producer holds.
fn holds_producer(driver: &dyn Driver, view: &View, queue: Queue) -> Result<bool> {
    if view.array.device().kind != MemoryKind::Device {
        return Ok(true);
    }
    match queue.place.context {
        Some(context) => Ok(driver.primary_context(queue.place.ordinal)? != context),
        None => Ok(false),
    }
}

/// A capsule with a copy in the memory of the GPU `ordinal`, usable as `request` asks. `alive` is the
/// consumer's stream object, where it gave one.
pub(super) fn to_gpu<'py>(
    py: Python<'py>,
    view: &View,
    ordinal: i32,
    (request, alive): (Request, Option<Py<PyAny>>),
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    // Held until the copy is ordered before the producer's next use of its memory.
    let _held = view.share(py, None)?;
    let place = place(view, ordinal)?;
    let driver = view.driver.get()?;
    let stream = match request {
        Request::On(stream) => stream,
        _ if ordinal == view.place.ordinal => producers(view.ready, Stream::Legacy),
        _ => Stream::Legacy,
    };
    let (queue, waiting) = queues(driver, place, stream)?;
    let holds = holds_producer(driver, view, queue)?;
    // Nothing has been queued so far: whatever refuses a copy on `queue` as such refuses it here.
    let mut buffer = py.detach(|| {
        let before = || order_from(view, queue);
        let after = || order_back(view, queue);
        let made = Buffer::filled(&view.driver, &view.array, view.place, queue, before, after)?;
        if let Some(to) = waiting.filter(|_| made.ptr() != 0) {
            let from = (queue.place, queue.stream);
            order::across(DOOR, driver, from, (to.place, to.stream))?;
        }
        Ok::<_, Error>(made)
    })?;
    let vouched = match (request, waiting) {
        (Request::On(Stream::Handle(_)), None) => {
            alive.or_else(|| adopt::adopt(py, Ready::On(stream))).map(Some)
        }
        (Request::On(_), None) => Some(None),
        _ => None,
    };
    if vouched.is_none() {
        buffer.set_return(Return::Waiting);
    }
    let array = buffer::described(&view.array, buffer.ptr(), Device::cuda(ordinal))?;
    let held = vouched.flatten();
    let keep = if holds { view.share(py, held)? } else { Keep::new(py.None(), None, held) };
    capsule(py, &array, false, versioned, Box::new(Copied { buffer: Some(buffer), _keep: keep }))
}

/// A capsule with a copy in the host's memory, which is there when this returns.
pub(super) fn to_host<'py>(
    py: Python<'py>,
    view: &View,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let _held = view.share(py, None)?;
    let here = Thread::current();
    let stream = producers(view.ready, Stream::PerThread(here));
    let queue = match stream {
        Stream::Handle(handle) => queue_of(view.driver.get()?, handle)?,
        stream => Queue { stream, place: view.place },
    };
    // Nothing has been queued so far, and the host has not waited: as in `to_gpu`.
    let memory = py.detach(|| buffer::on_host(&view.driver, &view.array, queue))?;
    let address = memory.as_ref().map_or(0, |memory| memory.address());
    let array = buffer::described(&view.array, address, view.array.device())?;
    capsule(py, &array, true, versioned, Box::new(memory))
}

fn capsule<'py, K: Send>(
    py: Python<'py>,
    array: &Descriptor,
    on_host: bool,
    versioned: bool,
    keep: Box<K>,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        let managed =
            encode::copied::<dlpark::ffi::DLManagedTensorVersioned, K>(array, on_host, keep);
        managed?.into_pyobject(py)
    } else {
        let managed = encode::copied::<dlpark::ffi::DLManagedTensor, K>(array, on_host, keep);
        managed?.into_pyobject(py)
    }
}
