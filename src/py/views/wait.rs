//! `wait()`: the host waits for one array.
//!
//! MPI, UCX and files work on addresses and know no stream, so the work that is pending on the array has to be done
//! before they are called. Whether it can be waited for is [`crate::capture::host_route`]'s to say.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::View;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::lease::look;
use crate::py::observe::CallSpan;
use crate::py::source::ready_streams;

/// The call, as a door.
const DOOR: &str = "wait";

impl View {
    /// The host waits for what is pending on the array, and for nothing else, with the interpreter's lock released. If
    /// nothing keeps the array's stream alive, nothing but all work there can be waited for, as at a hand-over.
    pub(super) fn wait_on_host(&self, py: Python<'_>) -> PyResult<()> {
        let (holding, span) = (self.hand_on(py)?, CallSpan::begin());
        look(py);
        let ready = ready_streams(py, DOOR, &holding)?;
        if let Some((ready, also)) = ready {
            let driver = self.driver.get()?;
            match also {
                None => detach(py, || order::wait_for(driver, &[ready]))?,
                Some(also) => detach(py, || order::wait_for(driver, &[ready, also]))?,
            }
            let why = "the host waited for the array";
            span.waited(DOOR, ready.place().ordinal, why, false);
        }
        self.waited.store(true, Ordering::Release);
        Ok(())
    }
}
