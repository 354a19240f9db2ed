//! The orders that an end makes: between whose streams, and what the host has to wait for.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::{Holding, Owner};
use super::warned;
use crate::buffer::Buffer;
use crate::device::Place;
use crate::error::{Kind, Result};
use crate::lease::{Failure, Holder, Parties, Settlement, Streams};
use crate::order::{self, Mark, Purpose};
use crate::py::interpreter::detach;
use crate::py::streams::current::Objects;
use crate::py::streams::{KeepAlive, WaitReason, current, places_of, wait_for_all};
use crate::stream::{Alive, Elided, Stream};

impl Holding {
    /// The streams that the producer works on, for others that are alive to be waited for there: the first
    /// stands in for it where it is unknown, which the flag says.
    pub(crate) fn producers(&self, py: Python<'_>) -> Result<(Streams<'_>, bool), Failure<PyErr>> {
        let producer = self
            .producer
            .as_ref()
            .map(|producer| producer.confirm(py, &self.driver))
            .transpose()?
            .flatten();
        let mut producers = Streams::new();
        producers.push(producer.unwrap_or(Alive::standing_in(self.place)));
        let also = self.producer_also(py)?;
        let kept = self.upstream.iter().filter_map(KeepAlive::kept);
        let upstream = kept.map(|kept| kept.confirm(py, &self.driver));
        for alive in upstream.chain([Ok(also)]) {
            let alive = alive?;
            let known = |alive: &Alive<'_>| {
                let same =
                    |known: &Alive<'_>| known.is(*alive) && known.stands_in() == alive.stands_in();
                producers.iter().any(same)
            };
            producers.extend(alive.filter(|alive| !known(alive)));
        }
        Ok((producers, producer.is_some()))
    }

    /// Adds to `producers` those upstream streams that nothing keeps alive, if they are alive all the same: the
    /// consumer has named one of them as its own, in `users`, or a library works on it now at `at`. Returns one of
    /// which that is not known: then the host has to wait. Nothing of Python's may run after it that might let a
    /// stream go.
    pub(crate) fn add_unkept<'a, 'py>(
        &self,
        py: Python<'py>,
        at: Place,
        users: &[Alive<'a>],
        producers: &mut Streams<'a>,
        objects: &'a Objects<'py>,
    ) -> PyResult<Option<u64>> {
        let unkept = self.upstream.iter().filter(|known| known.kept().is_none());
        let mut unkept: Vec<_> = unkept.map(|known| known.stream().0).collect();
        unkept.retain(|stream| !producers.iter().any(|known| known.stream() == *stream));
        // By the handle: where that is another stream's by now, its own is destroyed, and orders nothing any more.
        let mut find = |unkept: &mut Vec<Stream>, alive: Alive<'a>| {
            if unkept.contains(&alive.stream()) {
                unkept.retain(|stream| *stream != alive.stream());
                producers.push(alive);
            }
        };
        for user in users {
            find(&mut unkept, *user);
        }
        if !unkept.is_empty() {
            current::each(py, &self.driver, at, objects, |alive, _| {
                find(&mut unkept, alive);
                Ok(())
            })?;
        }
        Ok(unkept.first().map(|stream| stream.handle()))
    }

    /// Makes the orders of the end, for the consumer and for the user of `also`.
    pub(crate) fn settle_with(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        if !self.process.is_current() {
            return Ok(Settlement::Done);
        }
        let nothing = match (also, self.nothing_to_order()) {
            (Some(_), _) => None,
            (None, None) if self.is_on_producer_still(py)? || self.is_all_on_legacy(py)? => {
                Some(Elided::SameStream)
            }
            (None, nothing) => nothing,
        };
        let settled = if let Some(why) = nothing {
            self.tell_elided(why);
            Settlement::Done
        } else {
            let ordered = self.order(py, also);
            if let Err(Failure::Failed(_)) = ordered
                && matches!(self.consumer, Consumer::Unnamed(_))
            {
                let known = KeepAlive::of_libraries(py, &self.driver, self.at)?;
                self.note_all(py, known);
            }
            ordered?
        };
        if let Owner::Copy(copied) = &self.held
            && copied.buffer.ptr() != 0
        {
            self.free(py, &copied.buffer)?;
        }
        Ok(settled)
    }

    /// The streams of the usual end: of one consumer and the one producer, both known and alive.
    fn pair(&self, py: Python<'_>) -> Result<Option<(Alive<'_>, Alive<'_>)>, Failure<PyErr>> {
        match (&self.consumer, &self.producer) {
            (Consumer::On(consumer), Some(producer))
                if self.upstream.is_empty() && self.lent.is_none() && !producer.may_move() =>
            {
                let Some(to) = producer.confirm(py, &self.driver)? else { return Ok(None) };
                Ok(consumer.confirm(py, &self.driver)?.map(|from| (from, to)))
            }
            _ => Ok(None),
        }
    }

    fn order(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        if also.is_none()
            && let Some(streams) = self.pair(py)?
        {
            let door = Purpose::give_back("release");
            order::connect(door, &self.driver, streams, |call| detach(py, call))?;
            return Ok(Settlement::Done);
        }
        let (holding, objects) = (&*self, Objects::default());
        let (mut producers, known) = holding.producers(py)?;
        let (mut users, covered) = holding.users(py, &producers)?;
        let unkept = holding.add_unkept(py, holding.at, &users, &mut producers, &objects)?;
        if let Some(also) = also {
            add(&mut users, also);
        }
        if covered {
            // Asked last: nothing of Python's runs from here on that might let a stream go.
            // Which blocking streams there are, nobody knows. A producer on the legacy stream itself follows them.
            let legacy = holding.conversion.is_none()
                && producers.first().is_some_and(|producer| {
                    !producer.stands_in() && producer.is(Alive::legacy(holding.at))
                });
            users.push(if legacy { Alive::legacy } else { Alive::standing_in }(holding.at));
            let asked = current::each(py, &holding.driver, holding.at, &objects, |alive, _| {
                add(&mut users, alive);
                Ok(())
            });
            if let Err(interrupt) = asked {
                let known = KeepAlive::of_each(py, &holding.driver, &users, &objects);
                drop((users, producers));
                self.note_all(py, known);
                return Err(interrupt.into());
            }
        }
        let user = if covered { holding.uncovered(&users)? } else { None };
        let lost = user.or(unkept.map(|handle| (handle, None)));
        let reason = match lost {
            Some(_) => Some(WaitReason::ConsumerUnknown),
            None if !known && !users.is_empty() && holding.is_of_garbage(py) => {
                Some(WaitReason::OwnerCollected)
            }
            None => None,
        };
        if let Some(reason) = reason {
            if let Some(at) = holding.lent {
                add(&mut users, Alive::legacy(at));
            }
            let places = places_of(&holding.driver, holding.at, &users)?;
            for place in places {
                wait_for_all(py, "release", &holding.driver, place, reason)?;
            }
            if let Some((handle, line)) = lost {
                warned::uncovered(py, holding.at, handle, line)?;
            }
            return Ok(Settlement::Done);
        }
        if let Some(at) = holding.lent {
            add(&mut users, Alive::legacy(at));
        }
        let parties = Parties { users, producers, known };
        Ok(parties.settle(&holding.driver, |call| detach(py, call))?)
    }

    /// Notes where libraries work now: whoever tries again may be another thread, with other current streams.
    fn note_all(&mut self, py: Python<'_>, known: Vec<KeepAlive>) {
        for known in known {
            drop(self.note(py, known));
        }
    }

    /// Frees a copy's memory in the order of its stream, unless that would end a capture. If nothing keeps that stream
    /// alive any more, the host waits first.
    fn free(&self, py: Python<'_>, buffer: &Buffer) -> Result<(), Failure<PyErr>> {
        buffer.check(self.driver.get()?)?;
        let (producers, known) = self.producers(py)?;
        if !known {
            let reason = WaitReason::ConsumerUnknown;
            wait_for_all(py, "release", &self.driver, self.at, reason)?;
        }
        let Some(on) = producers.first().copied() else { return Ok(()) };
        let calls = self.driver.get()?;
        let free = || {
            order::check_captures(calls, &[on], (Kind::CaptureCopy, "a copy's end"))?;
            buffer.free(&self.driver, on)
        };
        Ok(detach(py, free)?)
    }
}

fn add<'a>(users: &mut Streams<'a>, alive: Alive<'a>) {
    if !users.iter().any(|user| user.is(alive)) {
        users.push(alive);
    }
}

impl Holder for Holding {
    type Lock<'l> = Python<'l>;
    type Mark = Vec<Mark>;
    type Interrupt = PyErr;

    fn settle(&mut self, py: Python<'_>) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        self.settle_with(py, None)
    }

    fn is_done(&self, marks: &mut Vec<Mark>) -> Result<bool> {
        let driver = self.driver.get()?;
        while let Some(mark) = marks.last() {
            if !order::is_reached(driver, mark)? {
                return Ok(false);
            }
            marks.pop();
        }
        Ok(true)
    }
}

impl From<PyErr> for Failure<PyErr> {
    fn from(interrupt: PyErr) -> Self {
        Self::Interrupted(interrupt)
    }
}
