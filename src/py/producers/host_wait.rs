//! Makes the host wait for producers that name no stream, and warns about the producers' types.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::device::Place;
use crate::driver::Handle;
use crate::py::errors::HostSyncWarning;
use crate::py::interpreter::program_line;
use crate::py::streams::{WaitReason, wait_for_all};
use crate::py::text::type_name;

/// `owner` is a producer that names no stream. If `has_dict`, the warning advises `from_cai(x, stream=...)`.
pub(super) fn wait(
    owner: &Bound<'_, PyAny>,
    has_dict: bool,
    driver: &Handle,
    place: Place,
    door: &'static str,
) -> PyResult<()> {
    warn_once(owner, has_dict)?;
    Ok(wait_for_all(owner.py(), door, driver, place, WaitReason::SilentDict)?)
}

const MOST: usize = 4096;

fn warn_once(owner: &Bound<'_, PyAny>, has_dict: bool) -> PyResult<()> {
    static WARNED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let (py, name) = (owner.py(), type_name(owner)?);
    let warned = || WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned().as_ref().is_some_and(|names| names.contains(&name) || names.len() >= MOST) {
        return Ok(());
    }
    let text = format!(
        "{name} never names a stream that its work is pending on, so the host waits for the device at every \
         import, and nothing orders the producer's later writes in place after the consumer's work. {} if nothing \
         is pending",
        if has_dict {
            "Name its stream by from_cai(x, stream=...), or -1"
        } else {
            "Name its stream by from_cai(to_cai(x, stream=-1), stream=...), or pass stream=-1"
        }
    );
    let text = CString::new(text).unwrap_or_default();
    let level = program_line(py)?.map_or(1, |line| line.level);
    PyErr::warn(py, &py.get_type::<HostSyncWarning>(), &text, level)?;
    // Do this only after the warning: if warnings are errors, the next array of the type must fail too.
    warned().get_or_insert_default().insert(name);
    Ok(())
}
