//! Streams of the simulated device, for code that can also run on a GPU.

use std::sync::Arc;

use crate::driver::Handle;
use crate::driver::simulated::Machine;
use crate::error::{Error, Kind, Result};

/// A non-blocking stream of the simulated device. The stream is destroyed with its last clone.
///
/// # Examples
///
/// ```
/// use cai_bridge::WorkStream;
/// use cai_bridge::testing::SimulatedCuda;
///
/// let cuda = SimulatedCuda::new(1);
/// let (a, b) = (cuda.stream(0)?, cuda.stream(0)?);
/// assert_ne!(a.handle(), b.handle());
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedStream(pub(super) Arc<Owned>);

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) driver: Handle,
    pub(super) ordinal: i32,
    pub(super) handle: u64,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // `get` fails in a forked child, which must not touch the simulated device.
        if self.driver.get().is_ok()
            && let Some(machine) = self.driver.machine()
        {
            let _ = machine.end_stream(self.handle);
        }
    }
}

impl SimulatedStream {
    pub(crate) fn new(driver: &Handle, ordinal: i32) -> Result<Self> {
        driver.get()?;
        let machine = driver.machine();
        let none = || Error::new(Kind::NoBackend, "a driver that is not simulated");
        let handle = machine.ok_or_else(none)?.new_stream(ordinal)?;
        Ok(Self(Arc::new(Owned { driver: driver.clone(), ordinal, handle })))
    }

    pub(super) fn is_of(&self, driver: &Handle) -> bool {
        match (&self.0.driver, driver) {
            (Handle::Simulated(own), Handle::Simulated(other)) => Arc::ptr_eq(own, other),
            (Handle::Borrowed(own), Handle::Borrowed(other)) => own.is(other),
            _ => false,
        }
    }

    /// The stream's simulated device. Fails in a forked child of the process that made the device or borrowed it.
    pub(crate) fn machine(&self) -> Result<&dyn Machine> {
        self.0.driver.get()?;
        self.0.driver.machine().ok_or_else(|| Error::new(Kind::NoBackend, "no machine"))
    }
}
