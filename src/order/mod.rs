//! Makes one stream wait for another, by an event. [`connect`] logs each wait that it makes or leaves out, as a
//! `tracing` event. Fields whose names begin with `trace.` are only for the pictures of a trace.

mod place;

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tracing::level_filters::LevelFilter;

use self::place::in_context;
pub use self::place::{context_of, within};
use crate::capture::{CaptureStatus, Direction, Route, host_route, route};
use crate::device::{Context, Place};
use crate::driver::codes::INVALID_HANDLE;
use crate::driver::{BlockingCall, Driver, Event, Handle};
use crate::error::{Error, Kind, Result};
use crate::stream::{Alive, Elided, Ready, Stream, Thread, between};

/// The stream `to` must wait for the stream `from`.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    pub direction: Direction,
    pub from: Alive<'a>,
    pub to: Alive<'a>,
}

/// What came of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordered {
    Made,
    /// The wait is part of the graph that a capture makes. Outside the graph, nothing waits.
    InGraph,
    Elided(Elided),
}

impl Ordered {
    /// False if the wait, or the reason for none, holds only during a capture.
    pub const fn is_for_good(self) -> bool {
        !matches!(self, Self::InGraph | Self::Elided(Elided::UnsaidInCapture | Elided::Captured))
    }
}

/// Makes later work on `to` run after the work queued on `from` so far.
pub fn order<D: Driver + ?Sized>(driver: &D, need: Need<'_>) -> Result<Ordered> {
    let Need { from, to, .. } = need;
    within(driver, from.place(), |context| {
        let route = asked(driver, need)?;
        match route {
            Route::Plain | Route::Edge | Route::External => {}
            Route::Pointless if need.direction == Direction::Unsaid => {
                return Ok(Ordered::Elided(Elided::UnsaidInCapture));
            }
            Route::Pointless if from.is(to) => return Ok(Ordered::Elided(Elided::SameStream)),
            Route::Pointless => return Ok(Ordered::Elided(Elided::Captured)),
            Route::Refused(kind) => return Err(refused(kind, from, to)),
        }
        let event = record(driver, context, from)?;
        if from.is(to) {
            // The legacy stream stands in for blocking streams: CUDA orders them with the event
            // (tests/gpu/test_driver_twins.py).
            driver.spare_event(event);
            return Ok(Ordered::Made);
        }
        let external = route == Route::External;
        let wait = || {
            if external { driver.wait_external(to, event) } else { driver.wait_event(to, event) }
        };
        let there = matches!(to.stream(), Stream::Handle(_)) || from.place() == to.place();
        let waited = if there { wait() } else { within(driver, to.place(), |_| wait()) };
        // Each launch of the graph waits for the event's last record, so the event must never be recorded again.
        if !external || waited.is_err() {
            driver.spare_event(event);
        }
        waited.map(|()| if route == Route::Plain { Ordered::Made } else { Ordered::InGraph })
    })
}

#[inline]
fn asked<D: Driver + ?Sized>(driver: &D, need: Need<'_>) -> Result<Route> {
    let Need { direction, from, to, .. } = need;
    let status = status(driver, from.place(), to)?;
    let route = route(direction, status_here(driver, from)?, to.named_here(), status);
    // CUDA orders the producer's legacy stream after all blocking streams, so a refused wait can be left out.
    let follows = direction == Direction::GiveBack && from.is(to) && !to.stands_in();
    Ok(if follows && matches!(route, Route::Refused(_)) { Route::Pointless } else { route })
}

#[inline]
fn status<D: Driver + ?Sized>(
    driver: &D,
    current: Place,
    stream: Alive<'_>,
) -> Result<CaptureStatus> {
    if matches!(stream.stream(), Stream::Handle(_)) || stream.place() == current {
        status_here(driver, stream)
    } else {
        within(driver, stream.place(), |_| status_here(driver, stream))
    }
}

#[inline]
fn status_here<D: Driver + ?Sized>(driver: &D, stream: Alive<'_>) -> Result<CaptureStatus> {
    driver.capture_status(stream).map_err(|error| error.of_stream(stream.stream()))
}

/// Takes an event of the stream's context, and records it on `stream`. `context`, the current one, may be another.
#[inline]
fn record<D: Driver + ?Sized>(driver: &D, context: Context, stream: Alive<'_>) -> Result<Event> {
    let record = |context| {
        let event = driver.take_event(context)?;
        driver
            .record_event(event, stream)
            .map(|()| event)
            .inspect_err(|_| driver.spare_event(event))
    };
    // For a stream of another context the driver returns the same code as for an invalid handle.
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

pub fn status_of(driver: &dyn Driver, stream: Alive<'_>) -> Result<CaptureStatus> {
    within(driver, stream.place(), |_| status_here(driver, stream))
}

#[derive(Debug, Clone, Copy)]
pub struct Uncaptured {
    pub kind: Kind,
    pub got: &'static str,
}

pub fn check_captures(driver: &dyn Driver, streams: &[Alive<'_>], work: Uncaptured) -> Result<()> {
    for stream in streams {
        if status_of(driver, *stream)? != CaptureStatus::Outside {
            return Err(Error::new(work.kind, work.got));
        }
    }
    Ok(())
}

#[derive(Debug)]
pub struct Mark {
    event: Event,
    stream: Stream,
    number: u64,
}

static MADE: AtomicU64 = AtomicU64::new(0);

pub type MarkStream = (Context, u64, Stream);

impl Mark {
    /// The mark's stream and number. Marks that one thread makes on a stream are reached in the order of their numbers.
    pub const fn turn(&self) -> (MarkStream, u64) {
        ((self.event.context, self.event.life, self.stream), self.number)
    }
}

/// Marks the work queued on `stream` so far. Fails if a graph capture forbids the mark.
pub fn mark(driver: &dyn Driver, stream: Alive<'_>) -> Result<Mark> {
    within(driver, stream.place(), |context| {
        if status_here(driver, stream)? != CaptureStatus::Outside {
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

/// Whether the work before `mark` is done. Never waits. After true do not ask again: the event may be reused.
pub fn is_reached(driver: &dyn Driver, mark: &Mark) -> Result<bool> {
    let reached = driver.is_reached(mark.event)?;
    if reached {
        driver.spare_event(mark.event);
    }
    Ok(reached)
}

pub fn forget(driver: &Handle, marks: Vec<Mark>) {
    if let Ok(driver) = driver.get() {
        for mark in marks {
            driver.spare_event(mark.event);
        }
    }
}

/// The place that the maker of `stream` stated; if the stream is on another GPU, that GPU with its primary context.
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

pub fn check_device(driver: &dyn Driver, stream: Alive<'_>) -> Result<()> {
    let (ordinal, expected) = (place_of(driver, stream)?.ordinal, stream.place().ordinal);
    if ordinal == expected {
        return Ok(());
    }
    Err(other_device(stream.stream(), ordinal, stream.place()))
}

#[cold]
pub fn other_device(stream: Stream, ordinal: i32, place: Place) -> Error {
    let got = format!("{stream} of device {ordinal} for an array on device {}", place.ordinal);
    Error::new(Kind::StreamDevice, got)
}

/// Blocks the host until all work queued so far in the context of `place` is done, even on destroyed streams.
pub fn wait_on_host(driver: &dyn Driver, place: Place) -> Result<()> {
    within(driver, place, |_| driver.synchronize_context())
}

/// Blocks the host until the work queued on `streams` so far is done. Waits for none if a capture forbids one wait.
pub fn wait_for(driver: &dyn Driver, streams: &[Alive<'_>]) -> Result<()> {
    for stream in streams {
        if let Route::Refused(kind) = host_route(status_of(driver, *stream)?) {
            return Err(Error::new(kind, format!("a wait for work on {}", stream.stream())));
        }
    }
    let record = |stream: &Alive<'_>| {
        within(driver, stream.place(), |context| record(driver, context, *stream))
    };
    // Record on all streams before the first wait, so that no wait covers work queued during an earlier one.
    let events: SmallVec<[Result<Event>; 2]> = streams.iter().map(record).collect();
    let wait = |event: Result<Event>| {
        let event = event?;
        let waited = driver.wait_until(event);
        driver.spare_event(event);
        waited
    };
    events.into_iter().map(wait).fold(Ok(()), Result::and)
}

#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    pub door: &'static str,
    pub direction: Direction,
}

impl Purpose {
    pub const fn hand_over(door: &'static str) -> Self {
        Self { door, direction: Direction::HandOver }
    }

    pub const fn hand_over_of(door: &'static str, ready: Ready) -> Self {
        let direction =
            if matches!(ready, Ready::Unsaid) { Direction::Unsaid } else { Direction::HandOver };
        Self { door, direction }
    }

    pub const fn give_back(door: &'static str) -> Self {
        Self { door, direction: Direction::GiveBack }
    }
}

/// Makes later work on `to` run after the work queued on `from` so far, unless [`between`] gives a reason for no wait.
/// Logs the wait, or why there is none.
pub fn connect(
    purpose: Purpose,
    driver: &Handle,
    from: Alive<'_>,
    to: Alive<'_>,
    detach: impl FnOnce(BlockingCall<'_>),
) -> Result<Ordered> {
    if let Some(why) = between(from, to) {
        elided(purpose, to.place(), why, || Some(to.stream()));
        return Ok(Ordered::Elided(why));
    }
    let need = Need { direction: purpose.direction, from, to };
    let mut made = Ok(Ordered::Made);
    if let Some(cuda) = driver.cuda() {
        // Pass the concrete type, so that the compiler inlines its calls.
        let cuda = cuda?;
        detach(&mut || made = order(cuda, need));
    } else {
        let driver = driver.get()?;
        detach(&mut || made = order(driver, need));
    }
    match made {
        Ok(Ordered::Elided(why)) => elided(purpose, to.place(), why, || Some(to.stream())),
        _ => report(purpose, from, to, made.is_ok()),
    }
    made
}

/// Makes the waits, or none if a capture forbids one: a wait that joins a stream to a capture cannot be undone. Returns
/// what came of one that does not hold for good, if there is one.
pub fn connect_all(
    purpose: Purpose,
    driver: &Handle,
    edges: &[(Alive<'_>, Alive<'_>)],
    detach: impl Fn(BlockingCall<'_>),
) -> Result<Ordered> {
    let need = |&(from, to): &_| Need { direction: purpose.direction, from, to };
    let needs: SmallVec<[_; 2]> = edges.iter().map(need).collect();
    check(driver, &needs).map_err(|(_, error)| error)?;
    edges.iter().try_fold(Ordered::Made, |before, &(from, to)| {
        let made = connect(purpose, driver, from, to, &detach)?;
        Ok(if before.is_for_good() { made } else { before })
    })
}

/// Fails for the first of `needs` that a graph capture forbids, with its index. A single need is left to [`order`].
pub fn check(driver: &Handle, needs: &[Need<'_>]) -> Result<(), (usize, Error)> {
    if needs.len() < 2 {
        return Ok(());
    }
    let driver = driver.get().map_err(|error| (0, error))?;
    // The capture statuses after the waits so far: a wait for a captured stream captures the waiting stream.
    let mut statuses: SmallVec<[(Alive<'_>, CaptureStatus); 4]> = SmallVec::new();
    let status = |statuses: &[(Alive<'_>, CaptureStatus)], stream: Alive<'_>| {
        let known = statuses.iter().rev().find(|(known, _)| known.is(stream));
        known.map_or_else(|| status_of(driver, stream), |(_, status)| Ok(*status))
    };
    for (place, &Need { direction, from, to }) in needs.iter().enumerate() {
        if between(from, to).is_some() {
            continue;
        }
        let asked = status(&statuses, from).and_then(|from| Ok((from, status(&statuses, to)?)));
        let (source, at) = asked.map_err(|error| (place, error))?;
        match route(direction, source, to.named_here(), at) {
            Route::Refused(kind) => return Err((place, refused(kind, from, to))),
            Route::Edge if at == CaptureStatus::Outside => statuses.push((to, source)),
            _ => {}
        }
    }
    Ok(())
}

#[cold]
pub fn refused(kind: Kind, from: Alive<'_>, to: Alive<'_>) -> Error {
    Error::new(kind, format!("an edge from {} to {}", from.stream(), to.stream()))
}

#[inline]
pub fn report(purpose: Purpose, from: Alive<'_>, to: Alive<'_>, made: bool) {
    if is_told() {
        tell_listener(purpose, from, to, made);
    }
}

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

/// Logs why the stream that `on` returns makes no wait. `on` is called only while debug logging is on.
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
