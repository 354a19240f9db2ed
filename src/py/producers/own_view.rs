//! Takes in one of our own views, which knows its array, its streams and its owner.

use pyo3::prelude::*;

use super::cai::ImportOptions;
use super::device::{as_wanted, device_argument};
use super::dtype::check_dtype;
use crate::order::{self, Purpose};
use crate::py::interpreter::detach;
use crate::py::source::{Source, check_argument};
use crate::py::streams::{KeepAlive, StreamRef};
use crate::stream::{Alive, Ready, Request, Stream};

/// One of our own views, taken in again with what the caller says beside it: a stream that he declares is one
/// of the producer's besides the one that the memory came from, and waits for the consumer as well.
pub(crate) fn adapt(
    py: Python<'_>,
    mut view: Source,
    options: &ImportOptions<'_, '_>,
) -> PyResult<Source> {
    check_dtype(options.dtype, view.array.dtype())?;
    let place = check_argument(&view.array, &view.holding.driver, options.stream, view.place)?;
    if let Some(wanted) = options.device.map(device_argument).transpose()? {
        let device = match view.array.ptr() {
            0 => wanted,
            _ => as_wanted(view.array.device(), Some(wanted))?,
        };
        view.array = view.array.on(device);
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
    view: &mut Source,
    options: &ImportOptions<'_, '_>,
    alive: Alive<'_>,
) -> PyResult<()> {
    view.ready = Ready::On(alive.stream());
    if view.holding.is_producer(alive) && view.holding.producer_stays(py)? {
        view.holding.ready_on(None);
        return Ok(());
    }
    let driver = view.holding.driver.clone();
    let keeping = options.stream.keep(py, &driver, alive.place())?;
    if !matches!(keeping, Some(KeepAlive::By(_))) {
        // Nobody keeps the handle, so nobody is told it.
        view.ready = Ready::On(Stream::Legacy);
    }
    // The legacy stream that the dict names is that of the memory's GPU.
    let here = !matches!(&keeping, Some(KeepAlive::StandIn(kept)) if kept.place().ordinal != view.place.ordinal);
    let kept = keeping.as_ref().and_then(KeepAlive::kept);
    let ready = kept.filter(|_| here).map(|kept| kept.clone_ref(py));
    if ready.is_none() {
        let streams = (alive, Alive::legacy(view.place));
        let door = Purpose::hand_over(options.door);
        order::connect(door, &driver, streams, |call| detach(py, call))?;
    }
    view.holding.ready_on(Some(ready.unwrap_or(StreamRef::legacy(view.place))));
    if let Some(KeepAlive::By(kept) | KeepAlive::StandIn(kept)) = keeping {
        view.holding.put_upstream(KeepAlive::By(kept));
    }
    Ok(())
}
