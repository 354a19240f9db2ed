//! Makes a context current while a closure runs.

use crate::device::{Context, Place};
use crate::driver::Driver;
use crate::error::{Error, Result};

/// The context that `place` names, else the primary context of its GPU.
#[inline]
pub fn context_of<D: Driver + ?Sized>(driver: &D, place: Place) -> Result<Context> {
    place.context.map_or_else(|| driver.primary_context(place.ordinal), Ok)
}

struct ContextGuard<'a, D: Driver + ?Sized> {
    driver: &'a D,
    pushed: bool,
}

impl<'a, D: Driver + ?Sized> ContextGuard<'a, D> {
    #[inline]
    fn new(driver: &'a D, context: Context) -> Result<Self> {
        let pushed = driver.current_context()? != Some(context);
        if pushed {
            driver.push_context(context)?;
        }
        Ok(Self { driver, pushed })
    }

    #[inline]
    fn leave(mut self) -> Result<()> {
        if self.pushed {
            // If the pop fails, `pushed` stays true and `drop` pops again.
            self.driver.pop_context()?;
            self.pushed = false;
        }
        Ok(())
    }
}

impl<D: Driver + ?Sized> Drop for ContextGuard<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed
            && self.driver.pop_context().is_err()
            && let Err(error) = self.driver.pop_context()
        {
            tracing::warn!(target: "cai_bridge", %error, "context not restored");
        }
    }
}

/// Runs `call` in the context of `place`, and then makes the caller's context current again.
#[inline]
pub fn within<D: Driver + ?Sized, R, E: From<Error>>(
    driver: &D,
    place: Place,
    call: impl FnOnce(Context) -> Result<R, E>,
) -> Result<R, E> {
    let context = context_of(driver, place)?;
    in_context(driver, context, || call(context))
}

#[inline]
pub(super) fn in_context<D: Driver + ?Sized, R, E: From<Error>>(
    driver: &D,
    context: Context,
    call: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let entered = ContextGuard::new(driver, context)?;
    let result = call()?;
    entered.leave()?;
    Ok(result)
}
