//! Carries a plan out on a driver: one event, recorded on one stream, waited for on the other.
//!
//! No policy here: [`crate::stream::plan`] and [`crate::capture::route`] have decided. Each decision, made or elided, is a
//! `tracing` event under the target `cai_bridge`; with no subscriber it costs one load. What only a
//! picture of it needs is in fields whose names begin with `trace.`. The host never blocks in
//! [`order`]. Where it has to, [`check_host_wait`] says first whether a capture is in the way.

mod place;

use self::place::in_context;
pub use self::place::{Place, within};
use crate::capture::{Part, Route, Way, route};
use crate::driver::{Context, Driver, Event, Handle};
use crate::error::{Error, Kind, Result};
use crate::stream::{Edge, Elided, Stream, Thread};

/// `CUDA_ERROR_INVALID_HANDLE`, also for an event and a stream of two contexts.
const INVALID_HANDLE: u32 = 400;

/// An edge that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Which end of a hand-over it belongs to.
    pub way: Way,
    /// The stream that an event is recorded on.
    pub from: Stream,
    /// The stream that waits for it.
    pub to: Stream,
    /// As in [`Edge::Order`].
    pub unless_blocking: Option<u64>,
}

/// Work queued on `to` after this call runs after work queued on `from` before it.
///
/// Where `unless_blocking`, the handle of `from`, is a blocking stream of the same context, the legacy
/// default stream `to` follows it already, and the answer is why nothing was done. During a graph
/// capture [`route`] decides; what it refuses is refused before anything is touched.
pub fn order(driver: &dyn Driver, place: Place, need: Need) -> Result<Option<Elided>> {
    let Need { from, to, unless_blocking, .. } = need;
    within(driver, place, |context| {
        let external = match asked(driver, need)? {
            Route::Plain => false,
            Route::External => true,
            Route::Pointless => return Ok(Some(Elided::Captured)),
            Route::Refused(kind) => {
                let got = format!("an edge from {from} to {to}");
                return Err(Error::new(kind, got));
            }
        };
        if let Some(handle) = unless_blocking
            && driver.is_blocking(handle)?
            && driver.stream_context(handle)? == context
        {
            return Ok(Some(Elided::LegacyOrder));
        }
        // For the legacy stream on itself: no other stream follows all that is ready there.
        let event = match (record(driver, context, from, external), from) {
            // An event is recorded in the context of its stream, which for managed, pinned and peer
            // memory need not be the memory's; waiting for it is legal in any.
            (Err(error), Stream::Handle(handle))
                if error.driver_code().is_some_and(|failed| failed.code == INVALID_HANDLE) =>
            {
                let theirs = driver.stream_context(handle)?;
                if theirs == context {
                    return Err(error);
                }
                in_context(driver, theirs, || record(driver, theirs, from, external))?
            }
            (recorded, _) => recorded?,
        };
        if external { driver.wait_external(to, event) } else { driver.wait_event(to, event) }?;
        Ok(None)
    })
}

/// How the edge is made, by what the driver says of both streams' captures. `from` is asked only where
/// its answer matters: work that is captured may fork to whatever stream it is handed to.
fn asked(driver: &dyn Driver, need: Need) -> Result<Route> {
    let Need { way, from, to, .. } = need;
    let part = driver.part(to)?;
    let forks = way == Way::HandOver && part == Part::Outside && to != Stream::Legacy;
    if forks && from != Stream::Legacy {
        return Ok(Route::Plain);
    }
    Ok(route(way, driver.part(from)?, to, part))
}

/// Records `stream` in an event: the thread's, or where a graph will keep it one that is never used
/// again.
fn record(driver: &dyn Driver, context: Context, stream: Stream, external: bool) -> Result<Event> {
    let event = if external { driver.own_event(context)? } else { driver.thread_event(context)? };
    driver.record_event(event, stream)?;
    Ok(event)
}

/// The same between streams whose places are of two devices. `from` is one that this thread can name,
/// and neither is being captured: see [`check_captures`].
pub fn across(
    door: Door,
    driver: &dyn Driver,
    (from_place, from): (Place, Stream),
    (to_place, to): (Place, Stream),
) -> Result<()> {
    let context = match from {
        Stream::Handle(handle) => driver.stream_context(handle)?,
        _ => from_place.context(driver)?,
    };
    let event = in_context(driver, context, || record(driver, context, from, false))?;
    let made = within(driver, to_place, |_| driver.wait_event(to, event));
    tell(door, (from_place, from), (to_place, to), made.is_ok());
    made
}

/// Refuses, by an error of `kind` about `got`, what cannot be done while one of `streams` has part in a
/// capture, or is beside one.
pub fn check_captures(
    driver: &dyn Driver,
    place: Place,
    streams: &[Stream],
    (kind, got): (Kind, &str),
) -> Result<()> {
    within(driver, place, |_| {
        for stream in streams {
            if driver.part(*stream)? != Part::Outside {
                return Err(Error::new(kind, got));
            }
        }
        Ok(())
    })
}

/// An event of nobody else's, recorded on `stream`: it is reached once all that is queued there now is
/// done. [`is_done`] gives it back. Refused while `stream` has part in a capture, which the record
/// would spoil, or which would never be reached.
pub fn mark(driver: &dyn Driver, place: Place, stream: Stream) -> Result<Mark> {
    within(driver, place, |context| {
        if driver.part(stream)? != Part::Outside {
            return Err(Error::new(Kind::CaptureLegacy, format!("an event on {stream}")));
        }
        let event = driver.own_event(context)?;
        match driver.record_event(event, stream) {
            Ok(()) => Ok(Mark { context, event }),
            Err(error) => {
                driver.spare_event(context, event);
                Err(error)
            }
        }
    })
}

/// A point of a stream.
#[derive(Debug)]
pub struct Mark {
    context: Context,
    event: Event,
}

/// Whether `mark` is reached. Never waits, and is legal during any capture.
pub fn is_done(driver: &dyn Driver, mark: &Mark) -> Result<bool> {
    let done = driver.is_reached(mark.event)?;
    if done {
        driver.spare_event(mark.context, mark.event);
    }
    Ok(done)
}

/// Refuses a stream of another device than that of `place`. The handle is of a live stream.
pub fn check_device(driver: &dyn Driver, place: Place, stream: Stream) -> Result<()> {
    let Stream::Handle(handle) = stream else { return Ok(()) };
    let theirs = driver.stream_context(handle)?;
    if theirs == place.context(driver)? {
        return Ok(());
    }
    let ordinal = in_context(driver, theirs, || driver.current_ordinal())?;
    if ordinal == place.ordinal {
        return Ok(());
    }
    let got = format!("{stream} of device {ordinal} for an array on device {}", place.ordinal);
    Err(Error::new(Kind::StreamDevice, got))
}

/// Refuses, as [`check_captures`] does, a wait of the host for work of the context of `place`, which
/// would end a capture of any stream there: of those that can be named, the legacy and the thread's own
/// default stream and the `known` ones.
pub fn check_host_wait(
    driver: &dyn Driver,
    place: Place,
    known: &[Stream],
    why: (Kind, &str),
) -> Result<()> {
    let own = [Stream::Legacy, Stream::PerThread(Thread::current())];
    check_captures(driver, place, &[&own, known].concat(), why)
}

/// The host waits for all work of the context of `place`. [`check_host_wait`] is the caller's to ask.
pub fn wait_on_host(driver: &dyn Driver, place: Place) -> Result<()> {
    within(driver, place, |_| driver.synchronize_context())
}

/// What [`carry_out`] may call without whatever lock its caller must not hold meanwhile.
pub type Call<'a> = &'a (dyn Fn() -> Result<Option<Elided>> + Sync);

/// On whose behalf an edge is made, for its event.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    /// The call.
    pub name: &'static str,
    /// Which end of a hand-over it is.
    pub way: Way,
}

impl Door {
    /// A call that hands memory over.
    pub const fn handing_over(name: &'static str) -> Self {
        Self { name, way: Way::HandOver }
    }

    /// A call, or an end, that gives memory back.
    pub const fn giving_back(name: &'static str) -> Self {
        Self { name, way: Way::GiveBack }
    }
}

/// Carries `edge` out and says so; of one that is not made `on` says which stream it would concern, and
/// is asked only where somebody listens. `detach` runs what may block, with whatever lock the caller must
/// not hold meanwhile given up.
pub fn carry_out(
    door: Door,
    driver: &Handle,
    place: Place,
    edge: Edge,
    on: impl FnOnce() -> Option<Stream>,
    detach: impl FnOnce(Call<'_>) -> Result<Option<Elided>>,
) -> Result<()> {
    match edge {
        Edge::Elided(why) => elided(door, place, why, on),
        Edge::Order { from, to, unless_blocking } => {
            let driver = driver.get()?;
            let need = Need { way: door.way, from, to, unless_blocking };
            match detach(&|| order(driver, place, need)) {
                Ok(Some(why)) => elided(door, place, why, || Some(to)),
                made => {
                    tell(door, (place, from), (place, to), made.is_ok());
                    made?;
                }
            }
        }
    }
    Ok(())
}

fn tell(door: Door, from: (Place, Stream), (place, to): (Place, Stream), made: bool) {
    let order = if made { "made" } else { "failed" };
    let (recorded, from, to) = (from.0.ordinal, from.1.handle(), to.handle());
    match door.way {
        Way::HandOver => tracing::debug!(
            name: "hand over", target: "cai_bridge", door = door.name, device = place.ordinal,
            producer = from, consumer = to, order, trace.recorded_on = recorded,
            "the consumer's stream waits for the producer's"
        ),
        Way::GiveBack => tracing::debug!(
            name: "give back", target: "cai_bridge", door = door.name, device = place.ordinal,
            consumer = from, producer = to, order, trace.recorded_on = recorded,
            "the producer's stream waits for the consumer's"
        ),
    }
}

fn elided(door: Door, place: Place, why: Elided, on: impl FnOnce() -> Option<Stream>) {
    tracing::debug!(
        name: "elided", target: "cai_bridge", door = door.name, device = place.ordinal,
        order = "elided", why = why.as_str(),
        trace.stream = on().map(|on| on.seen_from(Thread::current()).handle()),
        "no wait needed"
    );
}
