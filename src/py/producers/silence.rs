//! Dicts that name no stream, as those of version 0 to 2: which stream the array is ready on.
//!
//! The bridge asks the type's exchange API, or its `__dlpack__`, which makes the memory ready on a stream. Without
//! both the host waits, which is right and slow, with a warning once for each type.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dlpack;
use super::readiness::{Readiness, of_producer};
use super::types::{self, Facts, ProducerKind};
use crate::device::{Device, Place};
use crate::driver::Handle;
use crate::py::errors::HostSyncWarning;
use crate::py::habits::Habit;
use crate::py::interpreter::{answered, program_line};
use crate::py::streams::{WaitReason, current, wait_for_all};
use crate::py::text::type_name;
use crate::stream::{Alive, Ready, Stream};

/// The stream that an array of `owner` is ready on at `place`, for `door` and its consumer `to`, and whose it is: the producer's own, by
/// its exchange API, or the stream that the bridge asked `__dlpack__` for.
pub(super) fn settle(
    x: &Bound<'_, PyAny>,
    facts: &Facts,
    owner: &Bound<'_, PyAny>,
    (driver, place): (&Handle, Place),
    (door, ordered, to): (&'static str, bool, Option<Alive<'_>>),
) -> PyResult<Readiness> {
    let py = x.py();
    let table =
        if facts.producer == ProducerKind::Dict { types::facts(owner)?.table } else { facts.table };
    if let Some(table) = table {
        let native = table.current_work_stream(py, Device::cuda(place.ordinal))?;
        let alive = current::named(py, native, place);
        return of_producer(py, door, driver, (alive, place), true);
    }
    if facts.has_dlpack && answered(py, dlpack::make_ready(x, facts, driver, place))?.is_some() {
        return Ok((Ready::On(Stream::Legacy), None, None));
    }
    if ordered {
        warn_once(owner)?;
        wait_for_all(py, "from_cai", driver, place, (WaitReason::SilentDict, to.as_slice()))?;
    }
    Ok((Ready::Nothing, None, None))
}

/// Whether the dict is one of a library's that says nothing of streams, of version 3 though it is.
pub(super) fn never_names_stream(of_owner: &Facts, dict: &Bound<'_, PyDict>) -> PyResult<bool> {
    if of_owner.has(Habit::AlwaysNamesNone) {
        return Ok(true);
    }
    Ok(of_owner.has(Habit::NeverNamesStream) && !dict.contains(intern!(dict.py(), "stream"))?)
}

/// More types without a stream than a program has.
const MOST: usize = 4096;

fn warn_once(owner: &Bound<'_, PyAny>) -> PyResult<()> {
    static WARNED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let (py, name) = (owner.py(), type_name(owner)?);
    let warned = || WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned().as_ref().is_some_and(|names| names.contains(&name) || names.len() >= MOST) {
        return Ok(());
    }
    let text = format!(
        "{name} exports a CUDA Array Interface that never names a stream, so the host waits for the device \
         at every import, and nothing orders the producer's later writes in place after the consumer's work. \
         Name its stream by from_cai(x, stream=...), or -1 if nothing is pending"
    );
    let text = CString::new(text).unwrap_or_default();
    let level = program_line(py)?.map_or(1, |line| line.level);
    PyErr::warn(py, &py.get_type::<HostSyncWarning>(), &text, level)?;
    // Only now: if warnings are errors, the next import is refused as well.
    warned().get_or_insert_default().insert(name);
    Ok(())
}
