//! `wait()`: the host waits for one array, before code that takes an address and knows no stream, such as MPI.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::BaseView;
use crate::order;
use crate::py::interpreter::detach;
use crate::py::lease::look;
use crate::py::observe::CallSpan;
use crate::py::source::ready_streams;

const DOOR: &str = "wait";

impl BaseView {
    pub(super) fn wait_on_host(&self, py: Python<'_>) -> PyResult<()> {
        let (held, span) = (self.share_for_hand_over(py)?, CallSpan::begin());
        look(py);
        let ready = ready_streams(py, DOOR, &held)?;
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
