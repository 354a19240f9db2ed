//! `DLPackView.__dlpack__` with a copy.
//!
//! A copy on a GPU is made on the consumer's stream, after what the array is ready on, in memory that was
//! taken there, and is freed there in order; a copy in the host's memory is made on the producer's, and the
//! host waits, since a consumer on the CPU has no stream (Python array API 2025.12, ``array.__dlpack__``,
//! ``stream``). Which it is to be is [`super::export_request`]'s to say. Refused here are copies while a stream that
//! they would be made on or after is being captured.

use std::sync::Arc;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::prelude::*;

use super::View;
use super::export::{CapsuleRequest, DOOR, place};
use crate::buffer::{self, Buffer};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::dlpack::encode;
use crate::driver::host::HostMemory;
use crate::error::{Error, Kind, Result};
use crate::lease::Settlement;
use crate::order::{self, Purpose};
use crate::py::interpreter::{Answer, detach, entry};
use crate::py::lease::{Holding, Tenant, look};
use crate::py::numpy;
use crate::py::observe::CallSpan;
use crate::py::source::{check_argument, ready_stream};
use crate::py::streams::current::Objects;
use crate::py::streams::{
    Argument, KeepAlive, StreamRef, WaitReason, check_host_wait, wait_for_all,
};
use crate::stream::{Alive, Request, Stream};

/// What is refused of a copy while a stream is being captured.
const CAPTURED: (Kind, &str) =
    (Kind::CaptureCopy, "a copy whose stream, or whose source's stream, is being captured");

/// The stream that the array is ready on besides `ready`, as its exporter says.
fn also_ready<'h>(
    py: Python<'_>,
    holding: &'h Holding,
    ready: Option<Alive<'_>>,
) -> PyResult<Option<Alive<'h>>> {
    if ready.is_some() { Ok(holding.also_ready(py)?) } else { Ok(None) }
}

/// Work queued on the second stream after this call runs after work queued on the first before it. The
/// caller has given up the interpreter's lock.
fn connect(door: Purpose, view: &View, streams: (Alive<'_>, Alive<'_>)) -> Result<()> {
    order::connect(door, &view.driver, streams, |call| call())
}

/// The stream that a copy for the GPU at `at` is made on: the one that was asked for, where that is a stream
/// of it; else the legacy default stream there, and the one that is to wait for it.
fn queues<'a>(
    view: &View,
    at: Place,
    asked: Option<Alive<'a>>,
    producers: Option<Alive<'a>>,
) -> Result<(Alive<'a>, Option<Alive<'a>>)> {
    let Some(asked) = asked else {
        // With -1, on the producer's own.
        let own = producers.filter(|own| own.place().ordinal == at.ordinal);
        return Ok((own.unwrap_or(Alive::legacy(at)), None));
    };
    if !matches!(asked.stream(), Stream::Handle(_)) && asked.place().ordinal != at.ordinal {
        return Ok((Alive::legacy(at), Some(asked)));
    }
    if !matches!(asked.stream(), Stream::Handle(_)) || view.array.ptr() == 0 {
        return Ok((asked, None));
    }
    let driver = view.driver.get()?;
    match order::check_device(driver, asked) {
        Ok(()) => Ok((asked, None)),
        Err(error) if error.kind() == Kind::StreamDevice => Ok((Alive::legacy(at), Some(asked))),
        Err(error) => Err(error),
    }
}

/// What keeps the context of `stream` alive, where it is not a primary one, which is never gone: another
/// goes with its owner, whom the producer holds.
fn context_keeper(py: Python<'_>, view: &View, stream: Alive<'_>) -> Result<Option<Box<Tenant>>> {
    let driver = view.driver.get()?;
    let context = match stream.stream() {
        Stream::Handle(_) => driver.stream_context(stream)?,
        _ => order::context_of(driver, stream.place())?,
    };
    if context == driver.primary_context(stream.place().ordinal)? {
        return Ok(None);
    }
    Ok(Some(Box::new(Tenant::new(view.share(py)?))))
}

/// A capsule with a copy in the memory of the GPU `ordinal`, usable as `asked`.
pub(super) fn to_gpu<'py>(
    py: Python<'py>,
    view: &View,
    ordinal: i32,
    asked: &CapsuleRequest<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    // Held until the copy is done, or ordered before the producer's next use of its memory.
    let (mut source, objects) = (Tenant::new(view.share(py)?), Objects::default());
    let Some(holding) = source.holding() else { return Err(Error::new(Kind::Released, "").into()) };
    let (holding, argument) = (&*holding, asked.argument);
    let at = place(view, ordinal)?;
    let given = argument.alive(at);
    if ordinal == view.place.ordinal {
        check_argument(&view.array, &view.driver, argument, at)?;
    }
    look(py);
    let ready = ready_stream(py, DOOR, holding, (view.ready, view.place), None)?;
    let also = also_ready(py, holding, ready)?;
    let (on, waiting) = queues(view, at, given, ready)?;
    let idle = Alive::legacy(view.place);
    let first = [on, ready.unwrap_or(idle), also.unwrap_or(idle)];
    order::check_captures(view.driver.get()?, &first, CAPTURED)?;
    let context = context_keeper(py, view, on)?;
    let (mut producers, known) = holding.producers(py)?;
    let unkept = holding.add_unkept(py, at, &[on], &mut producers, &objects)?;
    let span = CallSpan::begin();
    let buffer = detach(py, || {
        let before = || {
            let mut ready = [ready, also].into_iter().flatten();
            ready.try_for_each(|ready| connect(Purpose::hand_over(DOOR), view, (ready, on)))
        };
        let after = || {
            let back = Purpose::give_back(DOOR);
            producers.iter().try_for_each(|producer| connect(back, view, (on, *producer)))
        };
        let made = Buffer::filled(&view.driver, &view.array, on, before, after)?;
        if let Some(to) = waiting.filter(|_| made.ptr() != 0) {
            connect(Purpose::hand_over(DOOR), view, (on, to))?;
        }
        Ok::<_, Error>(made)
    })?;
    let ptr = buffer.ptr();
    span.copied(&view.array, ptr, (on.stream(), ordinal), false);
    if unkept.is_some() && ptr != 0 {
        wait_for_all(py, DOOR, &view.driver, at, (WaitReason::ConsumerUnknown, &[on]))?;
    }
    let settled = if ptr == 0 || known {
        Settlement::Done
    } else {
        let driver = view.driver.get()?;
        Settlement::Until(vec![detach(py, || order::mark(driver, on))?])
    };
    let copied = holder(py, view, (buffer, at), argument, (on, waiting.is_some()), context);
    drop(producers);
    // The copy reads the source, whatever becomes of the copy.
    source.settled(py, settled, CallSpan::begin());
    let copied = copied?;
    let array = buffer::described(&view.array, ptr, Device::cuda(ordinal))?;
    capsule(py, &array, false, asked.versioned, Box::new(copied))
}

/// The holder of a copy that was made `on` that stream, which another stream waits for if `apart`. The memory is
/// freed on that stream if something keeps it, else on the legacy default stream, which waits for the copy now.
fn holder(
    py: Python<'_>,
    view: &View,
    (buffer, at): (Buffer, Place),
    argument: &Argument<'_, '_>,
    (on, apart): (Alive<'_>, bool),
    context: Option<Box<Tenant>>,
) -> PyResult<Tenant> {
    let named = matches!(argument.request(), Request::On(_)) && !apart;
    let kept = if named {
        argument.keep(py, &view.driver, at)?
    } else {
        Some(KeepAlive::of(py, &view.driver, on)?)
    };
    let producer = if let Some(KeepAlive::By(kept)) = kept {
        kept
    } else {
        let legacy = Alive::legacy(at);
        detach(py, || connect(Purpose::give_back(DOOR), view, (on, legacy)))?;
        StreamRef::legacy(at)
    };
    let mut holding = Holding::copy(buffer, &view.driver, at, producer, context);
    // With -1 nobody says where the consumer works, and the memory is ours to keep until it is done.
    let consumer = if named || apart { argument } else { &Argument::UNSPECIFIED };
    // Whoever takes a copy may work on a stream of another GPU.
    let at = match consumer.alive(at) {
        Some(stream) => order::place_of(view.driver.get()?, stream)?,
        None => at,
    };
    holding.hand_to(py, consumer, at)?;
    holding.read(py);
    Ok(Tenant::new(holding))
}

/// A copy in the host's memory, which `copy` makes on the stream that it is given, as [`buffer::on_host`].
fn copied_to_host(
    py: Python<'_>,
    view: &View,
    copy: impl FnOnce(Alive<'_>) -> Result<Option<Arc<HostMemory>>> + Send,
) -> PyResult<(u64, Option<Arc<HostMemory>>)> {
    let mut source = Tenant::new(view.share(py)?);
    let Some(holding) = source.holding() else { return Err(Error::new(Kind::Released, "").into()) };
    let ready = ready_stream(py, DOOR, holding, (view.ready, view.place), None)?;
    let also = also_ready(py, holding, ready)?;
    let on = ready.unwrap_or(Alive::per_thread(view.place));
    order::check_captures(view.driver.get()?, &[on, also.unwrap_or(on)], CAPTURED)?;
    let why = (Kind::CaptureCopy, "a copy for the CPU, which the host would have to wait for");
    check_host_wait(py, &view.driver, on.place(), why)?;
    let span = CallSpan::begin();
    let memory = detach(py, || {
        also.map_or(Ok(()), |also| connect(Purpose::hand_over(DOOR), view, (also, on)))?;
        copy(on)
    })?;
    let address = memory.as_ref().map_or(0, |memory| memory.address());
    span.copied(&view.array, address, (on.stream(), on.place().ordinal), true);
    Ok((address, memory))
}

/// A capsule with a copy in the host's memory, which is there when this returns.
pub(super) fn to_host<'py>(
    py: Python<'py>,
    view: &View,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let copy = |on: Alive<'_>| buffer::on_host(&view.driver, &view.array, on);
    let (address, memory) = copied_to_host(py, view, copy)?;
    let array = buffer::described(&view.array, address, view.array.device())?;
    capsule(py, &array, true, versioned, Box::new(memory))
}

/// A copy as an array of NumPy's, which owns its memory.
#[pyfunction]
pub(crate) fn _to_numpy<'py>(view: &Bound<'py, View>) -> Answer<'py> {
    let (py, view) = (view.py(), view.get());
    entry(py, || {
        view.check_leased()?;
        let (array, memory) = numpy::empty(py, &view.array)?;
        copied_to_host(py, view, |on| {
            let memory = Arc::new(memory);
            buffer::into_host(&view.driver, &view.array, on, &memory)?;
            Ok((view.array.ptr() != 0).then_some(memory))
        })?;
        Ok(array)
    })
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
