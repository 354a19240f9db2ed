//! Streams that the bridge may use after the call that named them, each with what keeps it alive.
//!
//! The exporter of a CAI dict keeps the stream that its dict names ("Lifetime management", "Streams"). An event on the
//! legacy default stream follows all earlier work on every blocking stream of the context, even on destroyed streams
//! (H200, driver 580, 2026-11).
#![allow(unsafe_code)]

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::context::{goes_on, life, life_at};
use super::exporter::Exporter;
use super::keeper::{InGraph, Keeper, WaitedFor};
use super::name::StreamName;
use super::object::handle_of;
use super::voucher::{Voucher, is_unasked};
use super::wait::{WaitReason, wait_for_all};
use crate::array::RustStream;
use crate::capture::CaptureStatus;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::Failure;
use crate::order::{self, Purpose};
use crate::py::interpreter::detach;
use crate::stream::{Alive, Ready, Stream};

#[derive(Debug)]
pub(crate) struct StreamRef {
    /// Has the stream's number (`cuStreamGetId`) only if the keeper, or an exporter's second keeper, is
    /// [`Keeper::Object`].
    name: StreamName,
    place: Place,
    /// The number (`cuCtxGetId`) of the context of `place`, which the stream cannot outlive; 0 for a default stream.
    life: u64,
    keeper: Keeper,
}

const LEGACY: StreamName = StreamName::unnumbered(Stream::Legacy);

#[derive(Debug)]
pub(crate) struct DictExporter<'a, 'py> {
    pub(crate) exporter: &'a Bound<'py, PyAny>,
    pub(crate) ptr: u64,
    pub(crate) moves: bool,
    pub(crate) besides: Option<StreamRef>,
    pub(crate) none_is_nothing: bool,
}

impl StreamRef {
    pub(crate) const fn legacy(place: Place) -> Self {
        Self { name: LEGACY, place, life: 0, keeper: Keeper::Always }
    }

    pub(crate) const fn standing_in(place: Place) -> Self {
        Self { name: LEGACY, place, life: 0, keeper: Keeper::StandIn }
    }

    /// `None` for a stream with a handle, and for a legacy default stream in place of blocking streams.
    #[inline]
    pub(crate) fn of_default(alive: Alive<'_>) -> Option<Self> {
        if alive.stands_in() || matches!(alive.stream(), Stream::Handle(_)) {
            return None;
        }
        let name = StreamName::unnumbered(alive.stream());
        Some(Self { name, place: alive.place(), life: 0, keeper: Keeper::Always })
    }

    pub(super) fn new(driver: &Handle, alive: Alive<'_>, keeper: Keeper) -> Result<Self> {
        let (stream, place) = (alive.stream(), alive.place());
        let name = match &keeper {
            Keeper::Object(_) => StreamName::of(driver, alive)?,
            _ => StreamName::unnumbered(stream),
        };
        Ok(Self { name, place, life: life(driver, stream, place)?, keeper })
    }

    pub(crate) fn held(driver: &Handle, held: RustStream) -> Result<Self> {
        let (stream, place) = (held.stream(), held.alive().place());
        let life = life(driver, stream, place)?;
        let name = StreamName::unnumbered(stream);
        Ok(Self { name, place, life, keeper: Keeper::Rust(Box::new(held)) })
    }

    pub(crate) fn exported(
        driver: &Handle,
        alive: Alive<'_>,
        by: DictExporter<'_, '_>,
    ) -> PyResult<Self> {
        let DictExporter { exporter, ptr, moves, besides, none_is_nothing } = by;
        let mut kept = Self::new(driver, alive, Keeper::Always)?;
        let besides = besides.map(|besides| {
            kept.name = besides.name;
            besides.keeper
        });
        let at_default = moves && kept.life == 0;
        let life = if at_default { life_at(driver, kept.place)? } else { kept.life };
        kept.keeper = Keeper::Exporter(Box::new((
            Exporter { voucher: Voucher::new(exporter)?, ptr, moves, none_is_nothing, life },
            besides,
        )));
        Ok(kept)
    }

    /// The stream that waited for `waited_for` because of a capture only, with the capture's number if it is known.
    pub(crate) fn waited_in_graph(self, capture: Option<u64>, waited_for: Self) -> Self {
        let Self { name, place, life, keeper } = waited_for;
        let waited_for = WaitedFor { name, place, life, keeper };
        let keeper = Keeper::InGraph(Box::new(InGraph { own: self.keeper, capture, waited_for }));
        Self { keeper, ..self }
    }

    pub(crate) const fn waits_again(&self) -> bool {
        matches!(self.keeper, Keeper::InGraph(_))
    }

    /// If `before` is the same stream, with the wait that `before` must make again.
    #[cold]
    pub(crate) fn waits_like(self, py: Python<'_>, before: &Self) -> Self {
        match &before.keeper {
            // Of two references one can have the stream's number, and the other none.
            Keeper::InGraph(waited) if before.stream() == self.stream() && !self.waits_again() => {
                let waited = InGraph { own: self.keeper, ..waited.clone_ref(py) };
                Self { keeper: Keeper::InGraph(Box::new(waited)), ..self }
            }
            _ => self,
        }
    }

    /// Like [`Self::clone_ref`], without a wait to make again.
    pub(crate) fn clone_stream(&self, py: Python<'_>) -> Self {
        let mut keeper = &self.keeper;
        while let Keeper::InGraph(waited) = keeper {
            keeper = &waited.own;
        }
        Self { keeper: keeper.clone_ref(py), ..*self }
    }

    /// The stream, or the legacy default stream that the bridge uses in its place.
    pub(crate) const fn stream(&self) -> Stream {
        self.name.stream()
    }

    pub(crate) const fn name(&self) -> StreamName {
        self.name
    }

    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    pub(crate) const fn stands_in(&self) -> bool {
        matches!(self.keeper, Keeper::StandIn)
    }

    #[inline]
    pub(crate) fn is_default(&self, stream: Stream, place: Place) -> bool {
        let is_it = !matches!(stream, Stream::Handle(_)) && self.stream() == stream;
        is_it && matches!(self.keeper, Keeper::Always) && self.place == place
    }

    /// Whether the stream object may be closed, or the exporter's dict may name another stream later.
    pub(crate) fn may_change(&self) -> bool {
        let closes = |keeper: &Keeper| matches!(keeper, Keeper::Object(_));
        match &self.keeper {
            Keeper::InGraph(_) => true,
            Keeper::Exporter(exporter) => {
                exporter.0.moves || exporter.1.as_ref().is_some_and(closes)
            }
            keeper => closes(keeper),
        }
    }

    pub(crate) fn may_move(&self) -> bool {
        matches!(&self.keeper, Keeper::Exporter(exporter) if exporter.0.moves)
    }

    /// False only if the exporter's dict or the stream object no longer names the stream, or if the stream object
    /// cannot be asked.
    pub(crate) fn stays(&self, py: Python<'_>, driver: &Handle) -> Result<bool, Failure<PyErr>> {
        match &self.keeper {
            Keeper::Exporter(exporter) if exporter.1.is_some() => {
                Ok(self.also(py, driver)?.is_none())
            }
            Keeper::Exporter(exporter) => Ok(exporter.0.stays(py, self.stream())?),
            Keeper::Object(voucher) => {
                let stays = |object: &Bound<'_, PyAny>| {
                    Ok((handle_of(object)? == self.stream().handle()).then_some(()))
                };
                // SAFETY: the stream object, which `self` holds, has just returned this handle.
                let alive = || unsafe { Alive::kept(self.stream(), self.place) };
                let is_same = || {
                    let goes_on = goes_on(life(driver, self.stream(), self.place), self.life)?;
                    Ok::<_, Failure<PyErr>>(!goes_on || !self.name.is_of_another(driver, alive())?)
                };
                Ok(voucher.ask(py, stays)?.is_some() && is_same()?)
            }
            _ => Ok(true),
        }
    }

    /// Whether both references name the same stream. A name with the driver's number differs from a name without.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let anywhere = matches!(self.stream(), Stream::Handle(_));
        self.name == other.name && (anywhere || self.place == other.place)
    }

    /// False if both are the legacy default stream in place of other streams, which may differ.
    pub(crate) fn is(&self, other: Alive<'_>) -> bool {
        let both_stand_in = other.stands_in() && self.stands_in();
        other.is_at(self.stream(), self.place) && !both_stand_in
    }

    /// Like [`Self::now`], but `None` if the answer is not [`Ready::On`].
    #[inline(always)]
    pub(crate) fn confirm(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        Ok(match self.now(py, driver)? {
            Some(Ready::On(alive)) => Some(alive),
            _ => None,
        })
    }

    /// For an exporter with a second keeper: the other stream that the exporter's dict names now, if any. A user of the
    /// memory must wait for both streams.
    pub(crate) fn also(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Alive<'_>>, Failure<PyErr>> {
        let exporter = match &self.keeper {
            Keeper::Exporter(exporter) if exporter.0.moves && exporter.1.is_some() => &exporter.0,
            _ => return Ok(None),
        };
        let now = exporter.ask(py, self.stream())?.and_then(Ready::stream);
        // Compare driver handles: this thread names another thread's per-thread stream by the legacy default stream.
        let before = alive_by(exporter, self.stream(), self.place).native();
        let other = now
            .map(|stream| alive_by(exporter, stream, self.place))
            .filter(|now| now.native() != before);
        let lives = other.is_none() || goes_on(life_at(driver, self.place), exporter.life)?;
        Ok(other.filter(|_| lives))
    }

    /// This stream if a keeper proves it alive, else what the exporter's dict says now. `None` if the stream may be
    /// destroyed.
    #[inline(always)]
    pub(crate) fn now(
        &self,
        py: Python<'_>,
        driver: &Handle,
    ) -> Result<Option<Ready<Alive<'_>>>, Failure<PyErr>> {
        if let (Keeper::Always, Some(alive)) =
            (&self.keeper, Alive::default_stream(self.stream(), self.place))
        {
            return Ok(Some(Ready::On(alive)));
        }
        if let Keeper::InGraph(waited) = &self.keeper {
            return self.wait_again(py, driver, waited);
        }
        self.ask(py, driver, &self.keeper)
    }

    /// Makes the stream wait again, unless the capture of its wait goes on.
    #[cold]
    fn wait_again<'a>(
        &'a self,
        py: Python<'_>,
        driver: &Handle,
        waited: &'a InGraph,
    ) -> Result<Option<Ready<Alive<'a>>>, Failure<PyErr>> {
        let now = match &waited.own {
            // A stream that waited for two others has one keeper in another.
            Keeper::InGraph(other) => self.wait_again(py, driver, other)?,
            own => self.ask(py, driver, own)?,
        };
        let Some(Ready::On(alive)) = now else { return Ok(None) };
        let answer = Ok(Some(Ready::On(alive)));
        if let Some(capture) = waited.capture
            && order::status_of(driver.get()?, alive)? == CaptureStatus::Inside(capture)
        {
            return answer;
        }
        let WaitedFor { name, place, life, keeper } = &waited.waited_for;
        let keeper = keeper.clone_ref(py);
        let waited_for = &Self { name: *name, place: *place, life: *life, keeper };
        let (first, told) = match waited_for.now(py, driver)? {
            None => {
                wait_for_all(py, AGAIN, driver, waited_for.place, WaitReason::StreamGone)?;
                return answer;
            }
            Some(Ready::Nothing) => return answer,
            Some(Ready::Unsaid) => (Alive::legacy(waited_for.place), Ready::Unsaid),
            Some(Ready::On(first)) if first.stands_in() => (first, Ready::Unsaid),
            Some(Ready::On(first)) => (first, Ready::On(first.stream())),
        };
        let purpose = Purpose::hand_over_of(AGAIN, told);
        for from in waited_for.also(py, driver)?.into_iter().chain([first]) {
            order::connect(purpose, driver, from, alive, |call| detach(py, call))?;
        }
        answer
    }

    fn ask<'a>(
        &'a self,
        py: Python<'_>,
        driver: &Handle,
        keeper: &'a Keeper,
    ) -> Result<Option<Ready<Alive<'a>>>, Failure<PyErr>> {
        if !goes_on(life(driver, self.stream(), self.place), self.life)? {
            return Ok(None);
        }
        let (keeper, exporter) = match keeper {
            Keeper::Exporter(exporter) => (exporter.1.as_ref(), Some(&exporter.0)),
            keeper => (Some(keeper), None),
        };
        let stream = match (keeper, self.stream()) {
            (None | Some(Keeper::Exporter(_) | Keeper::InGraph(_)), _) => None,
            (Some(Keeper::StandIn), _) => {
                return Ok(Some(Ready::On(Alive::standing_in(self.place))));
            }
            (Some(Keeper::Owner(voucher)), _) => voucher.object(py).map(|_| self.stream()),
            (Some(Keeper::Object(voucher)), Stream::Handle(handle)) => voucher
                .ask(py, |object| Ok((handle_of(object)? == handle).then_some(self.stream())))?,
            _ => Some(self.stream()),
        };
        if let (None, Some(exporter)) = (stream, exporter) {
            let now = exporter.ask(py, self.stream())?;
            // If `self` is a default stream, its context was not checked above. If the exporter now names a handle
            // instead, check the context before using that handle.
            let is_first = matches!(now, Some(Ready::On(Stream::Handle(_))))
                && !matches!(self.stream(), Stream::Handle(_));
            if is_first && !goes_on(life_at(driver, self.place), exporter.life)? {
                return Ok(None);
            }
            return Ok(now.map(|now| now.map(|stream| alive_by(exporter, stream, self.place))));
        }
        // SAFETY: a default stream is never destroyed. Any other stream's context exists, as checked above, and
        // something keeps the stream: its library destroys no streams, or Rust code holds it, or `self` holds a stream
        // object that owns it or has just returned this handle.
        let Some(alive) = stream.map(|stream| unsafe { Alive::kept(stream, self.place) }) else {
            return Ok(None);
        };
        // The object may have closed the stream and opened another stream with the same handle.
        let may_differ = matches!(keeper, Some(Keeper::Object(_)));
        let differs = may_differ && self.name.is_of_another(driver, alive)?;
        Ok(if differs { None } else { Some(Ready::On(alive)) })
    }

    /// Whether the stream's context still exists. Always true for a default stream.
    pub(crate) fn is_of_this_life(&self, driver: &Handle) -> Result<bool> {
        goes_on(life(driver, self.stream(), self.place), self.life)
    }

    /// Whether the stream's only keeper was asked and did not confirm the stream, while the stream's context still
    /// exists. Call this only after [`Self::confirm`] has returned `None`.
    pub(crate) fn is_dropped(&self, py: Python<'_>, driver: &Handle) -> Result<bool> {
        let asked = match &self.keeper {
            Keeper::Exporter(exporter) => exporter.1.is_none(),
            keeper => matches!(keeper, Keeper::Object(_)),
        };
        let is_asked = asked && !is_unasked() && !self.is_of_garbage(py);
        Ok(is_asked
            && matches!(self.stream(), Stream::Handle(_))
            && self.is_of_this_life(driver)?)
    }

    pub(crate) fn is_of_garbage(&self, py: Python<'_>) -> bool {
        match &self.keeper {
            Keeper::Owner(voucher) | Keeper::Object(voucher) => voucher.object(py).is_none(),
            Keeper::Exporter(exporter) => exporter.0.is_of_garbage(py),
            Keeper::InGraph(_) => self.clone_stream(py).is_of_garbage(py),
            Keeper::Always | Keeper::Rust(_) | Keeper::StandIn => false,
        }
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { keeper: self.keeper.clone_ref(py), ..*self }
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.keeper.visit(visit)
    }
}

/// The door, in the log, of a wait that a graph has as well.
const AGAIN: &str = "after a capture";

/// The caller must check that the context exists before the use of a stream with a handle.
pub(super) const fn alive_by(_exporter: &Exporter, stream: Stream, place: Place) -> Alive<'_> {
    // SAFETY: the result borrows the exporter, and the exporter keeps alive the stream that its dict names (CUDA Array
    // Interface, "Lifetime management", "Streams").
    unsafe { Alive::kept(stream, place) }
}
