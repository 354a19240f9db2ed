//! `DLPackView.__dlpack__` with a copy.
//!
//! A copy on a GPU is made on the consumer's stream, after what the array is ready on, in memory that
//! was taken there, and ends as [`super::copy_end`] has it; a copy in the host's memory is made on the
//! producer's, and the host waits, since a consumer on the CPU has no stream (Python array API 2025.12,
//! ``array.__dlpack__``, ``stream``). Which it is to be is [`super::wish`]'s to say. Refused here are
//! copies while a stream that they would be made on or after is being captured.

use std::iter;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::prelude::*;

use super::adopt::Live;
use super::back::Given;
use super::copy_end::Copied;
use super::keep::Keep;
use super::parked;
use super::shared::{Asked, DOOR, begin, order_from};
use super::source::check_host_wait;
use super::traced::Began;
use super::view::View;
use crate::buffer::{self, Buffer, Queue};
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dlpack::encode;
use crate::driver::{Driver, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Door, Place};
use crate::stream::{Home, Ready, Request, Stream, Thread, plan_return};

/// Work queued on the producer's stream, which is `home` at `place`, after this call runs after work
/// queued on `from` before it. Where it is unknown, the legacy default stream stands in.
fn order_back(driver: &Handle, (home, place): (Home, Place), from: Queue) -> Result<()> {
    let (here, door) = (Thread::current(), Door::giving_back(DOOR));
    if from.place.ordinal != place.ordinal {
        let to = (place, home.stream().seen_from(here));
        return order::across(door, driver.get()?, (from.place, from.stream), to);
    }
    let edge = plan_return(Some(from.stream), home, here);
    order::carry_out(door, driver, place, edge, || Some(home.stream()), |call| call())
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
    let (source, place) = begin(py, view, ordinal, request)?;
    parked::look(py);
    let driver = view.driver.get()?;
    let stream = match request {
        Request::On(stream) => stream,
        _ if ordinal == view.place.ordinal => producers(view.ready, Stream::Legacy),
        _ => Stream::Legacy,
    };
    let (queue, waiting) = queues(driver, place, stream)?;
    let keeper = context_keeper(py, view, queue)?;
    check_captures(view, queue)?;
    let live = match (request, waiting) {
        (Request::On(stream), None) => Live::new(py, stream, object, &view.driver, ordinal)?,
        _ => None,
    };
    let (home, declared) = match source.back(py) {
        Some(back) => (back.home(py, &[queue.stream])?, back.declared(py)?),
        None => (Home::Unknown, None),
    };
    let began = Began::now();
    let buffer = py.detach(|| {
        let before = || order_from(view, queue);
        let after = || {
            let mut homes = iter::once(home).chain(declared);
            homes.try_for_each(|home| order_back(&view.driver, (home, view.place), queue))
        };
        let made = Buffer::filled(&view.driver, &view.array, view.place, queue, before, after)?;
        if let Some(to) = waiting.filter(|_| made.ptr() != 0) {
            let from = (queue.place, queue.stream);
            order::across(Door::handing_over(DOOR), driver, from, (to.place, to.stream))?;
        }
        Ok::<_, Error>(made)
    })?;
    let ptr = buffer.ptr();
    began.copied(&view.array, ptr, (queue.stream, ordinal), false);
    let is_over = ptr == 0 || home != Home::Unknown;
    source.end_given(py, if is_over { Given::Now } else { Given::WhenDone }, Began::now());
    let copied = Copied::new(buffer, live, keeper);
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
    let began = Began::now();
    let memory = py.detach(|| buffer::on_host(&view.driver, &view.array, queue))?;
    let address = memory.as_ref().map_or(0, |memory| memory.address());
    began.copied(&view.array, address, (queue.stream, queue.place.ordinal), true);
    let array = buffer::described(&view.array, address, view.array.device())?;
    capsule(py, &array, true, versioned, Box::new(memory))
}

/// A capsule of either form with a copy.
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
