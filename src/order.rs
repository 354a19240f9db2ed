//! Carries a plan out on a driver: one event, recorded on one stream, waited for on the other.
//!
//! No policy here: [`crate::stream::plan`] has decided. Each decision, made or elided, is a
//! `tracing` event under the target `cai_bridge`; with no subscriber it costs one load. The host
//! never blocks in [`order`]; [`wait_on_host`] is the one place where it does, for producers that
//! say nothing of their streams.

use crate::device::Device;
use crate::driver::{Context, Driver, Event, Handle, Pointer};
use crate::error::Result;
use crate::stream::{Edge, Elided, Stream};

/// `CUDA_ERROR_INVALID_HANDLE`, also for an event and a stream of two contexts.
const INVALID_HANDLE: u32 = 400;

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

    fn context(self, driver: &dyn Driver) -> Result<Context> {
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
        if std::mem::take(&mut self.pushed) { self.driver.pop_context() } else { Ok(()) }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed
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

fn in_context<R>(
    driver: &dyn Driver,
    context: Context,
    call: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let entered = Entered::new(driver, context)?;
    let result = call()?;
    entered.leave()?;
    Ok(result)
}

/// Work queued on `to` after this call runs after work queued on `from` before it.
///
/// Where `unless_blocking`, the handle of `from`, is a blocking stream of the same context, the legacy
/// default stream `to` follows it already, and the answer is why nothing was done.
pub fn order(
    driver: &dyn Driver,
    place: Place,
    from: Stream,
    to: Stream,
    unless_blocking: Option<u64>,
) -> Result<Option<Elided>> {
    within(driver, place, |context| {
        if let Some(handle) = unless_blocking
            && driver.is_blocking(handle)?
            && driver.stream_context(handle)? == context
        {
            return Ok(Some(Elided::LegacyOrder));
        }
        // For the legacy stream on itself: no other stream follows all that is ready there.
        let event = match (record(driver, context, from), from) {
            // An event is recorded in the context of its stream, which for managed, pinned and peer
            // memory need not be the memory's; waiting for it is legal in any.
            (Err(error), Stream::Handle(handle))
                if error.driver_code().is_some_and(|failed| failed.code == INVALID_HANDLE) =>
            {
                let theirs = driver.stream_context(handle)?;
                if theirs == context {
                    return Err(error);
                }
                in_context(driver, theirs, || record(driver, theirs, from))?
            }
            (recorded, _) => recorded?,
        };
        driver.wait_event(to, event)?;
        Ok(None)
    })
}

fn record(driver: &dyn Driver, context: Context, stream: Stream) -> Result<Event> {
    let event = driver.thread_event(context)?;
    driver.record_event(event, stream)?;
    Ok(event)
}

/// The same between streams whose places are of two devices. `from` is one that this thread can name.
pub fn across(
    door: &'static str,
    driver: &dyn Driver,
    (from_place, from): (Place, Stream),
    (to_place, to): (Place, Stream),
) -> Result<()> {
    let context = match from {
        Stream::Handle(handle) => driver.stream_context(handle)?,
        _ => from_place.context(driver)?,
    };
    let event = in_context(driver, context, || record(driver, context, from))?;
    let made = within(driver, to_place, |_| driver.wait_event(to, event));
    tracing::debug!(
        target: "cai_bridge", door, device = to_place.ordinal,
        producer = from.handle(), consumer = to.handle(),
        order = if made.is_ok() { "made" } else { "failed" },
        "the consumer's stream waits for the producer's"
    );
    made
}

/// The host waits for all work of the context of `place`.
pub fn wait_on_host(driver: &dyn Driver, place: Place) -> Result<()> {
    within(driver, place, |_| driver.synchronize_context())
}

/// What [`carry_out`] may call without whatever lock its caller must not hold meanwhile.
pub type Call<'a> = &'a (dyn Fn() -> Result<Option<Elided>> + Sync);

/// Carries `edge` out and says so. `door` names the call on whose behalf; `detach` runs what may
/// block, with whatever lock the caller must not hold meanwhile given up.
pub fn carry_out(
    door: &'static str,
    driver: &Handle,
    place: Place,
    edge: Edge,
    detach: impl FnOnce(Call<'_>) -> Result<Option<Elided>>,
) -> Result<()> {
    match edge {
        Edge::Elided(why) => elided(door, place, why),
        Edge::Order { from, to, unless_blocking } => {
            let driver = driver.get()?;
            match detach(&|| order(driver, place, from, to, unless_blocking)) {
                Ok(Some(why)) => elided(door, place, why),
                made => {
                    tracing::debug!(
                        target: "cai_bridge", door, device = place.ordinal,
                        producer = from.handle(), consumer = to.handle(),
                        order = if made.is_ok() { "made" } else { "failed" },
                        "the consumer's stream waits for the producer's"
                    );
                    made?;
                }
            }
        }
    }
    Ok(())
}

fn elided(door: &'static str, place: Place, why: Elided) {
    tracing::debug!(
        target: "cai_bridge", door, device = place.ordinal, order = "elided", why = why.as_str(),
        "no wait needed"
    );
}
