//! `DLPackView.__dlpack__` for a consumer that asks for another device, or for a copy.
//!
//! Managed and pinned memory is reached by every GPU, and is handed out as a GPU's own without a copy.
//! A copy on a GPU is made on the consumer's stream, after what the array is ready on, in memory that
//! was taken there; a copy in the host's memory on the producer's, and the host waits, since a consumer
//! on the CPU has no stream (Python array API 2025.12, ``array.__dlpack__``, ``stream``). What is wanted
//! is [`super::wish`]'s to say; refused here are GPUs that the machine does not have.

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::prelude::*;

use super::adopt::Live;
use super::back::Given;
use super::keep::Keep;
use super::parked::{self, Parked};
use super::source::{check_host_wait, check_stream};
use super::unraised;
use super::view::View;
use crate::buffer::{self, Buffer, Queue, Return};
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dlpack::encode;
use crate::driver::{Driver, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Door, Place};
use crate::stream::{Home, Ready, Request, Stream, Thread, plan, plan_return};

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
    let (here, door) = (Thread::current(), Door::handing_over(DOOR));
    match view.ready {
        Ready::On(from) if to.place.ordinal != view.place.ordinal => {
            let from = (view.place, from.seen_from(here));
            order::across(door, view.driver.get()?, from, (to.place, to.stream))
        }
        ready => {
            let edge = plan(ready, Request::On(to.stream), here);
            order::carry_out(door, &view.driver, view.place, edge, |call| call())
        }
    }
}

/// Work queued on the producer's stream, which is `home` at `place`, after this call runs after work
/// queued on `from` before it. Where it is not known, the legacy default stream stands in.
fn order_back(driver: &Handle, (home, place): (Home, Place), from: Queue) -> Result<()> {
    let (here, door) = (Thread::current(), Door::giving_back(DOOR));
    if from.place.ordinal != place.ordinal {
        let to = (place, home.stream().seen_from(here));
        return order::across(door, driver.get()?, (from.place, from.stream), to);
    }
    let edge = plan_return(Some(from.stream), home, here);
    order::carry_out(door, driver, place, edge, |call| call())
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

/// What a consumer asks for, beside the device and the copy.
pub(super) struct Asked {
    /// Its stream.
    pub(super) request: Request,
    /// The object of that stream, where it gave one.
    pub(super) object: Option<Py<PyAny>>,
    /// Whether it takes a versioned capsule.
    pub(super) versioned: bool,
}

/// A capsule with the same memory as `device`'s, which is another one of those that reach it.
pub(super) fn shared<'py>(
    py: Python<'py>,
    view: &View,
    device: Device,
    asked: Asked,
) -> PyResult<Bound<'py, PyAny>> {
    let Asked { request, object, versioned } = asked;
    let array = view.array.clone().on(device);
    if !versioned {
        encode::check_legacy(&array)?;
    }
    let mut keep = Box::new(view.share(py, None)?);
    let place = place(view, device.id)?;
    parked::look(py);
    if let Request::On(stream) = request {
        py.detach(|| order_from(view, Queue { stream, place }))?;
    }
    if place.ordinal != view.place.ordinal {
        keep.move_to(place);
    }
    keep.hand_to(py, &view.array, request, object);
    managed(py, &array, versioned, keep)
}

/// What a managed tensor of a copy on a GPU holds.
struct Copied(Option<Copy>);

/// A copy on a GPU.
struct Copy {
    /// Its memory; `None` once it is given back.
    buffer: Option<Buffer>,
    /// What keeps the stream alive that it goes back on.
    live: Option<Live>,
    /// What keeps a context alive that is not primary.
    _keeper: Option<Keep>,
}

impl Copy {
    /// Whether a capture is in the way, which giving the memory back would end.
    fn is_barred(py: Python<'_>, buffer: &Buffer) -> bool {
        let (Queue { stream, place }, driver) = (buffer.queue(), buffer.driver());
        let why = (Kind::CaptureCopy, "a copy's end");
        let Ok(calls) = driver.get() else { return false };
        let asked = if buffer.waits() {
            check_host_wait(py, driver, place, why)
        } else {
            order::check_captures(calls, place, &[stream.seen_from(Thread::current())], why)
        };
        asked.is_err()
    }
}

impl Parked for Copy {
    fn is_over(&mut self, py: Python<'_>) -> bool {
        let Some(mut buffer) = self.buffer.take() else { return true };
        // A stream that is not alive any more is not asked for its part in a capture either.
        if !buffer.waits()
            && self.live.as_ref().is_some_and(|live| !live.is_open(py).unwrap_or(false))
        {
            buffer.set_return(Return::Waiting);
        }
        if buffer.is_current() && buffer.ptr() != 0 && Self::is_barred(py, &buffer) {
            self.buffer = Some(buffer);
            return false;
        }
        py.detach(|| drop(buffer));
        true
    }

    fn ripens(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| matches!(buffer.driver(), Handle::Cuda))
    }
}

impl Drop for Copied {
    /// Gives the memory back from whatever thread this is, without the interpreter lock, since that may
    /// wait; after a capture that it would end. Where the interpreter is gone, so may the driver be: the
    /// memory is left to the end of the process.
    fn drop(&mut self) {
        let mut held = self.0.take();
        Python::try_attach(|py| {
            unraised::during(py, || {
                if let Some(mut copy) = held.take()
                    && !copy.is_over(py)
                {
                    parked::park(Box::new(copy));
                }
            });
        });
        std::mem::forget(held);
    }
}

/// What keeps the context of `queue` alive, where it is not a primary one, which is never gone: another
/// goes with its owner, whom the producer holds.
fn context_keeper(py: Python<'_>, view: &View, queue: Queue) -> Result<Option<Keep>> {
    match queue.place.context {
        Some(context) if view.driver.get()?.primary_context(queue.place.ordinal)? != context => {
            view.share(py, None).map(Some)
        }
        _ => Ok(None),
    }
}

/// Refuses a copy while its stream or the source's is being captured. Nothing has been queued so far.
fn check_captures(view: &View, queue: Queue) -> Result<()> {
    let driver = view.driver.get()?;
    let why = (Kind::CaptureCopy, "a copy, whose stream or whose source's is being captured");
    order::check_captures(driver, queue.place, &[queue.stream], why)?;
    let source = producers(view.ready, Stream::Legacy);
    order::check_captures(driver, view.place, &[source], why)
}

/// A capsule with a copy in the memory of the GPU `ordinal`, usable as `asked`.
pub(super) fn to_gpu<'py>(
    py: Python<'py>,
    view: &View,
    ordinal: i32,
    asked: Asked,
) -> PyResult<Bound<'py, PyAny>> {
    let Asked { request, object, versioned } = asked;
    // Held until the copy is done, or ordered before the producer's next use of its memory.
    let source = view.share(py, None)?;
    let place = place(view, ordinal)?;
    if ordinal == view.place.ordinal {
        check_stream(&view.array, &view.driver, place, request)?;
    }
    let driver = view.driver.get()?;
    let stream = match request {
        Request::On(stream) => stream,
        _ if ordinal == view.place.ordinal => producers(view.ready, Stream::Legacy),
        _ => Stream::Legacy,
    };
    let (queue, waiting) = queues(driver, place, stream)?;
    let keeper = context_keeper(py, view, queue)?;
    check_captures(view, queue)?;
    let home = match source.back(py) {
        Some(back) => (back.home(py, &[queue.stream])?, back.place),
        None => (Home::Unknown, view.place),
    };
    parked::look(py);
    let mut buffer = py.detach(|| {
        let before = || order_from(view, queue);
        let after = || order_back(&view.driver, home, queue);
        let made = Buffer::filled(&view.driver, &view.array, view.place, queue, before, after)?;
        if let Some(to) = waiting.filter(|_| made.ptr() != 0) {
            let from = (queue.place, queue.stream);
            order::across(Door::handing_over(DOOR), driver, from, (to.place, to.stream))?;
        }
        Ok::<_, Error>(made)
    })?;
    let is_over = buffer.ptr() == 0 || home.0 != Home::Unknown;
    source.end_given(py, if is_over { Given::Now } else { Given::WhenDone });
    let live = match (request, waiting) {
        (Request::On(stream), None) => Live::new(py, stream, object, &view.driver, ordinal),
        _ => None,
    };
    if live.is_none() {
        buffer.set_return(Return::Waiting);
    }
    let ptr = buffer.ptr();
    let copied = Copied(Some(Copy { buffer: Some(buffer), live, _keeper: keeper }));
    let array = buffer::described(&view.array, ptr, Device::cuda(ordinal))?;
    capsule(py, &array, false, versioned, Box::new(copied))
}

/// A capsule with a copy in the host's memory, which is there when this returns.
pub(super) fn to_host<'py>(
    py: Python<'py>,
    view: &View,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let _held = view.share(py, None)?;
    let here = Stream::PerThread(Thread::current());
    let driver = view.driver.get()?;
    let queue = match producers(view.ready, here) {
        Stream::Handle(handle) => queue_of(driver, handle)?,
        stream => Queue { stream, place: view.place },
    };
    check_captures(view, queue)?;
    let why = (Kind::CaptureCopy, "a copy for the CPU, for which the host would wait");
    check_host_wait(py, &view.driver, queue.place, why)?;
    let memory = py.detach(|| buffer::on_host(&view.driver, &view.array, queue))?;
    let address = memory.as_ref().map_or(0, |memory| memory.address());
    let array = buffer::described(&view.array, address, view.array.device())?;
    capsule(py, &array, true, versioned, Box::new(memory))
}

/// A capsule of either form with memory that `keep` keeps.
pub(super) fn managed<'py>(
    py: Python<'py>,
    array: &Descriptor,
    versioned: bool,
    keep: Box<Keep>,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        encode::versioned(array, keep)?.into_pyobject(py)
    } else {
        encode::legacy(array, keep)?.into_pyobject(py)
    }
}

/// The same with a copy.
fn capsule<'py, K: Send>(
    py: Python<'py>,
    array: &Descriptor,
    on_host: bool,
    versioned: bool,
    keep: Box<K>,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        encode::copied::<DLManagedTensorVersioned, K>(array, on_host, keep)?.into_pyobject(py)
    } else {
        encode::copied::<DLManagedTensor, K>(array, on_host, keep)?.into_pyobject(py)
    }
}
