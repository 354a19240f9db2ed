//! Carries a plan out on a driver: one event, recorded on one stream, waited for on the other.
//!
//! No policy here: [`crate::stream::plan`] and [`crate::capture::route`] have decided. Each decision, made
//! or elided, is a `tracing` event under the target `cai_bridge`; with no subscriber it costs one load. What
//! only a picture of it needs is in fields whose names begin with `trace.`. The host never blocks in
//! [`order`], and in [`wait_on_host`] it does, beside whatever capture.

mod place;

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tracing::level_filters::LevelFilter;

use self::place::in_context;
pub use self::place::{context_of, within};
use crate::capture::{Direction, Part, Route, host_route, route};
use crate::device::{Context, Place};
use crate::driver::codes::INVALID_HANDLE;
use crate::driver::{Call, Driver, Event, Handle};
use crate::error::{Error, Kind, Result};
use crate::stream::{Alive, Elided, Ready, Stream, Thread, between};

/// An edge that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    /// Whether it belongs to the hand-over or to the end.
    pub direction: Direction,
    /// The stream that an event is recorded on.
    pub from: Alive<'a>,
    /// The stream that waits for it.
    pub to: Alive<'a>,
}

/// Work queued on `to` after this call runs after work queued on `from` before it.
///
/// During a graph capture [`route`] decides; what it refuses is refused before anything is touched. Answers why
/// nothing had to be done, where that is so.
pub fn order<D: Driver + ?Sized>(driver: &D, need: Need<'_>) -> Result<Option<Elided>> {
    let Need { from, to, .. } = need;
    within(driver, from.place(), |context| {
        let external = match asked(driver, need)? {
            Route::Plain => false,
            Route::External => true,
            Route::Pointless if need.direction == Direction::Unsaid => {
                return Ok(Some(Elided::UnsaidInCapture));
            }
            Route::Pointless => return Ok(Some(Elided::Captured)),
            Route::Refused(kind) => return Err(refused(kind, from, to)),
        };
        let event = record(driver, context, from)?;
        if from.is(to) {
            // The legacy stream stands in for two others: the record comes after the work of the one, and what the
            // other does next comes after the record (tests/gpu/test_driver_twins.py).
            driver.spare_event(event);
            return Ok(None);
        }
        let wait = || {
            if external { driver.wait_external(to, event) } else { driver.wait_event(to, event) }
        };
        let there = matches!(to.stream(), Stream::Handle(_)) || from.place() == to.place();
        let waited = if there { wait() } else { within(driver, to.place(), |_| wait()) };
        // A graph that waits for it keeps it, and it is never used again.
        if !external || waited.is_err() {
            driver.spare_event(event);
        }
        waited.map(|()| None)
    })
}

/// How the edge is made, by what the driver says of both streams' captures. `from` is asked only where
/// its answer matters: work that is captured may fork to whatever stream it is handed to.
#[inline]
fn asked<D: Driver + ?Sized>(driver: &D, need: Need<'_>) -> Result<Route> {
    let Need { direction, from, to, .. } = need;
    let part = part(driver, from.place(), to)?;
    let forks =
        direction == Direction::HandOver && part == Part::Outside && to.stream() != Stream::Legacy;
    if forks && from.stream() != Stream::Legacy {
        return Ok(Route::Plain);
    }
    let route = route(direction, part_here(driver, from)?, to.named_here(), part);
    // A producer on the legacy stream itself follows blocking streams by its own work, which is all that can be had
    // beside a capture of one.
    let follows = direction == Direction::GiveBack && from.is(to) && !to.stands_in();
    Ok(if follows && matches!(route, Route::Refused(_)) { Route::Pointless } else { route })
}

/// The part of `stream` in a capture, asked with the context of `current` current.
#[inline]
fn part<D: Driver + ?Sized>(driver: &D, current: Place, stream: Alive<'_>) -> Result<Part> {
    if matches!(stream.stream(), Stream::Handle(_)) || stream.place() == current {
        part_here(driver, stream)
    } else {
        within(driver, stream.place(), |_| part_here(driver, stream))
    }
}

/// The same with the stream's own context current. It is the first that a driver is asked of a stream: one that is not
/// there is refused by its name.
#[inline]
fn part_here<D: Driver + ?Sized>(driver: &D, stream: Alive<'_>) -> Result<Part> {
    driver.part(stream).map_err(|error| error.of_stream(stream.stream()))
}

/// Records `stream` in an event of its own.
///
/// An event is recorded in the context of its stream, which for managed, pinned and peer memory need not be
/// the one that is current; to wait for it is legal in any.
#[inline]
fn record<D: Driver + ?Sized>(driver: &D, context: Context, stream: Alive<'_>) -> Result<Event> {
    let record = |context| {
        let event = driver.take_event(context)?;
        driver
            .record_event(event, stream)
            .map(|()| event)
            .inspect_err(|_| driver.spare_event(event))
    };
    // An event and a stream of two contexts are no invalid handle, but the code is the same.
    let refused = match (record(context), stream.stream()) {
        (Err(error), Stream::Handle(_))
            if error.driver_code().is_some_and(|failed| failed.code == INVALID_HANDLE) =>
        {
            error
        }
        (recorded, _) => return recorded,
    };
    let theirs = driver.stream_context(stream).map_err(|error| error.of_stream(stream.stream()))?;
    if theirs == context {
        return Err(refused);
    }
    in_context(driver, theirs, || record(theirs))
}

/// The part of `stream` in a capture, with its context made current.
pub fn part_of(driver: &dyn Driver, stream: Alive<'_>) -> Result<Part> {
    within(driver, stream.place(), |_| part_here(driver, stream))
}

/// Refuses, by an error of `kind` about `got`, what cannot be done while one of `streams` has part in a
/// capture, or is beside one.
pub fn check_captures(
    driver: &dyn Driver,
    streams: &[Alive<'_>],
    (kind, got): (Kind, &str),
) -> Result<()> {
    for stream in streams {
        if part_of(driver, *stream)? != Part::Outside {
            return Err(Error::new(kind, got));
        }
    }
    Ok(())
}

/// A point of a stream: it is reached once all that was queued there is done.
#[derive(Debug)]
pub struct Mark {
    event: Event,
    stream: Stream,
    number: u64,
}

/// How many marks were made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The stream of a mark, and its context.
pub type Lane = (Context, u64, Stream);

impl Mark {
    /// On which stream it is, and a number: of the marks of one stream none is reached before one that was made before
    /// it, which has a smaller number.
    pub const fn turn(&self) -> (Lane, u64) {
        ((self.event.context, self.event.life, self.stream), self.number)
    }
}

/// The point of `stream` where the work that is queued now ends. [`is_reached`] gives its event back.
/// Refused while `stream` has part in a capture, which the record would spoil, or which would never be
/// reached.
pub fn mark(driver: &dyn Driver, stream: Alive<'_>) -> Result<Mark> {
    within(driver, stream.place(), |context| {
        if part_here(driver, stream)? != Part::Outside {
            return Err(Error::new(
                Kind::CaptureLegacy,
                format!("an event on {}", stream.stream()),
            ));
        }
        let event = record(driver, context, stream)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Mark { event, stream: stream.stream(), number })
    })
}

/// Whether `mark` is reached. Never waits, and is legal during any capture.
pub fn is_reached(driver: &dyn Driver, mark: &Mark) -> Result<bool> {
    let reached = driver.is_reached(mark.event)?;
    if reached {
        driver.spare_event(mark.event);
    }
    Ok(reached)
}

/// Drops marks that are not needed any more.
pub fn forget(driver: &Handle, marks: Vec<Mark>) {
    if let Ok(driver) = driver.get() {
        for mark in marks {
            driver.spare_event(mark.event);
        }
    }
}

/// Where `stream` is: its place, or the GPU that the driver knows for a handle.
pub fn place_of(driver: &dyn Driver, stream: Alive<'_>) -> Result<Place> {
    let place = stream.place();
    let Stream::Handle(_) = stream.stream() else { return Ok(place) };
    let theirs = driver.stream_context(stream).map_err(|error| error.of_stream(stream.stream()))?;
    if theirs == context_of(driver, place)? {
        return Ok(place);
    }
    let ordinal = in_context(driver, theirs, || driver.current_ordinal())?;
    Ok(if ordinal == place.ordinal { place } else { Place::gpu(ordinal) })
}

/// Refuses a stream of another device than that of its place.
pub fn check_device(driver: &dyn Driver, stream: Alive<'_>) -> Result<()> {
    let (ordinal, expected) = (place_of(driver, stream)?.ordinal, stream.place().ordinal);
    if ordinal == expected {
        return Ok(());
    }
    Err(other_device(stream.stream(), ordinal, stream.place()))
}

/// Refuses `stream`, of the device `ordinal`, for an array at `place`.
#[cold]
pub fn other_device(stream: Stream, ordinal: i32, place: Place) -> Error {
    let got = format!("{stream} of device {ordinal} for an array on device {}", place.ordinal);
    Error::new(Kind::StreamDevice, got)
}

/// The host waits for all work that is queued in the context of `place`, on streams that are destroyed as well.
/// No capture is harmed, and what is captured is not waited for.
pub fn wait_on_host(driver: &dyn Driver, place: Place) -> Result<()> {
    within(driver, place, |_| driver.synchronize_context())
}

/// The host waits for the work that is queued on `streams` by now, and for no other. [`host_route`] decides; what it
/// refuses of one stream is refused before any is touched. Blocks.
pub fn wait_for(driver: &dyn Driver, streams: &[Alive<'_>]) -> Result<()> {
    for stream in streams {
        if let Route::Refused(kind) = host_route(part_of(driver, *stream)?) {
            return Err(Error::new(kind, format!("a wait for work on {}", stream.stream())));
        }
    }
    let record = |stream: &Alive<'_>| {
        within(driver, stream.place(), |context| record(driver, context, *stream))
    };
    // All are recorded first: what is queued on the last of them during the first wait is not waited for.
    let events: SmallVec<[Result<Event>; 2]> = streams.iter().map(record).collect();
    let wait = |event: Result<Event>| {
        let event = event?;
        let waited = driver.wait_until(event);
        driver.spare_event(event);
        waited
    };
    events.into_iter().map(wait).fold(Ok(()), Result::and)
}

/// On whose behalf an edge is made, for its event.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    /// The call.
    pub door: &'static str,
    /// Whether it is the hand-over or the end.
    pub direction: Direction,
}

impl Purpose {
    /// A call that hands memory over.
    pub const fn hand_over(door: &'static str) -> Self {
        Self { door, direction: Direction::HandOver }
    }

    /// The same for memory that is `ready`.
    pub const fn hand_over_of(door: &'static str, ready: Ready) -> Self {
        let direction =
            if matches!(ready, Ready::Unsaid) { Direction::Unsaid } else { Direction::HandOver };
        Self { door, direction }
    }

    /// A call, or an end, that gives memory back.
    pub const fn give_back(door: &'static str) -> Self {
        Self { door, direction: Direction::GiveBack }
    }
}

/// Makes work queued on `to` come after work queued on `from`, and says so. `detach` runs what may block.
pub fn connect(
    purpose: Purpose,
    driver: &Handle,
    (from, to): (Alive<'_>, Alive<'_>),
    detach: impl FnOnce(Call<'_>),
) -> Result<()> {
    if let Some(why) = between(from, to) {
        elided(purpose, to.place(), why, || Some(to.stream()));
        return Ok(());
    }
    let need = Need { direction: purpose.direction, from, to };
    let mut made = Ok(None);
    if let Some(cuda) = driver.cuda() {
        // By its own type: each of its calls is in line.
        let cuda = cuda?;
        detach(&mut || made = order(cuda, need));
    } else {
        let driver = driver.get()?;
        detach(&mut || made = order(driver, need));
    }
    match made {
        Ok(Some(why)) => elided(purpose, to.place(), why, || Some(to.stream())),
        _ => report(purpose, from, to, made.is_ok()),
    }
    made.map(drop)
}

/// The same of several edges, all of which are asked first: one that is made may join a stream to a capture, where it
/// would be left if the next were refused.
pub fn connect_all(
    purpose: Purpose,
    driver: &Handle,
    edges: &[(Alive<'_>, Alive<'_>)],
    detach: impl Fn(Call<'_>),
) -> Result<()> {
    let need = |&(from, to): &_| Need { direction: purpose.direction, from, to };
    let needs: SmallVec<[_; 2]> = edges.iter().map(need).collect();
    check(driver, &needs).map_err(|(_, error)| error)?;
    edges.iter().try_for_each(|edge| connect(purpose, driver, *edge, &detach))
}

/// Refuses what a capture makes [`order`] refuse of `needs`, made one after the other, before any is made. The error
/// comes with its place.
pub fn check(driver: &Handle, needs: &[Need<'_>]) -> Result<(), (usize, Error)> {
    if needs.len() < 2 {
        return Ok(());
    }
    let driver = driver.get().map_err(|error| (0, error))?;
    // What becomes of each stream on the way.
    let mut parts: SmallVec<[(Alive<'_>, Part); 4]> = SmallVec::new();
    let part = |parts: &[(Alive<'_>, Part)], stream: Alive<'_>| {
        let known = parts.iter().rev().find(|(known, _)| known.is(stream));
        known.map_or_else(|| part_of(driver, stream), |(_, part)| Ok(*part))
    };
    for (place, &Need { direction, from, to }) in needs.iter().enumerate() {
        if between(from, to).is_some() {
            continue;
        }
        let asked = part(&parts, from).and_then(|from| Ok((from, part(&parts, to)?)));
        let (source, at) = asked.map_err(|error| (place, error))?;
        match route(direction, source, to.named_here(), at) {
            Route::Refused(kind) => return Err((place, refused(kind, from, to))),
            Route::Plain if at == Part::Outside => parts.push((to, source)),
            _ => {}
        }
    }
    Ok(())
}

/// The error of an edge that a capture forbids.
#[cold]
pub fn refused(kind: Kind, from: Alive<'_>, to: Alive<'_>) -> Error {
    Error::new(kind, format!("an edge from {} to {}", from.stream(), to.stream()))
}

/// Says what came of an edge.
#[inline]
pub fn report(purpose: Purpose, from: Alive<'_>, to: Alive<'_>, made: bool) {
    if is_told() {
        tell_listener(purpose, from, to, made);
    }
}

/// Whether there may be a listener: asked in line, with all that tells out of the way.
#[inline(always)]
fn is_told() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

#[cold]
fn tell_listener(purpose: Purpose, from: Alive<'_>, to: Alive<'_>, made: bool) {
    let order = if made { "made" } else { "failed" };
    let (recorded, device) = (from.place().ordinal, to.place().ordinal);
    let (from, to) = (from.native(), to.native());
    match purpose.direction {
        Direction::HandOver | Direction::Unsaid => tracing::debug!(
            name: "hand over", target: "cai_bridge", door = purpose.door, device,
            producer = from, consumer = to, order, trace.recorded_on = recorded,
            "the consumer's stream waits for the producer's"
        ),
        Direction::GiveBack => tracing::debug!(
            name: "give back", target: "cai_bridge", door = purpose.door, device,
            consumer = from, producer = to, order, trace.recorded_on = recorded,
            "the producer's stream waits for the consumer's"
        ),
    }
}

/// Says why an edge of `door` is not made; `on` says which stream it would concern, and is asked only
/// where there is a listener.
#[inline(always)]
pub fn elided(purpose: Purpose, place: Place, why: Elided, on: impl FnOnce() -> Option<Stream>) {
    if is_told() {
        tell_elided(purpose, place, why, on());
    }
}

#[cold]
fn tell_elided(purpose: Purpose, place: Place, why: Elided, on: Option<Stream>) {
    tracing::debug!(
        name: "elided", target: "cai_bridge", door = purpose.door, device = place.ordinal,
        order = "elided", why = why.as_str(),
        trace.stream = on.map(|on| on.seen_from(Thread::current()).handle()),
        "no wait needed"
    );
}
