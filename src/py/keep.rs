//! What a view, or a managed tensor that it handed out, holds, and how that ends.
//!
//! Each holder has Python references of its own, so that the garbage collector's count of them is
//! right. The managed tensor of a DLPack producer has no reference count; it is shared from the
//! second holder on.
//!
//! A holder ends by giving the memory back in order ([`super::back`]), then the references go; where
//! that cannot be just now, later ([`super::ending`]).

use std::sync::Arc;

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::adopt::Live;
use super::back::{Back, Given, give_back};
use super::ending::{Ending, Held};
use super::traced::{Began, Came, End};
use super::{parked, unraised};
use crate::descriptor::Descriptor;
use crate::error::Result;
use crate::order::Place;
use crate::stream::{Request, Stream};

/// References that keep memory and stream alive.
#[derive(Debug)]
pub(super) struct Keep(Option<Kept>);

#[derive(Debug)]
struct Kept {
    producer: Py<PyAny>,
    managed: Tensor,
    /// What keeps the stream alive that the array is ready on.
    stream: Option<Py<PyAny>>,
    back: Back,
    /// The array's address, and how this will have ended if nobody says otherwise.
    tag: (End, u64),
}

enum Tensor {
    None,
    Sole(ImportedDlpack),
    Shared(Arc<ImportedDlpack>),
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Sole(_) => "Sole",
            Self::Shared(_) => "Shared",
        })
    }
}

impl Keep {
    /// Holds `producer`, its managed tensor, and the object of the stream that the array is ready on.
    pub(super) fn new(
        producer: Py<PyAny>,
        managed: Option<ImportedDlpack>,
        stream: Option<Py<PyAny>>,
        back: Back,
    ) -> Self {
        let managed = managed.map_or(Tensor::None, Tensor::Sole);
        Self(Some(Kept { producer, managed, stream, back, tag: (End::Call, 0) }))
    }

    /// The producer.
    pub(super) fn producer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.0.as_ref().map(|kept| kept.producer.clone_ref(py))
    }

    /// Another holder of the same, for a consumer that [`Keep::hand_to`] names. It keeps the stream
    /// alive that the array is ready on: by `stream` where that is another one now. Refused in a fork
    /// of the process whose memory it is.
    pub(super) fn share(&mut self, py: Python<'_>, stream: Option<Py<PyAny>>) -> Result<Self> {
        let Some(kept) = &mut self.0 else { return Ok(Self(None)) };
        kept.back.process.check()?;
        Ok(Self(Some(Kept {
            producer: kept.producer.clone_ref(py),
            managed: kept.managed.share(),
            stream: stream.or_else(|| kept.stream.as_ref().map(|held| held.clone_ref(py))),
            back: kept.back.share(py),
            tag: (End::Call, kept.tag.1),
        })))
    }

    /// The same for the consumer that this is for, until another is named.
    pub(super) fn share_with_consumer(
        &mut self,
        py: Python<'_>,
        stream: Option<Py<PyAny>>,
    ) -> Result<Self> {
        let mut shared = self.share(py, stream)?;
        if let (Some(kept), Some(own)) = (&mut shared.0, &self.0) {
            kept.back.consumer = own.back.consumer.as_ref().map(|live| live.clone_ref(py));
        }
        Ok(shared)
    }

    /// The array was made ready for a consumer as `request` asks, on the stream that `object` is of.
    pub(super) fn hand_to(
        &mut self,
        py: Python<'_>,
        array: &Descriptor,
        request: Request,
        object: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.0.as_mut().map_or(Ok(()), |kept| kept.back.hand_to(py, array, request, object))
    }

    /// The same for the consumer of a view, which is told that stream.
    pub(super) fn tell(
        &mut self,
        py: Python<'_>,
        array: &Descriptor,
        request: Request,
        object: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let held = object.as_ref().map(|object| object.clone_ref(py));
        self.hand_to(py, array, request, held)?;
        if let Some(kept) = &mut self.0
            && object.is_some()
        {
            kept.stream = object;
        }
        Ok(())
    }

    /// The consumer's device is not the producer's: `place` is its own.
    pub(super) fn move_to(&mut self, place: Place) {
        if let Some(kept) = &mut self.0 {
            kept.back.move_to(place);
        }
    }

    /// Says who holds it from now on, by how that ends.
    pub(super) fn ends_by(&mut self, end: End) {
        if let Some(kept) = &mut self.0 {
            kept.tag.0 = end;
        }
    }

    /// A view of the memory at `ptr` holds it.
    pub(super) fn held_by_view(&mut self, ptr: u64) {
        if let Some(kept) = &mut self.0 {
            kept.tag = (End::LastReference, ptr);
        }
    }

    /// Whether `stream` is the producer's own.
    pub(super) fn is_home(&self, stream: Stream) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.back.is_home(stream))
    }

    /// The array is lent to whoever reads it by the exchange API.
    pub(super) fn lend(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.back.lent_out = true;
        }
    }

    /// A caller declares the producer's stream, beside the one that is known.
    pub(super) fn declare(&mut self, declared: Option<Live>) {
        if let Some(kept) = &mut self.0 {
            kept.back.declared = declared;
        }
    }

    /// How the memory goes back.
    pub(super) fn back(&self, py: Python<'_>) -> Option<Back> {
        self.0.as_ref().map(|kept| kept.back.clone_ref(py))
    }

    /// Ends it in the hands of the garbage collector, which may have taken apart by now what else is
    /// garbage: an exporter vouches for no stream any more that would have to be touched.
    pub(super) fn end_collected(mut self) {
        if let Some(Kept { back, tag, .. }) = &mut self.0 {
            tag.0 = End::Collected;
            let shared = |live: &Live| back.is_home(live.stream);
            let same = back.consumer.as_ref().is_some_and(shared);
            if back.home.as_ref().is_some_and(|home| home.lent)
                && !(same && back.declared.is_none())
            {
                back.home = None;
                // Nobody vouches for a consumer's stream either that only the exporter did.
                back.consumer = back.consumer.take().filter(|live| !same || live.object.is_some());
            }
        }
    }

    /// Ends it where [`give_back`] has done what it can.
    pub(super) fn end_given(mut self, py: Python<'_>, given: Given, began: Began) {
        if let Some(kept) = self.0.take() {
            Ending::new(kept, Some(given)).end(py, began);
        }
    }

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(kept) = &self.0 {
            visit.call(&kept.producer)?;
            visit.call(&kept.stream)?;
            let lives = [&kept.back.home, &kept.back.declared, &kept.back.consumer];
            for live in lives.into_iter().flatten() {
                visit.call(&live.object)?;
            }
        }
        Ok(())
    }
}

impl Held for Kept {
    fn back(&self) -> &Back {
        &self.back
    }

    fn tag(&self) -> (End, u64) {
        self.tag
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.back.process.is_current() {
            std::mem::forget(std::mem::replace(&mut self.managed, Tensor::None));
        }
    }
}

impl Tensor {
    fn share(&mut self) -> Self {
        let shared = match std::mem::replace(self, Self::None) {
            Self::None => return Self::None,
            Self::Sole(managed) => Arc::new(managed),
            Self::Shared(managed) => managed,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }
}

impl Drop for Keep {
    /// Ends with the interpreter attached, from whatever thread this is. Where the interpreter is
    /// gone, or going, everything is left as it is: a leak at the end of a process harms nobody, a
    /// foreign deleter without its interpreter may.
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let (kept, began) = (&mut self.0, Began::now());
        let attached = Python::try_attach(|py| {
            unraised::during(py, || {
                parked::look(py);
                end(py, kept, began);
            });
        });
        if attached.is_none()
            && let Some(kept) = self.0.take()
        {
            began.released(kept.tag, Came::Lost);
            std::mem::forget(kept);
        }
    }
}

fn end(py: Python<'_>, kept: &mut Option<Kept>, began: Began) {
    if let Some(settled) = kept.as_ref().filter(|kept| kept.back.is_settled()) {
        // Elided, which cannot fail; it is told of.
        let _ = give_back(py, "release", &settled.back, None);
        let tag = settled.tag;
        *kept = None;
        began.released(tag, Came::Done);
    } else if let Some(kept) = kept.take() {
        Ending::new(kept, None).end(py, began);
    }
}
