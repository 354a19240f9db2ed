//! Readers of a view, by its dict or its address: what is ordered for them, and noted for the end.

use pyo3::prelude::*;

use super::View;
use crate::error::Kind;
use crate::order::{self, Purpose};
use crate::py::interpreter::detach;
use crate::py::lease::Holding;
use crate::py::source::ready_streams;
use crate::py::streams::KnownStream;
use crate::py::streams::current::{self, Objects, StreamPolicy};
use crate::py::streams::imported;
use crate::stream::{Alive, Ready, Stream};

/// The dict, as a door.
pub(super) const DICT: &str = "__cuda_array_interface__";

/// Readies a view's array for a reader of its dict, and returns the stream that it is ready on: none if that
/// stream was closed, since the host waits for it here. A producer that may move to another stream is asked.
///
/// If no stream was named, the reader is taken to work on its library's current stream. The view notes that
/// stream for the end, also if nothing is pending. If the library ignores the dict's stream, its current stream
/// waits here. And whether it was read before.
pub(super) fn ready(py: Python<'_>, view: &View) -> PyResult<(Ready, bool)> {
    let mut ready = view.told();
    let asked = |holding: &mut Holding| {
        let unnamed = view.reads(py, holding);
        let again = std::mem::replace(&mut holding.is_read, true);
        (unnamed, again, holding.home.may_lose(ready), holding.ready_to_note(py, ready))
    };
    let (unnamed, again, may_lose, known) = view.held(asked)?;
    if may_lose {
        ready = ready_now(py, view)?.map_or(Ready::Nothing, Ready::On);
    }
    if !unnamed {
        return Ok((ready, again));
    }
    if let Some(known) = known {
        drop(view.held(|holding| holding.note(py, known))?);
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
            (StreamPolicy::Ignored, Some(stream)) if !reader.is_at(stream, view.place) => {
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

/// The stream that the array is ready on by now. Where its exporter names another one than a library vouches for, that
/// one is named, and waits here.
fn ready_now(py: Python<'_>, view: &View) -> PyResult<Option<Stream>> {
    let mut holding = view.hand_on(py)?;
    holding.ready = view.told_by_now(&holding);
    let Some((ready, also)) = ready_streams(py, DICT, &holding)? else { return Ok(None) };
    let Some(also) = also else { return Ok(Some(ready.stream())) };
    order::connect(Purpose::hand_over(DICT), &view.driver, (ready, also), |call| detach(py, call))?;
    Ok(Some(also.stream()))
}

/// A reader has the address, and works with it on a stream of its own, or on a library's current one.
pub(super) fn read_address(py: Python<'_>, view: &View) -> PyResult<()> {
    if view.is_read(py) {
        let objects = Objects::default();
        current::each(py, &view.driver, view.at(), &objects, |reader, _| {
            note(py, view, reader, &objects)
        })?;
    }
    Ok(())
}

/// Notes the stream that a reader's library works on, for the end.
fn note<'py>(
    py: Python<'py>,
    view: &View,
    reader: Alive<'_>,
    objects: &Objects<'py>,
) -> PyResult<()> {
    if reader.stream() != Stream::Legacy
        && view.held(|holding| holding.has_to_note(reader))?
        && let Some(known) = KnownStream::of_library(py, &view.driver, reader, objects)?
    {
        // What is left is dropped here, not where the view is locked.
        drop(view.held(|holding| holding.note(py, known))?);
    }
    Ok(())
}

/// Makes `reader` wait for what the array is ready on, if it `may`: who reads need not be that library. It is told
/// whether the two are in graph captures, the reader first. A reader outside a capture is never to be drawn into the one
/// that the array is part of.
fn wait_for_producer(
    py: Python<'_>,
    view: &View,
    reader: Alive<'_>,
    may: impl Fn(bool, bool) -> bool,
) -> PyResult<()> {
    let mut holding = view.hand_on(py)?;
    holding.ready = view.told_by_now(&holding);
    let Some((from, also)) = ready_streams(py, DICT, &holding)? else { return Ok(()) };
    let driver = &view.driver;
    let is_captured = |stream| {
        let why = (Kind::CaptureLegacy, "a reader of the dict");
        match order::check_captures(driver.get()?, &[stream], why) {
            Err(error) if error.kind() != Kind::CaptureLegacy => Err(error),
            answer => Ok(answer.is_err()),
        }
    };
    let is_readers = is_captured(reader)?;
    for from in also.into_iter().chain([from]) {
        if may(is_readers, is_captured(from)?) {
            let door = Purpose::hand_over_of(DICT, holding.ready);
            order::connect(door, driver, (from, reader), |call| detach(py, call))?;
        }
    }
    Ok(())
}
