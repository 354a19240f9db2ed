//! Finds the streams on which an imported array is ready, and makes other streams wait for them. Checks the GPU of a
//! stream that the caller names.

use pyo3::prelude::*;

use super::interpreter::detach;
use super::lease::{HeldMemory, look};
use super::streams::{StreamArgument, WaitReason, wait_for_all};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind, Place};
use crate::driver::Handle;
use crate::error::Result;
use crate::order::{self, Ordered, Purpose};
use crate::stream::{Alive, Ready, Stream};

/// The GPU and context in which consumers of `array` work. If `array` is device memory of another GPU than that of
/// `place`, this is the other GPU and its primary context, else `place`.
pub(crate) fn consumers_place(array: &Descriptor, place: Place) -> Place {
    match array.device() {
        Device { kind: MemoryKind::Device, id } if id != place.ordinal => Place::gpu(id),
        _ => place,
    }
}

/// The GPU and context of the array. DLPack says device 0 for pinned and managed memory, so asks the driver.
#[inline(always)]
pub(crate) fn place_of(driver: &Handle, array: &Descriptor) -> Result<Place> {
    if array.device().kind == MemoryKind::Device || array.ptr() == 0 {
        return Ok(Place::gpu(array.device().id));
    }
    driver.locate(array.ptr()).map(Place::owning)
}

/// The one or two streams that a user of the memory must wait for.
pub(crate) type Both<'h> = (Alive<'h>, Option<Alive<'h>>);

/// The streams that a user of the array must wait for; `None` if nothing is pending. If the first stream may be
/// destroyed, makes the host wait instead and returns `None`.
pub(crate) fn ready_streams<'h>(
    py: Python<'_>,
    door: &'static str,
    held: &'h HeldMemory,
) -> PyResult<Option<Both<'h>>> {
    let found = alive_or_waited(py, door, held)?;
    found.map(|alive| Ok((alive, held.also_ready(py)?))).transpose()
}

#[inline(always)]
fn alive_or_waited<'h>(
    py: Python<'_>,
    door: &'static str,
    held: &'h HeldMemory,
) -> PyResult<Option<Alive<'h>>> {
    let Some(stream) = held.ready.stream() else { return Ok(None) };
    match held.confirm_ready(py, stream)? {
        Some(Ready::On(alive)) => Ok(Some(alive)),
        Some(Ready::Nothing) => Ok(None),
        Some(Ready::Unsaid) => Ok(Some(Alive::legacy(held.producer_side.place))),
        None => wait_for_lost(py, door, held, stream).map(|()| None),
    }
}

/// Makes the host wait for all work in a context, because the stream `lost` may already be destroyed.
#[cold]
fn wait_for_lost(
    py: Python<'_>,
    door: &'static str,
    held: &HeldMemory,
    lost: Stream,
) -> PyResult<()> {
    look(py);
    let place = held.place_of_ready(lost).unwrap_or(held.producer_side.place);
    Ok(wait_for_all(py, door, &held.driver, place, WaitReason::StreamGone)?)
}

/// Orders `to` after one or two streams. If a graph capture forbids one of two waits, makes neither.
#[inline]
pub(crate) fn connect_both(
    py: Python<'_>,
    door: Purpose,
    driver: &Handle,
    (from, also): Both<'_>,
    to: Alive<'_>,
) -> Result<Ordered> {
    match also {
        None => order::connect(door, driver, from, to, |call| detach(py, call)),
        Some(also) => {
            order::connect_all(door, driver, &[(also, to), (from, to)], |call| detach(py, call))
        }
    }
}

/// Checks a stream with a handle, for an array with items. For device memory, fails if the handle's GPU is not the GPU
/// of the stream's place. For pinned and managed memory, returns the place that the driver reports for the handle. In
/// all other cases returns `at`.
#[inline]
pub(crate) fn check_stream(
    array: &Descriptor,
    driver: &Handle,
    stream: Option<Alive<'_>>,
    at: Place,
) -> Result<Place> {
    match stream {
        Some(stream) if matches!(stream.stream(), Stream::Handle(_)) && array.ptr() != 0 => {
            if array.device().kind != MemoryKind::Device {
                return order::place_of(driver.get()?, stream);
            }
            order::check_device(driver.get()?, stream)?;
        }
        _ => {}
    }
    Ok(at)
}

/// Like [`check_stream`], and also fails if a stream object names another GPU for a default stream.
#[inline]
pub(crate) fn check_argument(
    array: &Descriptor,
    driver: &Handle,
    argument: &StreamArgument<'_, '_>,
    at: Place,
) -> Result<Place> {
    argument.check_ordinal(array, at)?;
    check_stream(array, driver, argument.alive(at), at)
}
