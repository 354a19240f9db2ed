//! Settles an end: answers the questions of [`end_rules::next`] and carries out its plan.

use pyo3::prelude::*;

use super::gather::{Gathered, Sides, gather};
use crate::buffer::Buffer;
use crate::capture::CaptureStatus;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};
use crate::lease::end_rules::{self, Answers, Lost, Next, Plan, Question};
use crate::lease::{Failure, Holder, Parties, Settlement, Streams};
use crate::order::{self, Mark, Purpose, Uncaptured};
use crate::py::interpreter::detach;
use crate::py::lease::consumer_side::{Captured, Consumer, ConsumerSide};
use crate::py::lease::held_memory::{HeldMemory, MemoryOwner};
use crate::py::lease::known_memory::KnownMemory;
use crate::py::lease::producer_side::ProducerSide;
use crate::py::lease::warned;
use crate::py::observe;
use crate::py::streams::current::{self, Objects};
use crate::py::streams::{KnownStream, StreamRef, WaitReason, places_of, wait_for_all};
use crate::stream::{Alive, Elided, Stream};

#[derive(Debug, Clone)]
pub(in crate::py::lease) struct EndContext {
    pub(in crate::py::lease) driver: Handle,
    /// Whether the memory is a call's argument: after the call, the producer may work on another stream.
    pub(in crate::py::lease) in_call: bool,
    /// Whether only a Python object keeps the memory, and no managed tensor.
    pub(in crate::py::lease) by_object: bool,
    /// Whether the garbage collector found the view that holds the memory.
    pub(in crate::py::lease) collected: bool,
}

#[derive(Clone, Copy)]
pub(in crate::py::lease) struct UnsettledEnd<'a> {
    pub(in crate::py::lease) end: &'a EndContext,
    pub(in crate::py::lease) producer_side: &'a ProducerSide,
    pub(in crate::py::lease) consumer_side: &'a ConsumerSide,
    pub(in crate::py::lease) user: Option<Alive<'a>>,
}

impl UnsettledEnd<'_> {
    /// If the end fails or is interrupted and the consumer named no stream, adds the current streams of the imported
    /// libraries to `found`: at the next try they may be others.
    pub(in crate::py::lease) fn settle(
        self,
        py: Python<'_>,
        found: &mut Vec<KnownStream>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        let made = order(py, self);
        let Self { end, consumer_side, .. } = self;
        if let (Err(failure), Consumer::Unnamed(_)) = (&made, &consumer_side.consumer) {
            let asked = KnownStream::of_libraries(py, &end.driver, consumer_side.at, found);
            if matches!(failure, Failure::Failed(_)) {
                asked?;
            }
        }
        made
    }
}

/// In a forked child, runs nothing and returns `Done`.
pub(super) fn in_own_process(
    process: Process,
    settle: impl FnOnce() -> Result<Settlement<Vec<Mark>>, Failure<PyErr>>,
) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
    if process.is_current() { settle() } else { Ok(Settlement::Done) }
}

fn order(
    py: Python<'_>,
    unsettled: UnsettledEnd<'_>,
) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
    let UnsettledEnd { end, producer_side, consumer_side, user } = unsettled;
    let driver = &end.driver;
    let collected = end.by_object && end.collected;
    let sides = Sides {
        producer_side,
        consumer_side,
        names_user: user.is_some(),
        in_call: end.in_call,
        collected,
    };
    let mut answers = Answers::default();
    let plan = loop {
        match end_rules::next(&sides, &answers) {
            Next::Do(Plan::Edge(user, producer)) => {
                return give_back(py, end, consumer_side, user, producer);
            }
            Next::Do(plan) => break plan,
            Next::Ask(Question::ProducerStays) => {
                answers.producer_stays = Some(producer_side.stays(py, driver)?);
            }
            // False makes the end look at each stream.
            Next::Ask(Question::AllOnLegacy) => answers.all_on_legacy = Some(false),
            Next::Ask(Question::OneMarkDoes) => {
                let all = current::are_all_on_legacy(py, driver, consumer_side.at.ordinal)?;
                answers.all_on_legacy = Some(all == Some(true));
            }
            Next::Ask(Question::BothLive) => {
                answers.both_live = Some(pair(py, end, producer_side, consumer_side)?);
            }
            Next::Ask(Question::Streams | Question::Libraries) => {
                return order_by_streams(py, end, &sides, user);
            }
        }
    };
    carry_out(py, end, &sides, plan, None)
}

#[inline(never)]
fn order_by_streams(
    py: Python<'_>,
    end: &EndContext,
    sides: &Sides<'_>,
    user: Option<Alive<'_>>,
) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
    let (producer_side, consumer_side, objects) =
        (sides.producer_side, sides.consumer_side, Objects::default());
    let mut known = gather(py, &end.driver, producer_side, consumer_side, user)?;
    let mut libraries = None;
    let plan = loop {
        let answers = Answers {
            streams: Some(&known.streams),
            collected: end.by_object && is_of_garbage(py, end, producer_side),
            libraries: libraries.as_deref(),
            ..Answers::default()
        };
        match end_rules::next(sides, &answers) {
            Next::Do(plan) => break plan,
            Next::Ask(_) => libraries = Some(known.ask(py, consumer_side, &objects)?),
        }
    };
    carry_out(py, end, sides, plan, Some(&known))
}

#[inline]
fn carry_out(
    py: Python<'_>,
    end: &EndContext,
    sides: &Sides<'_>,
    plan: Plan<'_>,
    known: Option<&Gathered<'_>>,
) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
    let (driver, producer_side, consumer_side) =
        (&end.driver, sides.producer_side, sides.consumer_side);
    match plan {
        Plan::Nothing(why) => {
            tell_elided(producer_side, why);
            Ok(Settlement::Done)
        }
        Plan::Edge(user, producer) => give_back(py, end, consumer_side, user, producer),
        Plan::Order(parties) => {
            let mut captured = Streams::new();
            let note = |user| captured.push(user);
            let mut settled = parties.settle(driver, |call| detach(py, call), note)?;
            // An end that is put off comes again when the capture is over.
            if captured.is_empty() || matches!(settled, Settlement::Later) {
                return Ok(settled);
            }
            let waited = wait_for_earlier(py, end, consumer_side, &captured);
            if let (Err(_), Settlement::Until(marks)) = (&waited, &mut settled) {
                order::forget(driver, std::mem::take(marks));
            }
            waited.map(|()| settled)
        }
        Plan::Wait(lost, parties) => {
            if let (Consumer::On(KnownStream::Lost(name)), Captured::In(capture)) =
                (&consumer_side.consumer, consumer_side.captured)
                && lost == Lost::Stream(name.stream().handle())
            {
                check_joined(driver, &parties, name.stream(), capture)?;
            }
            let dropped = known.map_or(&[][..], |known| &known.dropped);
            let reason = match lost {
                Lost::Stream(handle) if dropped.contains(&handle) => WaitReason::StreamGone,
                Lost::Stream(_) => WaitReason::ConsumerUnknown,
                Lost::Owner => WaitReason::OwnerCollected,
            };
            for place in places_of(driver, consumer_side.at, &parties.users)? {
                wait_for_all(py, "release", driver, place, reason)?;
            }
            parties.join(driver, |call| detach(py, call))?;
            if let Lost::Stream(handle) = lost
                && !dropped.contains(&handle)
            {
                let line = known.and_then(|known| known.line);
                warned::uncovered(py, consumer_side.at, handle, line)?;
            }
            Ok(Settlement::Done)
        }
    }
}

#[inline]
fn give_back(
    py: Python<'_>,
    end: &EndContext,
    consumer_side: &ConsumerSide,
    user: Alive<'_>,
    producer: Alive<'_>,
) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
    let door = Purpose::give_back("release");
    let made = order::connect(door, &end.driver, user, producer, |call| detach(py, call))?;
    if !made.is_for_good() {
        wait_for_earlier(py, end, consumer_side, &[user])?;
    }
    Ok(Settlement::Done)
}

/// Makes the host wait for what `users` queued outside a capture: as long as it goes on, the producers' streams can wait
/// in its graph only. Not for a consumer that came to the memory in the capture that its stream is in.
#[cold]
fn wait_for_earlier(
    py: Python<'_>,
    end: &EndContext,
    consumer_side: &ConsumerSide,
    users: &[Alive<'_>],
) -> Result<(), Failure<PyErr>> {
    let driver = end.driver.get()?;
    if let (Consumer::On(known), Captured::In(capture)) =
        (&consumer_side.consumer, consumer_side.captured)
        && users.iter().all(|user| known.is(*user))
        && let [user, ..] = users
        && order::status_of(driver, *user)? == CaptureStatus::Inside(capture)
    {
        return Ok(());
    }
    for place in places_of(&end.driver, consumer_side.at, users)? {
        wait_for_all(py, "release", &end.driver, place, WaitReason::Captured)?;
    }
    Ok(())
}

/// Fails if a producer's stream has part in `capture` still, in which the consumer's `stream` came to the memory.
/// The host cannot wait for captured work, and the stream may be destroyed.
#[cold]
fn check_joined(
    driver: &Handle,
    parties: &Parties<'_>,
    stream: Stream,
    capture: u64,
) -> Result<()> {
    let calls = driver.get()?;
    for producer in &parties.producers {
        if order::status_of(calls, *producer)? == CaptureStatus::Inside(capture) {
            let got = format!("work on {stream}, named by its handle alone, to be joined");
            return Err(Error::new(Kind::CaptureHandle, got));
        }
    }
    Ok(())
}

/// The consumer's and the producer's streams, if the consumer named a stream and both streams are known to be alive.
fn pair<'a>(
    py: Python<'_>,
    end: &EndContext,
    producer_side: &'a ProducerSide,
    consumer_side: &'a ConsumerSide,
) -> Result<Option<(Alive<'a>, Alive<'a>)>, Failure<PyErr>> {
    let (Consumer::On(KnownStream::Kept(consumer)), Some(producer)) =
        (&consumer_side.consumer, &producer_side.stream)
    else {
        return Ok(None);
    };
    let Some(to) = producer.confirm(py, &end.driver)? else { return Ok(None) };
    Ok(consumer.confirm(py, &end.driver)?.map(|from| (from, to)))
}

/// Whether the garbage collector may be clearing the memory's owner.
fn is_of_garbage(py: Python<'_>, end: &EndContext, producer_side: &ProducerSide) -> bool {
    match (&producer_side.stream, &producer_side.unnamed) {
        (Some(producer), _) => producer.is_of_garbage(py),
        (None, Some(unnamed)) => unnamed.is_of_garbage(py),
        (None, None) => end.collected,
    }
}

#[inline(always)]
fn tell_elided(producer_side: &ProducerSide, why: Elided) {
    let on = || producer_side.stream.as_ref().map(StreamRef::stream);
    order::elided(Purpose::give_back("release"), producer_side.place, why, on);
}

impl HeldMemory {
    pub(in crate::py::lease) fn end(&self) -> EndContext {
        EndContext {
            driver: self.driver.clone(),
            in_call: self.conversion.is_some(),
            by_object: self.is_by_object(),
            collected: matches!(self.tag.by, observe::EndedBy::Collected),
        }
    }

    /// False if the end may need an order, for a copy, and in a forked child.
    #[inline(always)]
    pub(in crate::py::lease) fn is_done_without_orders(&self, py: Python<'_>) -> bool {
        let is_plain = matches!(self.owner, MemoryOwner::Array(..)) && self.process.is_current();
        if !is_plain || self.known.as_ref().is_some_and(KnownMemory::may_have_later) {
            return false;
        }
        let (sides, mut answers) = (self.sides(), Answers::default());
        let why = loop {
            match end_rules::next(&sides, &answers) {
                Next::Do(Plan::Nothing(why)) => break Some(why),
                Next::Ask(Question::AllOnLegacy) => {
                    let all =
                        current::are_all_on_legacy(py, &self.driver, self.consumer_side.at.ordinal);
                    let all = all.unwrap_or_else(|interrupt| {
                        interrupt.write_unraisable(py, None);
                        None
                    });
                    answers.all_on_legacy = Some(all == Some(true));
                }
                _ => break None,
            }
        };
        why.inspect(|why| tell_elided(&self.producer_side, *why)).is_some()
    }

    #[inline(always)]
    pub(super) const fn sides(&self) -> Sides<'_> {
        let collected = self.is_by_object() && matches!(self.tag.by, observe::EndedBy::Collected);
        let in_call = self.conversion.is_some();
        Sides {
            producer_side: &self.producer_side,
            consumer_side: &self.consumer_side,
            names_user: false,
            in_call,
            collected,
        }
    }

    const fn unsettled<'a>(
        &'a self,
        end: &'a EndContext,
        user: Option<Alive<'a>>,
    ) -> UnsettledEnd<'a> {
        let (producer_side, consumer_side) = (&self.producer_side, &self.consumer_side);
        UnsettledEnd { end, producer_side, consumer_side, user }
    }

    /// Makes the orders of an end with `user` as a further user, without ending the holder. Fails in a forked child.
    pub(crate) fn settle_for(
        &self,
        py: Python<'_>,
        user: Alive<'_>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        self.process.check()?;
        self.unsettled(&self.end(), Some(user)).settle(py, &mut Vec::new())
    }

    /// In a forked child, does nothing.
    pub(crate) fn settle_with(
        &mut self,
        py: Python<'_>,
        user: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        in_own_process(self.process, || self.settle_and_free(py, user))
    }

    /// Must run in the process that owns the memory.
    fn settle_and_free(
        &mut self,
        py: Python<'_>,
        user: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        self.find_users();
        let mut found = Vec::new();
        let settled = self.unsettled(&self.end(), user).settle(py, &mut found);
        if !found.is_empty() {
            for known in found {
                drop(self.note(py, known));
            }
        }
        if let (Ok(made), MemoryOwner::Copy(copied)) = (&settled, &mut self.owner)
            && made.is_made()
            && copied.buffer.ptr() != 0
        {
            // If `free` panics, the memory leaks.
            let mut buffer = std::mem::replace(&mut copied.buffer, Buffer::NONE);
            let freed = self.free(py, &mut buffer);
            if let MemoryOwner::Copy(copied) = &mut self.owner {
                copied.buffer = buffer;
            }
            if let Err(failed) = freed {
                if let Ok(Settlement::Until(marks)) = settled {
                    order::forget(&self.driver, marks);
                }
                return Err(failed);
            }
        }
        settled
    }

    /// Frees a copy's memory in stream order on the copy's stream. If that stream may be destroyed, the host waits for
    /// all work in the consumer's context, and the legacy default stream takes the stream's place.
    fn free(&self, py: Python<'_>, buffer: &mut Buffer) -> Result<(), Failure<PyErr>> {
        let calls = self.driver.get()?;
        buffer.check(calls)?;
        let producer = match &self.producer_side.stream {
            Some(producer) => producer.confirm(py, &self.driver)?,
            None => None,
        };
        let on = producer.unwrap_or(Alive::standing_in(self.producer_side.place));
        if producer.is_none() {
            let reason = WaitReason::ConsumerUnknown;
            wait_for_all(py, "release", &self.driver, self.consumer_side.at, reason)?;
        }
        let free = || {
            let work = Uncaptured { kind: Kind::CaptureCopy, got: "a copy's end" };
            order::check_captures(calls, &[on], work)?;
            buffer.free(&self.driver, on)
        };
        Ok(detach(py, free)?)
    }
}

impl Holder for HeldMemory {
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
