//! `DLPackView.__dlpack__` with a copy. The host waits for a copy in host memory, because a consumer on the CPU has no
//! stream (Python array API 2025.12, ``array.__dlpack__``).

use std::sync::Arc;

use dlpark::OpaqueContext;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::prelude::*;

use super::BaseView;
use super::export::{CapsuleRequest, DOOR, place};
use crate::buffer::{self, Buffer};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::dlpack::encode::Keep;
use crate::dlpack::{capsule, encode};
use crate::driver::Handle;
use crate::driver::host::HostMemory;
use crate::error::{Kind, Result};
use crate::lease::Settlement;
use crate::order::{self, Purpose, Uncaptured};
use crate::py::interpreter::{Answer, detach, entry};
use crate::py::lease::{HeldMemory, MemoryGuard, look};
use crate::py::numpy;
use crate::py::observe::CallSpan;
use crate::py::source::{check_argument, ready_streams};
use crate::py::streams::{KnownStream, StreamArgument, StreamRef};
use crate::stream::{Alive, Stream};

pub(crate) const CAPTURED: Uncaptured = Uncaptured {
    kind: Kind::CaptureCopy,
    got: "a copy whose stream, or whose source's stream, is being captured",
};

/// The caller must have released the interpreter's lock.
fn connect(door: Purpose, driver: &Handle, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
    order::connect(door, driver, from, to, |call| call()).map(drop)
}

/// Returns the stream on which to make a copy for the GPU at `at`, and a stream that must wait for the copy. A
/// consumer's stream `asked` on that GPU makes the copy and need not wait.
fn queues<'a>(
    view: &BaseView,
    at: Place,
    asked: Option<Alive<'a>>,
    producers: Option<Alive<'a>>,
) -> Result<(Alive<'a>, Option<Alive<'a>>)> {
    let Some(asked) = asked else {
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

/// Returns what keeps the context of `stream` alive; `None` for a primary context.
fn context_holder(
    py: Python<'_>,
    view: &BaseView,
    stream: Alive<'_>,
) -> Result<Option<Box<MemoryGuard>>> {
    let driver = view.driver.get()?;
    let context = match stream.stream() {
        Stream::Handle(_) => driver.stream_context(stream)?,
        _ => order::context_of(driver, stream.place())?,
    };
    if context == driver.primary_context(stream.place().ordinal)? {
        return Ok(None);
    }
    Ok(Some(Box::new(MemoryGuard::new(view.share(py)?))))
}

/// If `asked` names a stream, the copy is usable on that stream.
pub(super) fn to_gpu<'py>(
    py: Python<'py>,
    view: &BaseView,
    ordinal: i32,
    asked: &CapsuleRequest<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (held, argument) = (view.share_for_hand_over(py)?, asked.argument);
    let at = place(view, ordinal)?;
    let given = argument.alive(at);
    if ordinal == view.place.ordinal {
        check_argument(&view.array, &view.driver, argument, at)?;
    }
    look(py);
    let kept = argument.keep(py, &view.driver, at)?;
    let (ready, also) = ready_streams(py, DOOR, &held)?.unzip();
    let also = also.flatten();
    let (on, waiting) = queues(view, at, given, ready)?;
    // `kept` is of the consumer's stream, so use `kept` only if the copy is made on that stream.
    let kept = kept.filter(|_| given.is_some() && waiting.is_none());
    let idle = Alive::legacy(view.place);
    let first = [on, ready.unwrap_or(idle), also.unwrap_or(idle)];
    order::check_captures(view.driver.get()?, &first, CAPTURED)?;
    let context = context_holder(py, view, on)?;
    let (span, source) = (CallSpan::begin(), reading(py, view, kept.as_ref(), on)?);
    let mut queued = false;
    let made = detach(py, || {
        let before = || {
            let mut ready = [ready, also].into_iter().flatten();
            ready
                .try_for_each(|ready| connect(Purpose::hand_over(DOOR), &view.driver, ready, on))?;
            queued = true;
            Ok(())
        };
        Buffer::filled(&view.driver, &view.array, on, before)
    });
    let (mut buffer, source) = read(py, source, queued, made)?;
    let ptr = buffer.ptr();
    // The copy reads the producer's memory, so the producer's next work must run after the work on `on`.
    let settled = match ptr {
        0 => Ok(Settlement::Done),
        _ => held.settle_for(py, on),
    };
    let settled = settled.inspect_err(|_| drop(buffer.free(&view.driver, on)))?;
    source.settled(py, settled, CallSpan::begin());
    let mut copied = copy_held(py, &view.driver, buffer, at, kept, on, context)?;
    if let Some(to) = waiting.filter(|_| ptr != 0) {
        detach(py, || connect(Purpose::hand_over(DOOR), &view.driver, on, to))?;
    }
    span.copied(&view.array, ptr, on, false);
    if let Some(held) = copied.memory_mut() {
        // With -1 the consumer may use the copy on any stream, so record a consumer that named no stream.
        let consumer = if given.is_some() { argument } else { &StreamArgument::UNSPECIFIED };
        copy_is_for(py, held, consumer, at)?;
    }
    let array = buffer::described(&view.array, ptr, Device::cuda(ordinal))?;
    capsule_of_copy(py, &array, asked.versioned, copied)
}

/// Makes a capsule that the bridge recognises when a caller passes the capsule in again.
pub(crate) fn capsule_of_copy<'py>(
    py: Python<'py>,
    array: &Descriptor,
    versioned: bool,
    mut copied: MemoryGuard,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(held) = copied.memory_mut() {
        held.register_in_capsule(py, array);
    }
    capsule_of(py, array, false, versioned, Keep(copied))
}

/// Holds the array while a copy reads it on `on`. Dropping the guard is an end: the producer's next work runs after the
/// work on `on`.
fn reading(
    py: Python<'_>,
    view: &BaseView,
    kept: Option<&KnownStream>,
    on: Alive<'_>,
) -> PyResult<MemoryGuard> {
    let mut held = view.share(py)?;
    held.set_worker(py, kept, on)?;
    Ok(MemoryGuard::new(held))
}

/// If the copy failed before any part was `queued`, ends `source` without a wait.
fn read<T>(
    py: Python<'_>,
    source: MemoryGuard,
    queued: bool,
    made: Result<T>,
) -> PyResult<(T, MemoryGuard)> {
    match made {
        Ok(made) => Ok((made, source)),
        Err(error) => {
            if !queued {
                source.settled(py, Settlement::Done, CallSpan::begin());
            }
            Err(error.into())
        }
    }
}

/// Holds a copy that was made on the stream `on`. If nothing is known to keep `on` alive, the legacy default stream
/// waits for `on` now and later frees the copy.
pub(crate) fn copy_held(
    py: Python<'_>,
    driver: &Handle,
    buffer: Buffer,
    at: Place,
    kept: Option<KnownStream>,
    on: Alive<'_>,
    context: Option<Box<MemoryGuard>>,
) -> PyResult<MemoryGuard> {
    let kept = kept.map_or_else(|| KnownStream::of(py, driver, on), Ok);
    let (producer, kept) = match kept {
        Ok(KnownStream::Kept(kept)) if !kept.stands_in() => (kept, None),
        other => (StreamRef::legacy(at), Some(other)),
    };
    let copied = MemoryGuard::new(HeldMemory::copy(buffer, driver, at, producer, context));
    if let Some(other) = kept {
        let legacy = Alive::legacy(at);
        if let Err(error) = detach(py, || connect(Purpose::give_back(DOOR), driver, on, legacy)) {
            // The legacy default stream does not wait for the copy and cannot free it safely, so leak the copy.
            std::mem::forget(copied);
            return Err(error.into());
        }
        other?;
    }
    Ok(copied)
}

/// Records the consumer of a copy. Makes no stream wait.
pub(crate) fn copy_is_for(
    py: Python<'_>,
    held: &mut HeldMemory,
    argument: &StreamArgument<'_, '_>,
    at: Place,
) -> PyResult<()> {
    // The consumer's stream may be on another GPU than the copy, so record the stream's own place.
    let at = match argument.alive(at) {
        Some(stream) => order::place_of(held.driver.get()?, stream)?,
        None => at,
    };
    held.set_consumer(py, argument, at)?;
    held.read(py);
    Ok(())
}

/// `copy` must return only when the copy is done. For an array without elements, the result is 0 and `None`.
fn copied_to_host(
    py: Python<'_>,
    view: &BaseView,
    copy: impl FnOnce(Alive<'_>) -> Result<Option<Arc<HostMemory>>> + Send,
) -> PyResult<(u64, Option<Arc<HostMemory>>)> {
    let held = view.share_for_hand_over(py)?;
    let (ready, also) = ready_streams(py, DOOR, &held)?.unzip();
    let also = also.flatten();
    let on = ready.unwrap_or(Alive::per_thread(view.place));
    order::check_captures(view.driver.get()?, &[on, also.unwrap_or(on)], CAPTURED)?;
    let (span, source) = (CallSpan::begin(), reading(py, view, None, on)?);
    let mut queued = false;
    let made = detach(py, || {
        also.map_or(Ok(()), |also| connect(Purpose::hand_over(DOOR), &view.driver, also, on))?;
        queued = true;
        copy(on)
    });
    let (memory, source) = read(py, source, queued, made)?;
    source.settled(py, Settlement::Done, CallSpan::begin());
    let address = memory.as_ref().map_or(0, |memory| memory.address());
    span.copied(&view.array, address, on, true);
    Ok((address, memory))
}

/// The copy is done when this returns.
pub(super) fn to_host<'py>(
    py: Python<'py>,
    view: &BaseView,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let copy = |on: Alive<'_>| buffer::on_host(&view.driver, &view.array, on);
    let (address, memory) = copied_to_host(py, view, copy)?;
    let array = buffer::described(&view.array, address, view.array.device())?;
    capsule_of(py, &array, true, versioned, Box::new(memory))
}

/// Copies the array into a new NumPy array, which owns its memory. The copy is done when this returns.
#[pyfunction]
pub(crate) fn _to_numpy<'py>(view: &Bound<'py, BaseView>) -> Answer<'py> {
    let (py, view) = (view.py(), view.get());
    entry(py, || {
        view.check_leased()?;
        let (array, memory) = numpy::empty(py, &view.array, view.numpys_dtype(py)?)?;
        copied_to_host(py, view, |on| {
            let memory = Arc::new(memory);
            buffer::into_host(&view.driver, &view.array, on, &memory)?;
            Ok((view.array.ptr() != 0).then_some(memory))
        })?;
        Ok(array)
    })
}

fn capsule_of<'py, C: OpaqueContext>(
    py: Python<'py>,
    array: &Descriptor,
    on_host: bool,
    versioned: bool,
    keep: C,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        capsule::new(py, encode::copied::<DLManagedTensorVersioned, C>(array, on_host, keep)?)
    } else {
        encode::check_padding(array, "asks for a legacy capsule")?;
        capsule::new(py, encode::copied::<DLManagedTensor, C>(array, on_host, keep)?)
    }
}
