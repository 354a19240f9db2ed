//! Finds the stream on which the array of a CAI dict is ready, and what keeps that stream alive.

use pyo3::prelude::*;

use super::readiness::of_producer;
use super::types::TypeFacts;
use crate::cai::Claim;
use crate::device::Place;
use crate::driver::Handle;
use crate::order::{self, Purpose};
use crate::py::habits::Habit;
use crate::py::interpreter::detach;
use crate::py::lease::{Captured, Readiness};
use crate::py::streams::{
    DictExporter, StreamRef, Unnamed, WaitReason, current, ready_by, wait_for_all,
};
use crate::py::views::BaseView;
use crate::stream::{Alive, Ready, Request, Stream};

/// A stream that the array's stream now waits for.
pub(super) struct Earlier {
    pub(super) stream: StreamRef,
    /// Whether that wait is part of a graph alone.
    pub(super) captured: Captured,
}

pub(super) struct DictStream<'a, 'py> {
    pub(super) driver: &'a Handle,
    pub(super) place: Place,
    pub(super) owner: &'a Bound<'py, PyAny>,
    /// True if the dict was read from the owner itself, false if the caller passed the dict and its owner separately.
    pub(super) exports: bool,
    pub(super) ptr: u64,
    pub(super) of_owner: &'a TypeFacts,
    pub(super) object: Option<&'a Bound<'py, PyAny>>,
    /// Whether the library hands out dicts that it read from another array earlier.
    pub(super) stores: bool,
}

impl DictStream<'_, '_> {
    /// The array's stream, if that is a default stream and [`Self::moves`] is false. `None` for an empty array.
    #[inline(always)]
    pub(super) fn on_default(&self, py: Python<'_>, claim: Claim) -> Option<StreamRef> {
        let Claim::Stated(Ready::On(stream)) = claim else { return None };
        if self.moves() || self.ptr == 0 {
            return None;
        }
        StreamRef::of_default(current::named(py, stream.handle(), self.place))
    }

    /// If the caller passed the dict and its owner separately, and nothing keeps `stream` alive, names the legacy
    /// default stream to consumers.
    pub(super) fn exported(
        &self,
        py: Python<'_>,
        door: &'static str,
        stream: Stream,
    ) -> PyResult<Readiness> {
        let alive = current::named(py, stream.handle(), self.place);
        match self.kept(py, stream)? {
            Some(producer) => Ok(Readiness::of(Ready::On(stream), Some(producer))),
            None if self.exports => Ok(Readiness::told(Ready::On(stream))),
            None => of_producer(py, door, self.driver, alive, self.place, true),
        }
    }

    const fn is_of_now(&self) -> bool {
        self.of_owner.has(Habit::NamesCurrentStream)
    }

    /// Whether the array can move to another stream, which the owner's dict would then name. False for a dict that
    /// names the library's current stream, and for arrays that keep their stream object.
    const fn moves(&self) -> bool {
        !self.is_of_now() && !self.of_owner.has(Habit::KeepsStreamObject)
    }

    /// Whether the library can have read this dict from another array earlier, so that `stream` may be destroyed.
    pub(super) const fn is_stored(&self, stream: Stream) -> bool {
        self.stores && matches!(stream, Stream::Handle(_))
    }

    /// If no library's pool has `stream`, the bridge does not use `stream`. If `ordered`, the host waits instead,
    /// unless the caller passed -1.
    pub(super) fn stored(
        &self,
        py: Python<'_>,
        door: &'static str,
        stream: Stream,
        request: Request,
        ordered: bool,
    ) -> PyResult<Readiness> {
        let pooled = StreamRef::pooled(py, self.driver, stream, self.place)?;
        if request == Request::NoOrder {
            return Ok(Readiness::of(Ready::Nothing, pooled));
        }
        if pooled.is_some() {
            return Ok(Readiness::of(Ready::On(stream), pooled));
        }
        if ordered {
            wait_for_all(py, door, self.driver, self.place, WaitReason::StreamGone)?;
        }
        Ok(Readiness::told(Ready::Nothing))
    }

    /// Makes `declared`, the caller's stream, wait for `named`, the dict's stream. If `named` may be destroyed, the
    /// host waits instead.
    pub(super) fn order_named(
        &self,
        py: Python<'_>,
        door: &'static str,
        named: Stream,
        declared: Alive<'_>,
    ) -> PyResult<Option<Earlier>> {
        if current::named(py, named.handle(), self.place).is(declared) {
            return Ok(None);
        }
        let kept = if self.is_stored(named) {
            let pooled = self.stored(py, door, named, Request::Unspecified, true)?.producer;
            if pooled.is_none() {
                return Ok(None);
            }
            pooled
        } else {
            self.kept(py, named)?
        };
        let captured = self.order(py, door, named, declared)?;
        Ok(kept.map(|stream| Earlier { stream, captured }))
    }

    /// For a dict that was passed separately: if the owner's own dict shows that the array moved to another stream,
    /// makes `named`, the dict's stream, wait for that stream.
    #[cold]
    pub(super) fn order_owners(
        &self,
        py: Python<'_>,
        door: &'static str,
        named: Stream,
    ) -> PyResult<Option<Earlier>> {
        if self.exports || !self.of_owner.has_cai || !self.moves() {
            return Ok(None);
        }
        let owners = match ready_by(self.owner, self.ptr)? {
            Some(Ready::On(stream)) if stream != named => stream,
            _ => return Ok(None),
        };
        let vouched = StreamRef::vouched(py, self.driver, owners, self.place)?;
        let kept = self.exporter(current::named(py, owners.handle(), self.place), vouched)?;
        let named = current::named(py, named.handle(), self.place);
        let captured = self.order(py, door, owners, named)?;
        Ok(Some(Earlier { stream: kept, captured }))
    }

    fn order(
        &self,
        py: Python<'_>,
        door: &'static str,
        earlier: Stream,
        later: Alive<'_>,
    ) -> PyResult<Captured> {
        let earlier = current::named(py, earlier.handle(), self.place);
        let purpose = Purpose::hand_over(door);
        let made = order::connect(purpose, self.driver, earlier, later, |call| detach(py, call))?;
        Ok(Captured::of(self.driver, Some(later), made)?)
    }

    /// A reference to the stream `named`, which the owner is taken to keep alive.
    fn exporter(&self, named: Alive<'_>, vouched: Option<StreamRef>) -> PyResult<StreamRef> {
        let by = DictExporter {
            exporter: self.owner,
            ptr: self.ptr,
            moves: self.moves(),
            besides: vouched,
            none_is_nothing: self.of_owner.says_what_is_pending(),
        };
        StreamRef::exported(self.driver, named, by)
    }

    /// For a dict that names no stream: the owner, if the owner's own dict can name a stream later.
    pub(super) fn unnamed(&self) -> PyResult<Option<Unnamed>> {
        if self.ptr == 0 || !self.moves() || !(self.exports || self.is_of_owner(Ready::Nothing)?) {
            return Ok(None);
        }
        let is_idle = self.of_owner.says_what_is_pending();
        Unnamed::new(self.driver, self.place, self.owner, self.ptr, is_idle).map(Some)
    }

    /// For a dict that was passed separately and says `ready`: whether the owner's own dict says the same for this
    /// memory. False if the owner is a view of the bridge.
    fn is_of_owner(&self, ready: Ready) -> PyResult<bool> {
        Ok(!self.owner.is_instance_of::<BaseView>()
            && ready_by(self.owner, self.ptr)? == Some(ready))
    }

    /// A reference to `stream`, the stream that the dict names, if anything keeps the stream alive. The specification
    /// requires the exporter to keep the stream alive; CuPy's arrays do not.
    pub(super) fn kept(&self, py: Python<'_>, stream: Stream) -> PyResult<Option<StreamRef>> {
        let alive = current::named(py, stream.handle(), self.place);
        if let (Some(object), Stream::Handle(_)) = (self.object, stream)
            && let Some(kept) = StreamRef::by_object(self.driver, object, alive)?
        {
            return Ok(Some(kept));
        }
        let vouched = StreamRef::vouched(py, self.driver, stream, self.place)?;
        let (of_now, moves) = (self.is_of_now(), self.moves());
        if vouched.is_some() && !moves {
            return Ok(vouched);
        }
        if self.of_owner.has(Habit::KeepsStreamObject)
            && let Some(kept) = StreamRef::by_attribute(self.driver, self.owner, alive)?
        {
            return Ok(Some(kept));
        }
        // A dict that was passed separately can still be the owner's own: then the owner keeps the stream alive.
        if (self.exports && !of_now) || (moves && self.is_of_owner(Ready::On(stream))?) {
            return self.exporter(alive, vouched).map(Some);
        }
        Ok(vouched)
    }
}
