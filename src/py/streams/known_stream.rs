//! Finds what keeps a stream alive after the call that named the stream.
#![allow(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;

use super::context::follows_legacy;
use super::current::{self, Objects};
use super::keeper::Keeper;
use super::name::StreamName;
use super::object::{handle_of, keeper};
use super::objects_by_handle;
use super::pools;
use super::reference::StreamRef;
use crate::device::Place;
use crate::driver::Handle;
use crate::py::interpreter::{FirstInterrupt, answered};
use crate::stream::{Alive, Stream};

#[derive(Debug)]
pub(crate) enum KnownStream {
    /// A stream whose keeper the bridge knows, or the legacy default stream in place of a blocking stream.
    Kept(StreamRef),
    /// A stream that may already be destroyed.
    Lost(StreamName),
}

impl KnownStream {
    pub(crate) fn of(py: Python<'_>, driver: &Handle, given: Alive<'_>) -> PyResult<Self> {
        keep(py, driver, given, None)
    }

    pub(crate) const fn unasked(stream: Stream) -> Self {
        Self::Lost(StreamName::unasked(stream))
    }

    /// Adds the streams that libraries work on now at `place` to `found`, as [`Self::of_library`] finds them. A stream
    /// whose lookup fails counts as lost.
    pub(crate) fn of_libraries(
        py: Python<'_>,
        driver: &Handle,
        place: Place,
        found: &mut Vec<Self>,
    ) -> PyResult<()> {
        let (mut interrupt, objects) = (FirstInterrupt::default(), Objects::default());
        current::each(py, driver, place, &objects, |alive, _| {
            let known = answered(py, Self::of_library(py, driver, alive, &objects));
            let unasked = || Some(Self::unasked(alive.stream()));
            found.extend(interrupt.pass(known).flatten().unwrap_or_else(unasked));
            Ok(())
        })?;
        interrupt.raise()
    }

    /// Finds what keeps a library's current stream. `None` if the answer would be the legacy default stream.
    pub(crate) fn of_library<'py>(
        py: Python<'py>,
        driver: &Handle,
        alive: Alive<'_>,
        objects: &Objects<'py>,
    ) -> PyResult<Option<Self>> {
        if alive.stream() == Stream::Legacy {
            return Ok(None);
        }
        let known = keep(py, driver, alive, objects.of(alive.stream()).as_ref())?;
        let stands_in = known.kept().is_some_and(StreamRef::stands_in);
        Ok((!stands_in).then_some(known))
    }

    pub(crate) const fn kept(&self) -> Option<&StreamRef> {
        match self {
            Self::Kept(kept) => Some(kept),
            Self::Lost(_) => None,
        }
    }

    pub(crate) fn name(&self) -> (StreamName, Option<Place>) {
        match self {
            Self::Kept(kept) => (kept.name(), Some(kept.place())),
            Self::Lost(name) => (*name, None),
        }
    }

    /// Returns `self` if `known` already has the stream. Dropping the returned value can run arbitrary code.
    pub(crate) fn add_to(self, known: &mut Vec<Self>) -> Option<Self> {
        if known.iter().any(|other| other.name() == self.name()) {
            return Some(self);
        }
        known.push(self);
        None
    }

    /// For [`Self::Lost`], compares only the handles: a later stream with the same handle also matches.
    pub(crate) fn is(&self, other: Alive<'_>) -> bool {
        match self {
            Self::Kept(kept) => kept.is(other),
            Self::Lost(name) => name.stream() == other.stream(),
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kept(kept), Self::Kept(other)) => kept.is_same(other),
            (Self::Lost(name), Self::Lost(other)) => name == other,
            _ => false,
        }
    }

    pub(crate) fn stream(&self) -> (Stream, Option<Place>) {
        match self {
            Self::Kept(kept) => (kept.stream(), Some(kept.place())),
            Self::Lost(name) => (name.stream(), None),
        }
    }

    /// For a stream of a library that names one stream and computes on another (JAX): the stream on which the library
    /// computes, or a lost stream if the library does not name that stream.
    #[inline]
    pub(crate) fn works_on(&self, py: Python<'_>, driver: &Handle) -> PyResult<Option<Self>> {
        if pools::has_apart() { self.apart(py, driver) } else { Ok(None) }
    }

    #[cold]
    fn apart(&self, py: Python<'_>, driver: &Handle) -> PyResult<Option<Self>> {
        let (Stream::Handle(handle), Some(place)) = self.stream() else { return Ok(None) };
        let Some(pool) = pools::apart(handle, place.ordinal) else { return Ok(None) };
        let Some(native) = pool.computes_on(py, place.ordinal)? else {
            return Ok(Some(Self::unasked(Stream::Handle(handle))));
        };
        // SAFETY: the library never destroys the stream on which it computes (`StreamPool::computes_on`).
        let alive = unsafe { Alive::kept(Stream::Handle(native), place) };
        Ok(Some(Self::Kept(StreamRef::new(driver, alive, Keeper::Always)?)))
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Kept(kept) => Self::Kept(kept.clone_ref(py)),
            Self::Lost(name) => Self::Lost(*name),
        }
    }
}

/// A list of streams. An empty list needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct KnownStreams(#[allow(clippy::box_collection)] Option<Box<Vec<KnownStream>>>);

impl KnownStreams {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn add(&mut self, known: KnownStream) -> Option<KnownStream> {
        known.add_to(self.0.get_or_insert_default())
    }

    #[inline]
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let all = |all: &Vec<KnownStream>| all.iter().map(|known| known.clone_ref(py)).collect();
        Self(self.0.as_deref().map(|streams| Box::new(all(streams))))
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, KnownStream> {
        self.0.as_deref().map_or(&[][..], Vec::as_slice).iter()
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn take(&mut self) -> Vec<KnownStream> {
        self.0.take().map_or_else(Vec::new, |all| *all)
    }
}

impl StreamRef {
    /// A reference to `stream`, if `stream` is never destroyed: a default stream, or a stream in a library's pool.
    pub(crate) fn pooled(
        py: Python<'_>,
        driver: &Handle,
        stream: Stream,
        place: Place,
    ) -> PyResult<Option<Self>> {
        if let Stream::Handle(handle) = stream
            && !pools::has(py, driver, handle, place.ordinal)?
        {
            return Ok(None);
        }
        // SAFETY: `stream` is a default stream, or `pools::has` has just found it in the pool of a library that never
        // destroys its streams.
        let alive = unsafe { Alive::kept(stream, place) };
        Ok(Some(Self::new(driver, alive, Keeper::Always)?))
    }

    /// Like [`Self::pooled`]. For other streams, a reference by the stream object of a library that works on `stream`
    /// now, if the object keeps the stream alive.
    pub(crate) fn vouched(
        py: Python<'_>,
        driver: &Handle,
        stream: Stream,
        place: Place,
    ) -> PyResult<Option<Self>> {
        if let Some(pooled) = Self::pooled(py, driver, stream, place)? {
            return Ok(Some(pooled));
        }
        let object = current::object(py, driver, stream.handle(), place.ordinal)?;
        let Some(object) = object else { return Ok(None) };
        // SAFETY: a library works on the stream now, and the library's stream object has just returned this handle.
        let alive = unsafe { Alive::kept(stream, place) };
        Self::by_object(driver, &object, alive)
    }

    /// A reference by the exporter's attribute `stream`, if that is a stream object with the handle of `alive` which
    /// keeps the stream alive.
    pub(crate) fn by_attribute(
        driver: &Handle,
        exporter: &Bound<'_, PyAny>,
        alive: Alive<'_>,
    ) -> PyResult<Option<Self>> {
        let py = exporter.py();
        let Some(object) = exporter.getattr_opt(intern!(py, "stream"))? else { return Ok(None) };
        if answered(py, handle_of(&object))? != Some(alive.native()) {
            return Ok(None);
        }
        Self::by_object(driver, &object, alive)
    }

    /// `None` if `object` is not known to keep its stream alive.
    pub(crate) fn by_object(
        driver: &Handle,
        object: &Bound<'_, PyAny>,
        alive: Alive<'_>,
    ) -> PyResult<Option<Self>> {
        let keeper = keeper(object)?;
        Ok(keeper.map(|keeper| Self::new(driver, alive, keeper)).transpose()?)
    }
}

pub(super) fn keep(
    py: Python<'_>,
    driver: &Handle,
    given: Alive<'_>,
    object: Option<&Bound<'_, PyAny>>,
) -> PyResult<KnownStream> {
    if given.stands_in() {
        return Ok(KnownStream::Kept(StreamRef::standing_in(given.place())));
    }
    let (Stream::Handle(handle), place) = (given.stream(), given.place()) else {
        return Ok(KnownStream::Kept(StreamRef::new(driver, given, Keeper::Always)?));
    };
    if let Some(object) = object
        && let Some(keeper) = keeper(object)?
    {
        return Ok(KnownStream::Kept(StreamRef::new(driver, given, keeper)?));
    }
    if let Some(vouched) = StreamRef::vouched(py, driver, given.stream(), place)? {
        return Ok(KnownStream::Kept(vouched));
    }
    let object = match objects_by_handle::object_of(py, handle) {
        Some(object) => Some(object),
        None => current::object_by_function(py, handle, place.ordinal)?,
    };
    if let Some(keeper) = object.map(|object| keeper(&object)).transpose()?.flatten() {
        return Ok(KnownStream::Kept(StreamRef::new(driver, given, keeper)?));
    }
    Ok(if follows_legacy(driver, given)? {
        KnownStream::Kept(StreamRef::standing_in(place))
    } else {
        KnownStream::Lost(StreamName::of(driver, given)?)
    })
}
