//! Which device an array is on: what its pointer says, and what `device=` may be.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use crate::descriptor::{Descriptor, null};
use crate::device::{Device, MemoryKind, Place, Pointer};
use crate::driver::Handle;
use crate::driver::codes::is_missing_device;
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order;
use crate::py::native;
use crate::py::streams::Argument;
use crate::py::streams::argument::{index, pair};
use crate::py::text::{beginning, refused, shown};

/// Where the memory is, for consumers, and where its producer's streams are: the driver knows both by the
/// pointer, the caller the first where there is none: by `device=`, or by the streams that are named.
pub(super) fn locate(
    driver: &Handle,
    ptr: u64,
    layout: &Layout,
    (wanted, named): (Option<Device>, [&Argument<'_, '_>; 2]),
) -> Result<(Device, Place)> {
    if layout.size() == 0 {
        let device = match wanted {
            Some(device) => {
                if device.kind == MemoryKind::Device {
                    check_exists(driver, device.id, "device", format_args!("(2, {})", device.id))?;
                }
                device
            }
            None => without_items(driver, ptr, named)?,
        };
        return Ok((device, Place::gpu(device.id)));
    }
    if ptr == 0 {
        return Err(null(layout));
    }
    let found = driver.locate(ptr)?;
    as_wanted(own_device(found), wanted).map(|device| (device, Place::owning(found)))
}

/// Where an array without items is: where its pointer is, though it needs none, or where the stream is that the caller
/// names. Its `__dlpack_device__` is not asked: many a class has it from here.
#[cold]
fn without_items(driver: &Handle, ptr: u64, named: [&Argument<'_, '_>; 2]) -> Result<Device> {
    let calls = driver.get()?;
    if ptr != 0
        && let Some(found) = calls.pointer(ptr)?
    {
        return Ok(own_device(found));
    }
    let here = Place::gpu(current_ordinal(driver)?);
    let named = named.into_iter().find_map(|argument| argument.alive(here));
    let place = named.map_or(Ok(here), |alive| order::place_of(calls, alive))?;
    Ok(Device::cuda(place.ordinal))
}

/// The device of memory that the driver knows so.
const fn own_device(found: Pointer) -> Device {
    match found.kind {
        MemoryKind::Device => Device::cuda(found.ordinal),
        // dlpack.h: "For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."
        kind => Device { kind, id: 0 },
    }
}

/// Refuses a GPU that this machine does not have, as `field` names it by `got`.
pub(crate) fn check_exists(
    driver: &Handle,
    ordinal: i32,
    field: &'static str,
    got: impl fmt::Display,
) -> Result<()> {
    match driver.get()?.primary_context(ordinal) {
        Err(error) if is_missing_device(&error) => {
            let got = format!("{got}, which this machine does not have");
            Err(Error::at(Kind::DeviceMissing, field, got))
        }
        found => found.map(drop),
    }
}

/// The device of memory that is on `own`, as the caller wants it handed out.
pub(super) fn as_wanted(own: Device, wanted: Option<Device>) -> Result<Device> {
    match wanted {
        None => Ok(own),
        Some(device) if device == own => Ok(own),
        // Managed and pinned memory is reached by every device under unified addressing.
        Some(device) if device.kind == MemoryKind::Device && own.kind != MemoryKind::Device => {
            Ok(device)
        }
        Some(device) => {
            let got = format!(
                "({}, {}) for memory of ({}, {})",
                device.kind.code(),
                device.id,
                own.kind.code(),
                own.id
            );
            Err(Error::new(Kind::DeviceArgument, got))
        }
    }
}

/// Refuses memory of which an unknown producer says where it is, if the driver does not know it, or knows it as a GPU's
/// that was not named: what is said to be pinned or managed is read by the host.
pub(crate) fn check_memory(driver: &Handle, array: &Descriptor) -> Result<()> {
    let said = array.device();
    // Without a driver an array is looked at all the same.
    if array.ptr() == 0 || driver.get().is_err() {
        return Ok(());
    }
    let found = driver.locate(array.ptr())?;
    if found.kind == MemoryKind::Device && said != Device::cuda(found.ordinal) {
        let got =
            format!("({}, {}) for memory of (2, {})", said.kind.code(), said.id, found.ordinal);
        return Err(Error::new(Kind::DeviceElsewhere, got));
    }
    Ok(())
}

/// The GPU that the calling thread works on.
pub(crate) fn current_ordinal(driver: &Handle) -> Result<i32> {
    let driver = driver.get()?;
    // A thread without a context works on device 0, as CUDA's runtime has it.
    if driver.current_context()?.is_none() { Ok(0) } else { driver.current_ordinal() }
}

pub(super) fn device_argument(value: &Bound<'_, PyAny>) -> PyResult<Device> {
    let given = if value.is_exact_instance_of::<PyInt>() {
        native::small(value).and_then(|id| i32::try_from(id).ok()).map(|id| (2, id))
    } else if let Ok(text) = value.cast::<PyString>() {
        beginning(text)?.strip_prefix("cuda:").and_then(|id| id.parse().ok()).map(|id| (2, id))
    } else if let Some(pair) = pair(value)? {
        Some(pair)
    } else if value.is_instance_of::<PyBool>() {
        None
    } else {
        index(value)?.and_then(|id| i32::try_from(id).ok()).map(|id| (2, id))
    };
    let (kind, id) = given.ok_or_else(|| refused(Kind::DeviceArgument, shown(value)))?;
    Ok(Device::from_dlpack(kind, id)?)
}
