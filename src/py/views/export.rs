//! `DLPackView.__dlpack__` with the array's own memory, without a copy.

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::prelude::*;

use super::BaseView;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::dlpack::encode::Keep;
use crate::dlpack::{capsule, encode};
use crate::driver::codes::is_missing_device;
use crate::error::{Error, Kind, Result};
use crate::order::{self, Uncaptured};
use crate::py::hand_over::{Recipient, hand_over};
use crate::py::lease::{MemoryGuard, look};
use crate::py::observe::EndedBy;
use crate::py::source::{consumers_place, ready_streams};
use crate::py::streams::{StreamArgument, WaitReason, places_of, wait_for_all};

pub(super) const DOOR: &str = "__dlpack__";

/// Captured work does not run, however long the host waits.
const CAPTURED: Uncaptured = Uncaptured {
    kind: Kind::CaptureHostReader,
    got: "memory that the CPU reaches too, whose producer's stream is being captured, for a consumer without a stream",
};

#[derive(Debug)]
pub(super) struct CapsuleRequest<'a, 'py> {
    pub(super) argument: &'a StreamArgument<'a, 'py>,
    pub(super) versioned: bool,
    /// Whether the capsule of the array's own memory names the CPU as its device.
    pub(super) on_host: bool,
}

/// The GPU and context for a consumer on the GPU `ordinal`. Fails if the machine has no such GPU.
pub(super) fn place(view: &BaseView, ordinal: i32) -> Result<Place> {
    if ordinal == view.place.ordinal {
        return Ok(view.place);
    }
    match view.driver.get()?.primary_context(ordinal) {
        Ok(_) => Ok(Place::gpu(ordinal)),
        Err(error) if is_missing_device(&error) => {
            let got = format!("(2, {ordinal}), which this machine does not have");
            Err(Error::new(Kind::DlDevice, got))
        }
        Err(error) => Err(error),
    }
}

/// Makes the host wait until the array is ready, for a consumer that may read it on the CPU.
pub(super) fn wait_for_host(py: Python<'_>, view: &BaseView) -> PyResult<()> {
    let held = view.share_for_hand_over(py)?;
    let ready = ready_streams(py, DOOR, &held)?;
    let Some((ready, also)) = ready else { return Ok(()) };
    let mut streams = vec![ready];
    streams.extend(also);
    let driver = view.driver.get()?;
    order::check_captures(driver, &streams, CAPTURED)?;
    for place in places_of(&view.driver, order::place_of(driver, ready)?, &streams)? {
        wait_for_all(py, DOOR, &view.driver, place, WaitReason::HostReader)?;
    }
    Ok(())
}

/// `array` is the view's array, or that array with another device.
#[inline]
pub(super) fn share<'py>(
    py: Python<'py>,
    view: &BaseView,
    array: &Descriptor,
    asked: &CapsuleRequest<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let CapsuleRequest { argument, versioned, on_host } = *asked;
    if !versioned {
        encode::check_legacy(array)?;
    }
    let mut guard = MemoryGuard::new(view.share_for_hand_over(py)?);
    if let Some(held) = guard.memory_mut() {
        place(view, consumers_place(array, view.place).ordinal)?;
        look(py);
        hand_over(DOOR, py, held, &Recipient { array: Some(array), ..Recipient::of(argument) })?;
        held.tag.by = EndedBy::Deleter;
        held.register_in_capsule(py, array);
    }
    let keep = Keep(guard);
    if versioned {
        capsule::new(py, encode::shared::<DLManagedTensorVersioned, _>(array, on_host, keep)?)
    } else {
        capsule::new(py, encode::shared::<DLManagedTensor, _>(array, on_host, keep)?)
    }
}
