//! Decides what `DLPackView.__dlpack__` gives its consumer, by `dl_device` and `copy` (Python array API 2025.12,
//! ``array.__dlpack__``). Calls no driver.
//!
//! `copy=True` without `stream` and without `dl_device` copies managed and pinned memory to the host, because a reader
//! on the CPU passes no stream.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::device::{Device, MemoryKind};
use crate::error::{Error, Kind};
use crate::py::streams::argument;
use crate::py::text::shown;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportRequest {
    Own,
    /// Pinned or managed memory, exported as memory of a GPU.
    Shared(Device),
    OnHost,
    Copy(CopyTarget),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyTarget {
    Gpu(i32),
    Host,
}

/// `ordinal` is the GPU of the memory. `names` says whether the consumer passed another `stream` than None, even -1.
pub(super) fn export_request(
    own: Device,
    ordinal: i32,
    names: bool,
    dl_device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<ExportRequest> {
    let is_gpus = own.kind == MemoryKind::Device;
    let pair = (i64::from(own.kind.code()), i64::from(own.id));
    let target = match dl_device {
        None => None,
        Some(given) => match pair_of(given)? {
            Some(asked) => (asked != pair).then(|| (asked, i32::try_from(asked.1))),
            None => return Err(elsewhere(&shown(given)?, own).into()),
        },
    };
    Ok(match (target, copy) {
        (None, Some(true)) if is_gpus => ExportRequest::Copy(CopyTarget::Gpu(own.id)),
        (None, Some(true)) if names => ExportRequest::Copy(CopyTarget::Gpu(ordinal)),
        (None, Some(true)) => ExportRequest::Copy(CopyTarget::Host),
        (None, _) => ExportRequest::Own,
        (Some(((1, 0), _)), Some(false)) if !is_gpus => ExportRequest::OnHost,
        (Some(((1, 0), _)), Some(false)) => return Err(needed((1, 0), own).into()),
        (Some(((1, 0), _)), _) => ExportRequest::Copy(CopyTarget::Host),
        (Some(((2, _), Ok(id @ 0..))), Some(true)) => ExportRequest::Copy(CopyTarget::Gpu(id)),
        (Some(((2, _), Ok(id @ 0..))), _) if !is_gpus => ExportRequest::Shared(Device::cuda(id)),
        (Some(((2, _), Ok(id @ 0..))), None) => ExportRequest::Copy(CopyTarget::Gpu(id)),
        (Some(((2, _), Ok(id @ 0..))), Some(false)) => {
            return Err(needed((2, i64::from(id)), own).into());
        }
        (Some((asked, _)), _) => {
            return Err(elsewhere(&format!("({}, {})", asked.0, asked.1), own).into());
        }
    })
}

/// Reads a pair of integers. An item may be an `Enum` member with an integer value (Python array API, ``dl_device``).
fn pair_of(given: &Bound<'_, PyAny>) -> PyResult<Option<(i64, i64)>> {
    if let Some(pair) = argument::pair(given)? {
        return Ok(Some(pair));
    }
    let py = given.py();
    let Ok(pair) = given.cast::<PyTuple>() else { return Ok(None) };
    let members = py.import(intern!(py, "enum"))?.getattr(intern!(py, "Enum"))?;
    let value = |item: Bound<'_, PyAny>| {
        let is_member = item.is_instance(&members)?;
        let value = if is_member { item.getattr(intern!(py, "value"))? } else { item };
        Ok(value.unbind())
    };
    let values = pair.iter().map(value).collect::<PyResult<Vec<_>>>()?;
    argument::pair(PyTuple::new(py, values)?.as_any())
}

#[cold]
fn elsewhere(asked: &str, own: Device) -> Error {
    let got = format!("{asked} for an array on ({}, {})", own.kind.code(), own.id);
    Error::new(Kind::DlDevice, got)
}

#[cold]
fn needed(asked: (i64, i64), own: Device) -> Error {
    let got = format!(
        "False for an array on ({}, {}) and a consumer on ({}, {})",
        own.kind.code(),
        own.id,
        asked.0,
        asked.1
    );
    Error::new(Kind::CopyNeeded, got)
}
