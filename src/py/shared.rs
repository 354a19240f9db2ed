//! `DLPackView.__dlpack__` with the array's own memory, and how every answer of it begins.
//!
//! Managed and pinned memory is reached by every GPU, and is handed out as a GPU's own without a copy.
//! Refused are GPUs that the machine does not have. Copies are [`super::copied`]'s.

use pyo3::prelude::*;

use super::keep::Keep;
use super::parked;
use super::source::{check_stream, hand_over};
use super::traced::End;
use super::view::View;
use crate::buffer::Queue;
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dlpack::encode;
use crate::error::{Error, Kind, Result};
use crate::order::{self, Door, Place};
use crate::stream::{Ready, Request, Thread, plan};

/// What makes the capsules, as a door.
pub(super) const DOOR: &str = "__dlpack__";

/// What a consumer asks for, beside the device and the copy.
pub(super) struct Asked {
    /// Its stream.
    pub(super) request: Request,
    /// The object of that stream, where it gave one.
    pub(super) object: Option<Py<PyAny>>,
    /// Whether it takes a versioned capsule.
    pub(super) versioned: bool,
}

/// Where the streams of the GPU `ordinal` are: the array's own context where that is its device.
fn place(view: &View, ordinal: i32) -> Result<Place> {
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

/// References for as long as an answer on the GPU `ordinal` takes, during which others run, and where the
/// streams there are. On the array's own GPU the consumer's has to be one of them.
#[inline]
pub(super) fn begin(
    py: Python<'_>,
    view: &View,
    ordinal: i32,
    request: Request,
) -> Result<(Box<Keep>, Place)> {
    let keep = Box::new(view.share(py, None)?);
    let place = place(view, ordinal)?;
    if ordinal == view.place.ordinal {
        check_stream(&view.array, &view.driver, place, request)?;
    }
    Ok((keep, place))
}

/// Work queued on `to` after this call runs after what the array is ready on.
pub(super) fn order_from(view: &View, to: Queue) -> Result<()> {
    let (here, door) = (Thread::current(), Door::handing_over(DOOR));
    match view.ready {
        Ready::On(from) if to.place.ordinal != view.place.ordinal => {
            let from = (view.place, from.seen_from(here));
            order::across(door, view.driver.get()?, from, (to.place, to.stream))
        }
        ready => {
            let edge = plan(ready, Request::On(to.stream), here);
            let on = || Some(to.stream);
            order::carry_out(door, &view.driver, view.place, edge, on, |call| call())
        }
    }
}

/// A capsule with the array as it is.
#[inline]
pub(super) fn own<'py>(py: Python<'py>, view: &View, asked: Asked) -> PyResult<Bound<'py, PyAny>> {
    share(py, view, &view.array, view.place.ordinal, asked)
}

/// A capsule with the same memory as `device`'s, which is another one of those that reach it.
pub(super) fn on<'py>(
    py: Python<'py>,
    view: &View,
    device: Device,
    asked: Asked,
) -> PyResult<Bound<'py, PyAny>> {
    share(py, view, &view.array.clone().on(device), device.id, asked)
}

/// A capsule with the view's memory, which is `array` for a consumer on the GPU `ordinal`.
#[inline]
fn share<'py>(
    py: Python<'py>,
    view: &View,
    array: &Descriptor,
    ordinal: i32,
    asked: Asked,
) -> PyResult<Bound<'py, PyAny>> {
    let Asked { request, object, versioned } = asked;
    if !versioned {
        encode::check_legacy(array)?;
    }
    let (mut keep, place) = begin(py, view, ordinal, request)?;
    match request {
        Request::On(stream) if place.ordinal != view.place.ordinal => {
            parked::look(py);
            py.detach(|| order_from(view, Queue { stream, place }))?;
            keep.move_to(place);
        }
        _ => hand_over(py, DOOR, &view.driver, place, view.ready, request)?,
    }
    keep.hand_to(py, array, request, object)?;
    keep.ends_by(End::Deleter);
    if versioned {
        encode::versioned(array, keep)?.into_pyobject(py)
    } else {
        encode::legacy(array, keep)?.into_pyobject(py)
    }
}
