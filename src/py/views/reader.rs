//! Reads of a view's dict or address. A read records the streams that the reader may work on, for the end of the view.

use pyo3::prelude::*;

use super::BaseView;
use crate::error::Kind;
use crate::order::{self, Purpose, Uncaptured};
use crate::py::interpreter::detach;
use crate::py::lease::HeldMemory;
use crate::py::source::ready_streams;
use crate::py::streams::current::{self, DictPolicy, Objects};
use crate::py::streams::imported;
use crate::py::streams::{KnownStream, WaitReason, wait_for_all};
use crate::stream::{Alive, Ready, Stream};

pub(super) const DICT: &str = "__cuda_array_interface__";

/// Records a read of the dict. Returns the array's readiness for the reader, and whether the dict was read before.
///
/// For a reader that named no stream, records current streams of libraries for the end. If a library ignores the stream
/// that a dict names, the library's current stream waits now, unless a capture forbids the wait.
pub(super) fn ready(py: Python<'_>, view: &BaseView) -> PyResult<(Ready, bool)> {
    let mut ready = view.told();
    let asked = |held: &mut HeldMemory| {
        let unnamed = view.reads(py, held);
        let again = std::mem::replace(&mut held.is_read, true);
        let may_lose = held.producer_side.may_lose(ready, !unnamed);
        let in_graph = held.is_ready_in_graph(ready).then_some(held.producer_side.place);
        (unnamed, again, may_lose, held.ready_to_note(py, ready), in_graph)
    };
    let (unnamed, again, may_lose, known, in_graph) = view.with_memory(asked)?;
    if let Some(place) = in_graph {
        wait_for_all(py, DICT, &view.driver, place, WaitReason::Captured)?;
    }
    if may_lose {
        ready = ready_now(py, view)?.map_or(Ready::Nothing, Ready::On);
    }
    if !unnamed {
        return Ok((ready, again));
    }
    if let Some(known) = known {
        drop(view.with_memory(|held| held.note(py, known))?);
    }
    let legacy = Alive::legacy(view.at());
    let is_on_legacy = ready.stream().is_none_or(|stream| legacy.is_at(stream, view.place));
    let all = || current::are_all_on_legacy(py, &view.driver, legacy.place().ordinal);
    if is_on_legacy && all()? == Some(true) {
        return Ok((ready, again));
    }
    let objects = Objects::default();
    current::each(py, &view.driver, view.at(), &objects, |reader, takes| {
        note(py, view, reader, &objects)?;
        match (takes, ready.stream()) {
            (DictPolicy::Ignores, Some(stream)) if !reader.is_at(stream, view.place) => {
                wait_for_producer(py, view, reader, |reader, from| reader || !from)
            }
            _ => Ok(()),
        }
    })?;
    if !is_on_legacy && imported::ignores_dicts(py)? {
        wait_for_producer(py, view, legacy, |reader, from| !reader && !from)?;
    }
    Ok((ready, again))
}

/// The stream on which the array is ready now; `None` if nothing is pending. If a reader must wait for two streams,
/// makes the second wait for the first, and returns the second.
fn ready_now(py: Python<'_>, view: &BaseView) -> PyResult<Option<Stream>> {
    let mut held = view.share_for_hand_over(py)?;
    held.ready = view.told_by_now(&held);
    let Some((ready, also)) = ready_streams(py, DICT, &held)? else { return Ok(None) };
    let Some(also) = also else { return Ok(Some(ready.stream())) };
    order::connect(Purpose::hand_over(DICT), &view.driver, ready, also, |call| detach(py, call))?;
    Ok(Some(also.stream()))
}

/// Records a read. If the consumer named no stream, also records current streams of libraries for the end.
pub(super) fn read_address(py: Python<'_>, view: &BaseView) -> PyResult<()> {
    if view.is_read(py) {
        let objects = Objects::default();
        current::each(py, &view.driver, view.at(), &objects, |reader, _| {
            note(py, view, reader, &objects)
        })?;
    }
    Ok(())
}

fn note<'py>(
    py: Python<'py>,
    view: &BaseView,
    reader: Alive<'_>,
    objects: &Objects<'py>,
) -> PyResult<()> {
    if reader.stream() != Stream::Legacy
        && view.with_memory(|held| held.has_to_note(reader))?
        && let Some(known) = KnownStream::of_library(py, &view.driver, reader, objects)?
    {
        // Drop a stream that was recorded already outside the view's lock: the drop can run arbitrary code.
        drop(view.with_memory(|held| held.note(py, known))?);
    }
    Ok(())
}

/// Makes `reader` wait for each stream that the array is ready on, if `may` allows the wait. `may` gets two flags:
/// whether a graph capture affects `reader`, and whether one affects the array's stream.
fn wait_for_producer(
    py: Python<'_>,
    view: &BaseView,
    reader: Alive<'_>,
    may: impl Fn(bool, bool) -> bool,
) -> PyResult<()> {
    let mut held = view.share_for_hand_over(py)?;
    held.ready = view.told_by_now(&held);
    let Some((from, also)) = ready_streams(py, DICT, &held)? else { return Ok(()) };
    let driver = &view.driver;
    let is_captured = |stream| {
        let why = Uncaptured { kind: Kind::CaptureLegacy, got: "a reader of the dict" };
        match order::check_captures(driver.get()?, &[stream], why) {
            Err(error) if error.kind() != Kind::CaptureLegacy => Err(error),
            answer => Ok(answer.is_err()),
        }
    };
    let is_readers = is_captured(reader)?;
    for from in also.into_iter().chain([from]) {
        if may(is_readers, is_captured(from)?) {
            let door = Purpose::hand_over_of(DICT, held.ready);
            order::connect(door, driver, from, reader, |call| detach(py, call))?;
        }
    }
    Ok(())
}
