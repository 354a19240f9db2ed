//! The hand-over: the consumer's stream waits for the stream that the imported array is ready on. For
//! [`Request::Unspecified`], the bridge tells the consumer the stream that the array is ready on instead.

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::interpreter::detach;
use super::item_error::{ItemError, about};
use super::lease::{Captured, HeldMemory, look};
use super::source::{Both, check_argument, connect_both, consumers_place, ready_streams};
use super::streams::StreamArgument;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::error::Result;
use crate::lease::Failure;
use crate::order::{self, Need, Ordered, Purpose};
use crate::stream::{Alive, Elided, Ready, Request, Stream, plan};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient<'a, 'py> {
    pub(crate) argument: &'a StreamArgument<'a, 'py>,
    /// The array that a view exports; `None` if the consumer gets the imported array itself.
    pub(crate) array: Option<&'a Descriptor>,
    /// The stream on which the array is ready; `None` if the hand-over must find that stream.
    pub(crate) ready_on: Option<Alive<'a>>,
    /// For an array imported by DLPack: the stream that the array's CAI dict names. For a capsule of the bridge that was
    /// made for a stream which nothing keeps: the producer's stream.
    pub(crate) dict_stream: Option<Alive<'a>>,
}

impl<'a, 'py> Recipient<'a, 'py> {
    #[inline]
    pub(crate) const fn of(argument: &'a StreamArgument<'a, 'py>) -> Self {
        Self { argument, array: None, ready_on: None, dict_stream: None }
    }
}

#[inline]
pub(crate) fn hand_over<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    source: &mut HeldMemory,
    to: &Recipient<'a, 'py>,
) -> PyResult<()> {
    source.join_calls(py, to.array);
    if stays(door, py, source, to, Elided::SameStream)? {
        return Ok(());
    }
    hand_over_by_order(door, py, source, to)
}

#[inline(never)]
fn hand_over_by_order<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    source: &mut HeldMemory,
    to: &Recipient<'a, 'py>,
) -> PyResult<()> {
    let step = decide(door, py, source, to)?;
    let made = step.order(door, py, source)?;
    let at = step.at;
    finish(py, source, to, at, made)
}

/// `consumer` must return the same stream for all consumers on one GPU; this is not checked.
pub(crate) fn hand_over_all<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    sources: &mut [Box<HeldMemory>],
    consumer: impl Fn(usize) -> Recipient<'a, 'py>,
) -> Result<(), ItemError> {
    look(py);
    let (mut moved, mut last) = (SmallVec::<[_; 4]>::new(), None);
    for (item, source) in sources.iter_mut().enumerate() {
        let to = consumer(item);
        source.join_calls(py, to.array);
        let now = Some((source.ready, source.producer_side.place));
        let why = if last == now { Elided::Together } else { Elided::SameStream };
        if stays(door, py, source, &to, why).map_err(about(item))? {
            last = now;
        } else {
            moved.push(item);
        }
    }
    for (item, at, made) in order_all(door, py, sources, &moved, &consumer)? {
        finish(py, &mut sources[item], &consumer(item), at, made).map_err(about(item))?;
    }
    Ok(())
}

/// An item that was ordered, and where its consumer works.
type Handed = (usize, Place, Ordered);

/// Makes no order before it has asked the last producer: a producer may queue work when asked.
fn order_all<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    sources: &[Box<HeldMemory>],
    moved: &[usize],
    consumer: &impl Fn(usize) -> Recipient<'a, 'py>,
) -> Result<SmallVec<[Handed; 4]>, ItemError> {
    let mut steps: SmallVec<[_; 4]> = moved.iter().map(|_| None).collect();
    // Decide last about arrays whose stream object may be closed: asking another producer can run Python code, which
    // might close such a stream.
    for closes in [false, true] {
        for (step, &item) in steps.iter_mut().zip(moved) {
            let source = &*sources[item];
            if source.producer_side.may_close(source.ready) == closes {
                let decided = decide(door, py, source, &consumer(item)).map_err(about(item))?;
                *step = Some((item, decided));
            }
        }
    }
    let steps: SmallVec<[_; 4]> = steps.into_iter().flatten().collect();
    check(door, sources, &steps)?;
    let mut ordered = SmallVec::<[(Pair, Ordered); 4]>::new();
    let mut all = SmallVec::new();
    for (item, step) in &steps {
        let source = &*sources[*item];
        let pair = step.pair(source.ready);
        let same = ordered.iter().find(|(other, _)| Some(*other) == pair);
        if let Some((_, made)) = same {
            let purpose = Purpose::hand_over(door);
            order::elided(purpose, source.producer_side.place, Elided::Together, || step.named);
            all.push((*item, step.at, *made));
            continue;
        }
        let made = step.order(door, py, source).map_err(|error| about(*item)(error.into()))?;
        all.push((*item, step.at, made));
        ordered.extend(pair.map(|pair| (pair, made)));
    }
    Ok(all)
}

pub(crate) fn order_for(
    door: &'static str,
    py: Python<'_>,
    source: &HeldMemory,
    to: Alive<'_>,
) -> Result<Ordered, Failure<PyErr>> {
    look(py);
    let (ready, purpose) = (source.ready, Purpose::hand_over_of(door, source.ready));
    match ready_streams(py, door, source)? {
        Some(both) => return Ok(connect_both(py, purpose, &source.driver, both, to)?),
        None if ready == Ready::Nothing => {
            let on = || Some(to.stream());
            order::elided(purpose, source.producer_side.place, Elided::NothingPending, on);
        }
        None => {}
    }
    Ok(Ordered::Made)
}

/// Returns true after a hand-over without a wait of the consumer's stream. If false, nothing was done.
#[inline(always)]
fn stays(
    door: &'static str,
    py: Python<'_>,
    source: &mut HeldMemory,
    to: &Recipient<'_, '_>,
    in_place: Elided,
) -> PyResult<bool> {
    let (ready, place) = (source.ready, source.producer_side.place);
    let array = to.array.unwrap_or(&source.array);
    if to.argument.request() == Request::Unspecified {
        if let Some(dict_stream) = to.dict_stream {
            follow(door, py, source, to.ready_on, dict_stream)?;
        }
        let why = plan(ready, Request::Unspecified).unwrap_or(Elided::NothingPending);
        order::elided(Purpose::hand_over(door), place, why, || ready.stream());
        if array.ptr() != 0 && !source.has_consumer() {
            let at = consumers_place(array, place);
            source.set_unread(py, at);
        }
        return Ok(true);
    }
    let at = consumers_place(array, place);
    let stays = to.dict_stream.is_none() && source.stays_in_place(to.argument, at);
    if stays {
        order::elided(Purpose::hand_over(door), place, in_place, || ready.stream());
        source.keep_in_place(py);
    }
    Ok(stays)
}

/// Makes the stream that the consumer is told, `ready_on` or the legacy default stream, wait for `dict_stream`, unless
/// both are one stream.
#[cold]
fn follow(
    door: &'static str,
    py: Python<'_>,
    source: &HeldMemory,
    ready_on: Option<Alive<'_>>,
    dict_stream: Alive<'_>,
) -> Result<()> {
    if ready_on.is_some_and(|ready_on| ready_on.is(dict_stream)) {
        return Ok(());
    }
    let told = ready_on.filter(|ready_on| source.ready == Ready::On(ready_on.stream()));
    let told = told.unwrap_or(Alive::legacy(source.producer_side.place));
    if dict_stream.is(told) {
        return Ok(());
    }
    let purpose = Purpose::hand_over(door);
    order::connect(purpose, &source.driver, dict_stream, told, |call| detach(py, call))?;
    Ok(())
}

#[inline(always)]
fn finish(
    py: Python<'_>,
    source: &mut HeldMemory,
    to: &Recipient<'_, '_>,
    at: Place,
    made: Ordered,
) -> PyResult<()> {
    if !made.is_for_good() {
        return finish_in_capture(py, source, to, at, made);
    }
    record(py, source, to, at)
}

/// For a wait, or a reason for none, that holds only during a capture.
#[cold]
fn finish_in_capture(
    py: Python<'_>,
    source: &mut HeldMemory,
    to: &Recipient<'_, '_>,
    at: Place,
    made: Ordered,
) -> PyResult<()> {
    let captured = Captured::of(&source.driver, to.argument.alive(at), made)?;
    let mut waited_for = SmallVec::<[_; 2]>::new();
    if to.array.is_none() {
        waited_for.extend(source.waited_for(py));
        waited_for.extend(to.dict_stream.and_then(|_| source.producer_side.producer(py)));
    }
    record(py, source, to, at)?;
    source.captured(captured, waited_for);
    Ok(())
}

#[inline(always)]
fn record(
    py: Python<'_>,
    source: &mut HeldMemory,
    to: &Recipient<'_, '_>,
    at: Place,
) -> PyResult<()> {
    if to.array.unwrap_or(&source.array).ptr() != 0 {
        source.set_consumer(py, to.argument, at)?;
    }
    if to.array.is_none() {
        source.ready = Ready::Nothing;
        if let Request::On(stream) = to.argument.request() {
            source.ready_for_consumer(py);
            source.ready = Ready::On(stream);
        }
    }
    Ok(())
}

struct Step<'h> {
    at: Place,
    named: Option<Stream>,
    order: Order<'h>,
}

enum Order<'h> {
    /// The consumer's stream (the second value) waits for the streams of the first value.
    Wait(Both<'h>, Alive<'h>),
    Elided(Elided),
    Over,
}

/// Arrays with equal pairs share one wait.
type Pair = (Source, Option<Source>, Place, bool);
type Source = (Stream, bool, Place);

/// Makes no stream wait, but the host may wait in [`ready_streams`].
#[inline(always)]
fn decide<'h, 'py: 'h>(
    door: &'static str,
    py: Python<'py>,
    source: &'h HeldMemory,
    to: &Recipient<'h, 'py>,
) -> PyResult<Step<'h>> {
    let array = to.array.unwrap_or(&source.array);
    let at = consumers_place(array, source.producer_side.place);
    let at = check_argument(array, &source.driver, to.argument, at)?;
    let request = to.argument.request();
    let order = match (plan(source.ready, request), to.argument.alive(at)) {
        (Some(why), _) => Order::Elided(why),
        (None, None) => Order::Elided(Elided::NothingPending),
        (None, Some(stream)) => {
            if let Some(first) = to.ready_on {
                let is_another = |also: &Alive<'_>| !also.is(first) && !also.is(stream);
                Order::Wait((first, to.dict_stream.filter(is_another)), stream)
            } else {
                let found = ready_streams(py, door, source)?;
                found.map_or(Order::Over, |both| Order::Wait(both, stream))
            }
        }
    };
    Ok(Step { at, named: request.stream(), order })
}

/// Fails if a graph capture forbids one of the waits in `steps`.
fn check(
    door: &'static str,
    sources: &[Box<HeldMemory>],
    steps: &[(usize, Step<'_>)],
) -> Result<(), ItemError> {
    let Some(first) = sources.first() else { return Ok(()) };
    let (mut items, mut needs): (SmallVec<[_; 4]>, SmallVec<[_; 4]>) = Default::default();
    for (item, step) in steps {
        let Order::Wait((from, also), to) = step.order else { continue };
        let direction = Purpose::hand_over_of(door, sources[*item].ready).direction;
        for from in also.into_iter().chain([from]) {
            if !needs.iter().any(|need: &Need<'_>| from.is(need.from) && to.is(need.to)) {
                items.push(*item);
                needs.push(Need { direction, from, to });
            }
        }
    }
    order::check(&first.driver, &needs).map_err(|(place, error)| about(items[place])(error.into()))
}

impl Step<'_> {
    fn pair(&self, ready: Ready) -> Option<Pair> {
        let source_of = |from: Alive<'_>| (from.stream(), from.stands_in(), from.place());
        match self.order {
            Order::Wait((from, also), _) => {
                Some((source_of(from), also.map(source_of), self.at, ready != Ready::Unsaid))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn order(&self, door: &'static str, py: Python<'_>, source: &HeldMemory) -> Result<Ordered> {
        let (ready, place) = (source.ready, source.producer_side.place);
        let purpose = Purpose::hand_over_of(door, ready);
        match self.order {
            Order::Over => Ok(Ordered::Made),
            Order::Elided(why) => {
                order::elided(purpose, place, why, || self.named.or(ready.stream()));
                Ok(Ordered::Elided(why))
            }
            Order::Wait(both, to) => connect_both(py, purpose, &source.driver, both, to),
        }
    }
}
