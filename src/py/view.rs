//! What both views are, whichever protocol they speak: their state, and what is done with it.

use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::back::{Back, Given, give_back};
use super::keep::Keep;
use super::source::{By, Source, check_stream};
use super::traced::{Began, Came, End, Passage};
use super::{parked, stream, unraised};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::driver::Handle;
use crate::error::{Error, Kind, Result};
use crate::order::Place;
use crate::owner::Owner;
use crate::stream::{Ready, Request, Stream, Thread};

/// A view of an array on a GPU: it owns nothing but references to the producer.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) array: Descriptor,
    pub(super) ready: Ready,
    pub(super) place: Place,
    pub(super) driver: Handle,
    /// By which door it came in.
    pub(super) by: By,
    owner: Owner<Keep>,
}

impl View {
    /// A view of `source`, read-only as the caller wants it.
    pub(super) fn new(source: Source, readonly: Option<bool>) -> Self {
        let Source { array, ready, place, driver, mut keep, by } = source;
        keep.held_by_view(array.ptr());
        // Nothing is ever pending on no bytes, whatever stream was asked for.
        let ready = array.pending(ready);
        Self {
            array: array.with_readonly(readonly),
            ready,
            place,
            driver,
            by,
            owner: Owner::new(keep),
        }
    }

    /// The same array for another view: a reference of its own, nothing stacked. `stream` is the object
    /// of the stream that the array is ready on there, where that is another one.
    pub(super) fn unwrap(&self, py: Python<'_>, stream: Option<Py<PyAny>>) -> Result<Source> {
        // Whoever reads the other view is told the same stream, unless it is for another one.
        let keep =
            self.owner.with(|keep| keep.share_with_consumer(py, stream)).ok_or_else(released)??;
        Ok(Source {
            array: self.array.clone(),
            ready: self.ready,
            place: self.place,
            driver: self.driver.clone(),
            keep,
            by: By::View,
        })
    }

    /// References for somebody else who needs the memory, and `stream` where the array is ready on
    /// that one there.
    pub(super) fn share(&self, py: Python<'_>, stream: Option<Py<PyAny>>) -> Result<Keep> {
        self.owner.with(|keep| keep.share(py, stream)).ok_or_else(released)?
    }

    /// How the array came in through `door`.
    pub(super) const fn passage_in(&self, door: &'static str) -> Passage<'_> {
        self.passage(door, self.by.as_str(), self.ready.stream())
    }

    /// The array going through `door`, ready on `stream` there.
    pub(super) const fn passage(
        &self,
        door: &'static str,
        by: &'static str,
        stream: Option<Stream>,
    ) -> Passage<'_> {
        Passage { door, by, array: &self.array, stream }
    }

    fn back(&self, py: Python<'_>) -> Option<Back> {
        self.owner.with(|keep| keep.back(py)).flatten()
    }

    /// Notes that a borrower may work on the array, on the legacy default stream.
    pub(super) fn lend(&self) {
        if self.array.ptr() != 0 {
            self.owner.with(Keep::lend);
        }
    }

    /// Refuses a view that was released.
    pub(super) fn check_kept(&self) -> Result<()> {
        if self.owner.is_kept() { Ok(()) } else { Err(released()) }
    }

    /// Gives the memory back: the producer's stream waits for the consumer's and for the one that
    /// `stream` names, then the references go. Where the order fails, everything stays as it was.
    pub(super) fn release(
        &self,
        py: Python<'_>,
        given: Option<&Bound<'_, PyAny>>,
        end: End,
    ) -> PyResult<()> {
        let began = Began::now();
        let (request, _alive) = stream::parse(given)?;
        let Some(back) = self.back(py) else { return Ok(()) };
        if !back.process.is_current() {
            self.clear();
            return Ok(());
        }
        let also = match request {
            Request::On(stream) if self.array.ptr() != 0 => Some(stream),
            _ => None,
        };
        check_stream(&self.array, &self.driver, self.place, request)?;
        let given = match request {
            // The caller vouches that the consumer is done.
            Request::NoOrder => Given::Now,
            _ => give_back(py, "release", &back, also)
                .inspect_err(|_| began.released((end, self.array.ptr()), Came::Failed))?,
        };
        // Ended outside the owner's lock: the producer's end may run anything.
        if let Some(mut keep) = self.owner.release() {
            keep.ends_by(end);
            unraised::during(py, || keep.end_given(py, given, began));
        }
        parked::look(py);
        Ok(())
    }

    /// The same at the end of a `with` block. An exception that is on its way there is not replaced:
    /// what fails is then reported as unraisable, and done later.
    pub(super) fn exit(&self, py: Python<'_>, raised: bool) -> PyResult<()> {
        match self.release(py, None, End::With) {
            Err(error) if raised => {
                error.write_unraisable(py, None);
                Ok(())
            }
            released => released,
        }
    }

    /// Lets go of the producer for the garbage collector.
    pub(super) fn clear(&self) {
        if let Some(keep) = self.owner.release() {
            keep.end_collected();
        }
    }

    /// The producer, until it is let go.
    pub(super) fn producer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.owner.with(|keep| keep.producer(py)).flatten()
    }

    /// Shows the garbage collector what is held.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.owner.try_with(|keep| keep.visit(visit)).unwrap_or(Ok(()))
    }

    /// DLPack's pair.
    pub(super) fn device(&self) -> (u32, i32) {
        let device = self.array.device();
        (device.kind.code(), device.id)
    }

    /// The element type as a `numpy.dtype`.
    pub(super) fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dtype = self.array.dtype();
        let numpy = py.import("numpy")?;
        if dtype.typestr().as_bytes().get(1) == Some(&b'V') {
            match py.import("ml_dtypes") {
                Ok(extended) => {
                    if let Ok(scalar) = extended.getattr(dtype.name()) {
                        return numpy.call_method1("dtype", (scalar,));
                    }
                }
                Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {}
                Err(error) => return Err(error),
            }
        }
        numpy.call_method1("dtype", (dtype.typestr(),))
    }

    /// What `repr` shows after the class's name.
    pub(super) fn describe(&self) -> String {
        let shape = self.array.cai_shape();
        let place = place_text(self.array.device());
        let ready = match self.ready.to_cai(Thread::current()) {
            None => "nothing pending".to_owned(),
            Some(1) => "ready on the legacy default stream (1)".to_owned(),
            Some(2) => "ready on the per-thread default stream (2)".to_owned(),
            Some(handle) => format!("ready on stream {handle:#x}"),
        };
        let layout = if self.array.layout().is_contiguous() {
            String::new()
        } else {
            format!(" strides={}", tuple_text(self.array.cai_strides().as_slice()))
        };
        let readonly = if self.array.readonly() { ", read-only" } else { "" };
        let kept = if self.owner.is_kept() { "" } else { ", released" };
        format!(
            "{} {}{layout} at {:#x} on {place}, {ready}{readonly}{kept}",
            self.array.dtype().name(),
            tuple_text(shape.as_slice()),
            self.array.ptr(),
        )
    }
}

#[cold]
fn released() -> Error {
    Error::new(Kind::Released, "a released view")
}

pub(super) fn place_text(device: Device) -> String {
    match device.kind {
        MemoryKind::Device => format!("cuda:{}", device.id),
        MemoryKind::Host => "pinned host memory".to_owned(),
        MemoryKind::Managed => "managed memory".to_owned(),
    }
}

pub(super) fn tuple_text(values: &[i64]) -> String {
    let items: Vec<String> = values.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.join(", ")),
    }
}
