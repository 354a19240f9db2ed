//! Imports one of the bridge's own views, whose array, streams and owner the bridge already knows.

use pyo3::prelude::*;

use super::cai::ImportOptions;
use super::device::{as_wanted, device_argument};
use super::dtype::{check_dtype, named};
use super::readiness::declared;
use crate::py::hand_over::order_for;
use crate::py::lease::{Captured, HeldMemory, Readiness};
use crate::py::source::check_argument;
use crate::py::streams::KnownStream;
use crate::stream::{Alive, Ready, Request};

/// Imports a view with the caller's arguments. A stream that the caller declares waits until the view's array is ready.
pub(crate) fn adapt(
    py: Python<'_>,
    mut view: Box<HeldMemory>,
    options: &ImportOptions<'_, '_>,
) -> PyResult<Box<HeldMemory>> {
    if let Some(said) = options.dtype.map(named).transpose()?.flatten()
        && view.array.dtype().is_shared()
        && view.array.dtype().lanes() == 1
        && said.itemsize() == view.array.dtype().itemsize()
    {
        view.array = view.array.clone().of(said);
    }
    check_dtype(options.dtype, view.array.dtype())?;
    let place =
        check_argument(&view.array, &view.driver, options.stream, view.producer_side.place)?;
    if let Some(wanted) = options.device.map(device_argument).transpose()? {
        let device = match view.array.ptr() {
            0 => wanted,
            _ => as_wanted(view.array.device(), Some(wanted))?,
        };
        view.array = view.array.clone().on(device);
    }
    match (options.stream.request(), options.stream.alive(place)) {
        (Request::NoOrder, _) => view.ready = Ready::Nothing,
        (_, Some(alive)) if view.array.ptr() != 0 => declare(py, &mut view, options, alive)?,
        _ => {}
    }
    Ok(view)
}

fn declare(
    py: Python<'_>,
    view: &mut HeldMemory,
    options: &ImportOptions<'_, '_>,
    alive: Alive<'_>,
) -> PyResult<()> {
    let mut again = None;
    if let Some(named) = view.ready.stream()
        && !alive.is_at(named, view.producer_side.ready_place(named))
    {
        let made = order_for(options.door, py, view, alive)?;
        if !made.is_for_good() {
            let captured = Captured::of(&view.driver, Some(alive), made)?;
            again = Some((captured, view.waited_for(py)));
        }
    }
    // `view.ready` does not name a GPU. For a stream on another GPU, `ready_on` must record the GPU.
    let is_there = alive.place().ordinal == view.producer_side.place.ordinal;
    if is_there
        && view.producer_side.is_producer(alive)
        && view.producer_side.stays(py, &view.driver)?
    {
        view.ready = Ready::On(alive.stream());
        view.keep_ready_on(None);
        return Ok(());
    }
    let driver = view.driver.clone();
    let Readiness { told, producer, ready_on } = declared(
        py,
        options.door,
        options.stream,
        &driver,
        alive.place(),
        view.producer_side.place,
    )?;
    view.ready = told;
    let same = || producer.as_ref().map(|producer| producer.clone_ref(py));
    let own = ready_on.or_else(same);
    view.keep_ready_on(own.map(|own| view.producer_side.ready_again_on(py, own)));
    if let Some((captured, waited_for)) = again {
        view.captured(captured, waited_for);
    }
    if let Some(producer) = producer {
        view.producer_side.put_upstream(KnownStream::Kept(producer));
    }
    Ok(())
}
