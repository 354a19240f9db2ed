//! The usual way to order the hand-over of an array that was taken in.

use pyo3::prelude::*;

use super::interpreter::detach;
use super::lease::{Holding, look};
use super::streams::{Argument, WaitReason, wait_for_all};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind, Place};
use crate::driver::Handle;
use crate::error::Result;
use crate::order::{self, Purpose};
use crate::stream::{Alive, Elided, Ready, Request, Stream, plan};

/// Where the consumers of `array` work, whose producer's streams are at `place`: there, unless the memory is
/// handed out as another GPU's.
pub(crate) fn consumers_place(array: &Descriptor, place: Place) -> Place {
    match array.device() {
        Device { kind: MemoryKind::Device, id } if id != place.ordinal => Place::gpu(id),
        _ => place,
    }
}

/// Where the streams of `array` are, if the caller names none. DLPack gives pinned and managed memory the device 0; the
/// driver knows whose it is.
#[inline(always)]
pub(crate) fn place_of(driver: &Handle, array: &Descriptor) -> Result<Place> {
    if array.device().kind == MemoryKind::Device || array.ptr() == 0 {
        return Ok(Place::gpu(array.device().id));
    }
    driver.locate(array.ptr()).map(Place::owning)
}

/// The stream that memory is ready on, and the other one that its producer works on, too. Who uses it waits for both.
pub(crate) type Both<'h> = (Alive<'h>, Option<Alive<'h>>);

/// The streams of `place` that the memory of `holding` is ready on; `None` if nothing is pending. If nothing keeps that
/// stream alive any more, the host has waited for all work there.
pub(crate) fn ready_streams<'h>(
    py: Python<'_>,
    door: &'static str,
    holding: &'h Holding,
    ready: (Ready, Place),
) -> PyResult<Option<Both<'h>>> {
    let found = alive_or_waited(py, door, holding, ready)?;
    found.map(|alive| Ok((alive, holding.also_ready(py)?))).transpose()
}

/// The stream that the memory is ready on, if it is alive; else the host has waited for all work there.
#[inline(always)]
fn alive_or_waited<'h>(
    py: Python<'_>,
    door: &'static str,
    holding: &'h Holding,
    (ready, place): (Ready, Place),
) -> PyResult<Option<Alive<'h>>> {
    let Some(stream) = ready.stream() else { return Ok(None) };
    match holding.confirm_ready(py, stream)? {
        Some(Ready::On(alive)) => Ok(Some(alive)),
        Some(Ready::Nothing) => Ok(None),
        Some(Ready::Unsaid) => Ok(Some(Alive::legacy(holding.home.place))),
        None => wait_for_lost(py, door, holding, (stream, place)).map(|()| None),
    }
}

/// The host waits for all work at the place of a stream that nothing keeps alive any more.
#[cold]
fn wait_for_lost(
    py: Python<'_>,
    door: &'static str,
    holding: &Holding,
    (lost, place): (Stream, Place),
) -> PyResult<()> {
    look(py);
    let place = holding.place_of_ready(lost).unwrap_or(place);
    Ok(wait_for_all(py, door, &holding.driver, place, WaitReason::StreamGone)?)
}

/// Passes an array on to a reader that has named no stream, and learns the one that it is ready on.
#[inline(always)]
pub(crate) fn pass_on(py: Python<'_>, door: &'static str, source: &mut Holding) {
    let why = plan(source.ready, Request::Unspecified).unwrap_or(Elided::NothingPending);
    order::elided(Purpose::hand_over(door), source.home.place, why, || source.ready.stream());
    if source.array.ptr() != 0 && !source.has_consumer() {
        source.await_reader(py, consumers_place(&source.array, source.home.place));
    }
}

/// Makes the memory of `holding`, which is `ready`, usable on the stream that `argument` names at `at`, with
/// the interpreter's lock released while the driver is called.
pub(crate) fn hand_over(
    py: Python<'_>,
    door: &'static str,
    holding: &Holding,
    (ready, place): (Ready, Place),
    (argument, at): (&Argument<'_, '_>, Place),
) -> PyResult<()> {
    look(py);
    let mut from = None;
    if plan(ready, argument.request()).is_none() {
        from = ready_streams(py, door, holding, (ready, place))?;
        if from.is_none() {
            return Ok(());
        }
    }
    hand_over_from(py, door, &holding.driver, (ready, place, from), (argument, at))
}

/// The same from streams that the caller knows to be alive. Nothing of Python's runs in between that might let them
/// go.
#[inline]
pub(crate) fn hand_over_from(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    (ready, place, from): (Ready, Place, Option<Both<'_>>),
    (argument, at): (&Argument<'_, '_>, Place),
) -> PyResult<()> {
    let door = Purpose::hand_over_of(door, ready);
    let (request, to) = (argument.request(), argument.alive(at));
    match (plan(ready, request), from.zip(to)) {
        (None, Some((both, to))) => connect_both(py, door, driver, both, to)?,
        (why, _) => {
            let on = || request.stream().or(ready.stream());
            order::elided(door, place, why.unwrap_or(Elided::NothingPending), on);
        }
    }
    Ok(())
}

/// Makes `to` wait for both streams that memory is ready on, or for neither, where a capture is in the way of one.
#[inline]
pub(crate) fn connect_both(
    py: Python<'_>,
    door: Purpose,
    driver: &Handle,
    (from, also): Both<'_>,
    to: Alive<'_>,
) -> Result<()> {
    match also {
        None => order::connect(door, driver, (from, to), |call| detach(py, call)),
        Some(also) => {
            order::connect_all(door, driver, &[(also, to), (from, to)], |call| detach(py, call))
        }
    }
}

/// Refuses a consumer's or declared stream of another device than the array's. Managed and pinned memory is
/// worked on by the streams of every device: for these the answer is where the stream is, else `at`.
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

/// The same for a stream as a caller names it, which may say by itself that it is another GPU's.
#[inline]
pub(crate) fn check_argument(
    array: &Descriptor,
    driver: &Handle,
    argument: &Argument<'_, '_>,
    at: Place,
) -> Result<Place> {
    argument.check_ordinal(array, at)?;
    check_stream(array, driver, argument.alive(at), at)
}

/// The array is the consumer's from here on, which `argument` names, on a stream at `at`.
#[inline]
pub(crate) fn handed_over(
    py: Python<'_>,
    source: &mut Holding,
    argument: &Argument<'_, '_>,
    at: Place,
) -> PyResult<()> {
    let request = argument.request();
    if source.array.ptr() != 0 && (request != Request::Unspecified || !source.has_consumer()) {
        source.hand_to(py, argument, at)?;
    }
    if let Request::On(_) = request {
        source.ready_for_consumer(py);
    }
    source.ready = ready_for(source.ready, request);
    Ok(())
}

/// What a consumer is told once `request` was served.
fn ready_for(ready: Ready, request: Request) -> Ready {
    match request {
        Request::Unspecified => ready,
        Request::NoOrder => Ready::Nothing,
        Request::On(stream) => Ready::On(stream),
    }
}
