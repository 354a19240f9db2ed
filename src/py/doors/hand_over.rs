//! Arrays whose readiness is known, for their consumers: one, or several at once.

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::device::Place;
use crate::order::{self, Need, Purpose};
use crate::py::lease::{Holding, look};
use crate::py::source::{
    Both, check_argument, consumers_place, hand_over_from, handed_over, pass_on, ready_streams,
};
use crate::py::streams::Argument;
use crate::stream::{Alive, Elided, Ready, Request, Stream, plan};

/// An array whose readiness is known: the order for the consumer, and what its dict then says.
#[inline]
pub(super) fn export(
    door: &'static str,
    py: Python<'_>,
    source: &mut Holding,
    argument: &Argument<'_, '_>,
) -> PyResult<()> {
    if argument.request() == Request::Unspecified {
        pass_on(py, door, source);
        return Ok(());
    }
    let place = source.home.place;
    if source.stays_in_place(argument, consumers_place(&source.array, place)) {
        let on = || source.ready.stream();
        order::elided(Purpose::hand_over(door), place, Elided::SameStream, on);
        source.keep_in_place(py);
        return Ok(());
    }
    export_by_order(door, py, source, argument)
}

#[inline(never)]
fn export_by_order(
    door: &'static str,
    py: Python<'_>,
    source: &mut Holding,
    argument: &Argument<'_, '_>,
) -> PyResult<()> {
    let asked = ask(door, py, source, argument)?;
    asked.order(door, py, source, None)?;
    let at = asked.at;
    handed_over(py, source, argument, at)
}

/// The same of several arrays, each for the argument that `of` has for its number. One event orders all that are ready on
/// the same stream, so all are asked before it: one that is asked may queue work. The number of the array comes with an
/// error.
pub(super) fn export_all<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    sources: &mut [Box<Holding>],
    of: impl Fn(usize) -> &'a Argument<'a, 'py>,
) -> Result<(), (usize, PyErr)> {
    look(py);
    let (mut moved, mut last) = (SmallVec::<[_; 4]>::new(), None);
    for (item, source) in sources.iter_mut().enumerate() {
        let (ready, place) = (source.ready, source.home.place);
        if !source.stays_in_place(of(item), consumers_place(&source.array, place)) {
            moved.push(item);
            continue;
        }
        let is_again = last.replace((ready, place)) == Some((ready, place));
        let why = if is_again { Elided::Together } else { Elided::SameStream };
        order::elided(Purpose::hand_over(door), place, why, || ready.stream());
        source.keep_in_place(py);
    }
    let places = order_all(door, py, sources, (&moved, &of))?;
    for (item, at) in moved.into_iter().zip(places) {
        handed_over(py, &mut sources[item], of(item), at).map_err(|error| (item, error))?;
    }
    Ok(())
}

/// Orders those of several arrays that are `moved` to another stream than they are ready on; and where each consumer
/// works.
fn order_all<'a, 'py: 'a>(
    door: &'static str,
    py: Python<'py>,
    sources: &[Box<Holding>],
    (moved, of): (&[usize], &impl Fn(usize) -> &'a Argument<'a, 'py>),
) -> Result<SmallVec<[Place; 4]>, (usize, PyErr)> {
    let mut all: SmallVec<[_; 4]> = moved.iter().map(|_| None).collect();
    // Last those whose stream can be closed: nothing else of Python's runs between that question and the order.
    for closes in [false, true] {
        for (asked, &item) in all.iter_mut().zip(moved) {
            let source = &sources[item];
            if source.home.may_close(source.ready) == closes {
                let found = ask(door, py, source, of(item)).map_err(|error| (item, error))?;
                *asked = Some((item, found));
            }
        }
    }
    let all: SmallVec<[_; 4]> = all.into_iter().flatten().collect();
    check(door, sources, &all)?;
    let mut ordered = SmallVec::new();
    for (item, asked) in &all {
        let made = asked.order(door, py, &sources[*item], Some(&mut ordered));
        made.map_err(|error| (*item, error))?;
    }
    Ok(all.iter().map(|(_, asked)| asked.at).collect())
}

/// From the streams that events are recorded on, or what they stand in for, to where the consumers work; and whether
/// the producer named them.
type Pair = (Source, Option<Source>, Place, bool);
type Source = (Stream, bool, Place);

/// What is to be ordered for a consumer.
struct Asked<'a, 'py> {
    argument: &'a Argument<'a, 'py>,
    /// Where the consumer works.
    at: Place,
    /// Whether it has to wait, and the streams that the array is ready on then, if something is pending still.
    waits: bool,
    from: Option<Both<'a>>,
}

/// Asks which stream `source` is ready on.
fn ask<'a, 'py>(
    door: &'static str,
    py: Python<'py>,
    source: &'a Holding,
    argument: &'a Argument<'a, 'py>,
) -> PyResult<Asked<'a, 'py>> {
    let at = consumers_place(&source.array, source.home.place);
    let at = check_argument(&source.array, &source.driver, argument, at)?;
    let waits = plan(source.ready, argument.request()).is_none();
    let from = if waits {
        ready_streams(py, door, source, (source.ready, source.home.place))?
    } else {
        None
    };
    Ok(Asked { argument, at, waits, from })
}

/// Refuses what a capture makes one of the orders fail by, before the first is made. The number of the array comes with
/// an error.
fn check(
    door: &'static str,
    sources: &[Box<Holding>],
    all: &[(usize, Asked<'_, '_>)],
) -> Result<(), (usize, PyErr)> {
    let Some(first) = sources.first() else { return Ok(()) };
    let (mut items, mut needs): (SmallVec<[_; 4]>, SmallVec<[_; 4]>) = Default::default();
    for (item, asked) in all {
        let Asked { argument, at, from: Some((from, also)), .. } = asked else { continue };
        let Some(to) = argument.alive(*at) else { continue };
        let direction = Purpose::hand_over_of(door, sources[*item].ready).direction;
        for &from in also.iter().chain([from]) {
            if !needs.iter().any(|need: &Need<'_>| from.is(need.from) && to.is(need.to)) {
                items.push(*item);
                needs.push(Need { direction, from, to });
            }
        }
    }
    order::check(&first.driver, &needs).map_err(|(place, error)| (items[place], error.into()))
}

impl Asked<'_, '_> {
    /// Makes the order, unless it is in `ordered`, which has the pairs that were ordered in the same call.
    fn order(
        &self,
        door: &'static str,
        py: Python<'_>,
        source: &Holding,
        ordered: Option<&mut SmallVec<[Pair; 4]>>,
    ) -> PyResult<()> {
        let Self { argument, at, waits, from } = *self;
        // By the stream that is waited for, not by the one that was named: the legacy stream may stand in for that.
        let named = source.ready != Ready::Unsaid;
        let source_of = |from: Alive<'_>| (from.stream(), from.stands_in(), from.place());
        let pair = from.map(|(from, also)| (source_of(from), also.map(source_of), at, named));
        match (pair, ordered) {
            (Some(pair), Some(ordered)) if ordered.contains(&pair) => {
                let together = || argument.request().stream();
                order::elided(
                    Purpose::hand_over(door),
                    source.home.place,
                    Elided::Together,
                    together,
                );
            }
            // Nothing is pending any more: the host has waited, or the producer says so.
            (None, _) if waits => {}
            (_, ordered) => {
                let (driver, ready) = (&source.driver, (source.ready, source.home.place, from));
                hand_over_from(py, door, driver, ready, (argument, at))?;
                if let Some(ordered) = ordered {
                    ordered.extend(pair);
                }
            }
        }
        Ok(())
    }
}
