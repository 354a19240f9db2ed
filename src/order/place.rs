//! Where an array's streams are: its context, current for the length of a call and no longer.

use crate::device::Device;
use crate::driver::{Context, Driver, Pointer};
use crate::error::Result;

/// Where streams of an array live: its context, or the primary context of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The ordinal of the device that the streams belong to.
    pub ordinal: i32,
    /// The context that owns the memory, where the driver named one.
    pub context: Option<Context>,
}

impl Place {
    /// The primary context of the array's own device.
    pub const fn of(device: Device) -> Self {
        Self { ordinal: device.id, context: None }
    }

    /// The context that owns memory of which the driver knows that.
    pub const fn owning(found: Pointer) -> Self {
        Self { ordinal: found.ordinal, context: found.context }
    }

    pub(super) fn context(self, driver: &dyn Driver) -> Result<Context> {
        self.context.map_or_else(|| driver.primary_context(self.ordinal), Ok)
    }
}

/// A context made current, and taken back however the scope ends.
struct Entered<'a> {
    driver: &'a dyn Driver,
    pushed: bool,
}

impl<'a> Entered<'a> {
    fn new(driver: &'a dyn Driver, context: Context) -> Result<Self> {
        let pushed = driver.current_context()? != Some(context);
        if pushed {
            driver.push_context(context)?;
        }
        Ok(Self { driver, pushed })
    }

    fn leave(mut self) -> Result<()> {
        if self.pushed {
            // Where it fails, `drop` tries again: the caller's context matters more than the reason.
            self.driver.pop_context()?;
            self.pushed = false;
        }
        Ok(())
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed
            && self.driver.pop_context().is_err()
            && let Err(error) = self.driver.pop_context()
        {
            tracing::warn!(target: "cai_bridge", %error, "context not restored");
        }
    }
}

/// Runs `call` with the context of `place` current, and the caller's own current again afterwards.
pub fn within<R>(
    driver: &dyn Driver,
    place: Place,
    call: impl FnOnce(Context) -> Result<R>,
) -> Result<R> {
    let context = place.context(driver)?;
    in_context(driver, context, || call(context))
}

/// The same for a context that is known.
pub(super) fn in_context<R>(
    driver: &dyn Driver,
    context: Context,
    call: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let entered = Entered::new(driver, context)?;
    let result = call()?;
    entered.leave()?;
    Ok(result)
}
