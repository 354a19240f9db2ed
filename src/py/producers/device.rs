//! Finds the device of an array: by its pointer, by `device=`, and for an empty array also by its streams and its
//! object.

use std::fmt;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use super::dunder::dlpack_device;
use crate::descriptor::{Descriptor, null};
use crate::device::{Device, MemoryKind, Place, PointerAttributes};
use crate::driver::Handle;
use crate::driver::codes::is_missing_device;
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order;
use crate::py::interpreter::answered;
use crate::py::native;
use crate::py::streams::argument::{index, pair};
use crate::py::streams::{StreamArgument, current};
use crate::py::text::{attribute, beginning, refused, shown};
use crate::py::this_thread::is_asked;
use crate::stream::Stream;

/// Fails for a null pointer, and for an address that CUDA does not know.
pub(super) fn locate(
    driver: &Handle,
    ptr: u64,
    layout: &Layout,
    wanted: Option<Device>,
) -> Result<(Device, Place)> {
    if ptr == 0 {
        return Err(null(layout));
    }
    let found = driver.locate(ptr)?;
    as_wanted(own_device(found), wanted).map(|device| (device, Place::owning(found)))
}

/// Finds the device of an empty array. The first that is known counts: `wanted` (the caller's `device=`), the pointer's
/// device, the GPU of a stream in `named`, the device that `said` returns, the thread's current GPU.
#[cold]
pub(super) fn without_items(
    driver: &Handle,
    ptr: u64,
    wanted: Option<Device>,
    named: [&StreamArgument<'_, '_>; 2],
    said: impl FnOnce() -> PyResult<Option<Device>>,
) -> PyResult<(Device, Place)> {
    let at = |device: Device| Ok((device, Place::gpu(device.id)));
    if let Some(device) = wanted {
        if device.kind == MemoryKind::Device {
            check_exists(driver, device.id, "device", format_args!("(2, {})", device.id))?;
        }
        return at(device);
    }
    let calls = driver.get()?;
    if ptr != 0
        && let Some(found) = calls.pointer(ptr)?
    {
        return at(own_device(found));
    }
    let here = Place::gpu(current_ordinal(driver)?);
    if let Some(alive) = named.into_iter().find_map(|argument| argument.alive(here)) {
        return at(Device::cuda(order::place_of(calls, alive)?.ordinal));
    }
    at(said()?.unwrap_or(Device::cuda(here.ordinal)))
}

/// Asks `x` for the device of an empty array. `stream` is the stream that the CAI dict names.
#[cold]
pub(super) fn said_device(
    x: &Bound<'_, PyAny>,
    driver: &Handle,
    stream: Option<Stream>,
) -> PyResult<Option<Device>> {
    let py = x.py();
    if !is_asked(x)
        && let Some(Some(Ok(device))) = answered(py, dlpack_device(x).map_err(PyErr::from))?
    {
        return Ok(Some(device));
    }
    let own = answered(py, x.getattr_opt(intern!(py, "device")))?.flatten();
    if let Some((kind, id)) = own.as_ref().map(pair).transpose()?.flatten() {
        return Ok(Device::from_dlpack(kind, id).ok());
    }
    let id = own.map(|own| device_number(&own)).transpose()?.flatten();
    if let Some(id) = id {
        check_exists(driver, id, "device", format_args!("(2, {id})"))?;
        return Ok(Some(Device::cuda(id)));
    }
    let Some(stream) = stream.filter(|stream| matches!(stream, Stream::Handle(_))) else {
        return Ok(None);
    };
    let here = Place::gpu(current_ordinal(driver)?);
    let place = order::place_of(driver.get()?, current::named(py, stream.handle(), here))?;
    Ok(Some(Device::cuda(place.ordinal)))
}

/// Reads a GPU's number from a library's `device`, such as an integer or the text `cuda:1`.
fn device_number(device: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    let py = device.py();
    let number = |value: &Bound<'_, PyAny>| -> PyResult<Option<i32>> {
        if value.is_instance_of::<PyBool>() {
            return Ok(None);
        }
        let small = index(value)?.and_then(|id| i32::try_from(id).ok());
        Ok(small.filter(|id| *id >= 0))
    };
    if let Ok(text) = device.cast::<PyString>() {
        let text = beginning(text)?.to_ascii_lowercase();
        let (kind, id) = text.rsplit_once(':').unwrap_or_default();
        let is_gpu = kind.ends_with("cuda") || kind.ends_with("gpu");
        return Ok(id.parse().ok().filter(|_| is_gpu));
    }
    if let Some(id) = answered(py, number(device))?.flatten() {
        return Ok(Some(id));
    }
    let kind = ["type", "platform", "device_kind"]
        .into_iter()
        .find_map(|name| attribute(device, &PyString::new(py, name)).ok().flatten());
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("cpu")) {
        return Ok(None);
    }
    for name in ["index", "id", "device_id", "ordinal"] {
        let found = answered(py, device.getattr_opt(name))?.flatten();
        if let Some(found) = found
            && let Some(id) = answered(py, number(&found))?.flatten()
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

const fn own_device(found: PointerAttributes) -> Device {
    match found.kind {
        MemoryKind::Device => Device::cuda(found.ordinal),
        // dlpack.h: "For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."
        kind => Device { kind, id: 0 },
    }
}

/// Fails if this machine lacks the GPU `ordinal`. The error names the argument `field` and shows `got`.
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

/// Fails if `wanted` is another device than `own`, but allows any GPU for managed and pinned memory.
pub(super) fn as_wanted(own: Device, wanted: Option<Device>) -> Result<Device> {
    match wanted {
        None => Ok(own),
        Some(device) if device == own => Ok(own),
        // Under unified addressing, every GPU reaches managed and pinned memory.
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

/// Fails if CUDA does not know the address of `array`, or if the memory is on a GPU other than the device of `array`.
/// Checks nothing for an empty array, or if this process cannot use the driver.
pub(crate) fn check_memory(driver: &Handle, array: &Descriptor) -> Result<()> {
    let said = array.device();
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

pub(crate) fn current_ordinal(driver: &Handle) -> Result<i32> {
    let driver = driver.get()?;
    // A thread without a context works on device 0, as in CUDA's runtime.
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
