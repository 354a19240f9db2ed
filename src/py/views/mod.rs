//! Views: the state and the methods that the views of all protocols share.

mod array;
mod cai;
mod class;
mod copy;
mod dlpack;
mod export;
mod export_request;
mod reader;
mod release;
mod wait;

pub(crate) use array::ArrayView;
pub(crate) use cai::CaiView;
pub(crate) use copy::{_to_numpy, CAPTURED, capsule_of_copy, copy_held, copy_is_for};
pub(crate) use dlpack::DLPackView;

use std::sync::atomic::{AtomicBool, Ordering};

use ::numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyClass, PyClassInitializer};

use super::lease::{HeldMemory, MemoryGuard};
use super::library::ArrayParts;
use super::numpy;
use super::observe::{By, EndedBy, PassedArray};
use super::source::consumers_place;
use super::text::{place_text, tuple_text};
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::{Error, Kind, Result};
use crate::lease::Lease;
use crate::stream::{Ready, Stream, Thread};

/// A view of an array on a GPU: it owns only references to the producer. This is the base class of `CaiView`,
/// `DLPackView` and `Array`.
#[pyclass(frozen, subclass, weakref, module = "cai_bridge._core", name = "_View")]
#[allow(missing_debug_implementations, reason = "a cell of PyO3 has none")]
pub(crate) struct BaseView {
    pub(crate) array: Descriptor,
    ready: Ready,
    /// Whether the host has waited for the array's pending work.
    waited: AtomicBool,
    pub(crate) place: Place,
    pub(crate) driver: Handle,
    by: By,
    lease: Lease<MemoryGuard>,
    /// A cached CAI dict, and the stream that the dict names. For an element type that only CAI can express: the
    /// typestr and `descr` of the producer's dict.
    dict: PyOnceLock<Box<(Option<u64>, Py<PyDict>)>>,
}

/// Makes the objects of a view class larger than the base class's: Python then refuses to change a view's `__class__`.
#[derive(Debug, Default)]
pub(crate) struct Room(#[expect(dead_code, reason = "it is its size that counts")] usize);

impl BaseView {
    #[inline(always)]
    fn new(py: Python<'_>, mut source: Box<HeldMemory>) -> Self {
        let place = source.producer_side.place;
        source.place_readers(consumers_place(&source.array, place));
        let dict = PyOnceLock::new();
        if let Some(words) = source.words() {
            let _ = dict.set(py, Box::new((None, words.clone_ref(py))));
        }
        Self {
            // An array without elements has nothing pending, whatever `source.ready` is.
            ready: source.array.pending(source.ready),
            waited: AtomicBool::new(false),
            array: source.take_array(EndedBy::LastReference),
            place,
            driver: source.driver.clone(),
            by: source.by,
            lease: Lease::new(MemoryGuard::new(source)),
            dict,
        }
    }

    /// The typestr and `descr` of the producer's dict, if DLPack cannot express the element type.
    pub(crate) fn words<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyDict>> {
        let is_alone = self.array.dtype().is_cais_alone();
        self.dict.get(py).filter(|_| is_alone).map(|words| words.1.bind(py))
    }

    #[inline(never)]
    pub(crate) fn object<C>(py: Python<'_>, source: Box<HeldMemory>) -> PyResult<Bound<'_, C>>
    where
        C: PyClass<BaseType = Self> + Default,
        PyClassInitializer<C>: From<(C, Self)>,
    {
        Bound::new(py, PyClassInitializer::from((C::default(), Self::new(py, source))))
    }

    /// Returns another holder of the view's array, for a new view. Fails if this view was released.
    pub(crate) fn unwrap(&self, py: Python<'_>) -> PyResult<Box<HeldMemory>> {
        let mut source = self.with_memory(|held| held.share_with_consumer(py))??;
        source.array = self.array.clone();
        source.ready_by_now(py, self.ready())?;
        Ok(source)
    }

    /// The array's readiness when the view was made.
    #[inline]
    pub(crate) const fn ready(&self) -> Ready {
        self.ready
    }

    /// [`Self::ready`], or [`Ready::Nothing`] once the host has waited.
    #[inline]
    pub(crate) fn told(&self) -> Ready {
        if self.waited.load(Ordering::Acquire) { Ready::Nothing } else { self.ready }
    }

    /// [`Self::told`], or the stream that the producer has named since. `held` must come from
    /// [`Self::share_for_hand_over`].
    pub(super) fn told_by_now(&self, held: &HeldMemory) -> Ready {
        if held.ready == self.ready() { self.told() } else { held.ready }
    }

    pub(crate) fn share(&self, py: Python<'_>) -> Result<Box<HeldMemory>> {
        self.with_memory(|held| held.share(py))?
    }

    /// Like [`Self::share`]. If the producer had named no stream, asks the producer again.
    pub(crate) fn share_for_hand_over(&self, py: Python<'_>) -> PyResult<Box<HeldMemory>> {
        let mut shared = self.share(py)?;
        shared.ready_by_now(py, self.ready())?;
        Ok(shared)
    }

    /// Fails if the view was released or has lost its memory. The lease is locked, so `look` must not use the lease.
    pub(crate) fn with_memory<R>(&self, look: impl FnOnce(&mut HeldMemory) -> R) -> Result<R> {
        let of_guard =
            |guard: &mut MemoryGuard| guard.memory_mut().filter(|held| !held.is_lost()).map(look);
        self.lease.with(of_guard).flatten().ok_or_else(released)
    }

    /// Records a read in `held`. Returns whether the reader named no stream; false for an array without elements.
    fn reads(&self, py: Python<'_>, held: &mut HeldMemory) -> bool {
        self.array.ptr() != 0 && held.read(py)
    }

    fn is_read(&self, py: Python<'_>) -> bool {
        self.with_memory(|held| self.reads(py, held)).unwrap_or(false)
    }

    /// The GPU and context in which the view's consumers work ([`consumers_place`]).
    pub(crate) fn at(&self) -> Place {
        consumers_place(&self.array, self.place)
    }

    pub(crate) fn passed_in(&self, door: &'static str) -> PassedArray<'_> {
        self.passed(door, self.by.as_str(), self.ready().stream())
    }

    pub(crate) const fn passed(
        &self,
        door: &'static str,
        by: &'static str,
        stream: Option<Stream>,
    ) -> PassedArray<'_> {
        PassedArray { door, by, array: &self.array, stream }
    }

    /// Fails if the size of an element is not a whole number of bytes.
    fn check_whole(&self) -> Result<()> {
        let dtype = self.array.dtype();
        if dtype.is_packed() { dtype.check_shared() } else { Ok(()) }
    }

    pub(crate) fn check_leased(&self) -> Result<()> {
        self.with_memory(|_| ())
    }

    pub(crate) fn pair(&self) -> (u32, i32) {
        let device = self.array.device();
        (device.kind.code(), device.id)
    }

    pub(crate) fn numpys_dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        match self.words(py) {
            Some(words) => numpy::dtype_of_words(words),
            None => numpy::dtype(py, self.array.dtype()),
        }
    }

    /// Records a read of the view ([`HeldMemory::read`]).
    pub(crate) fn parts<'py>(&self, py: Python<'py>) -> PyResult<ArrayParts<'py>> {
        self.is_read(py);
        let (array, (_, device)) = (&self.array, self.pair());
        let strides = (!array.layout().is_contiguous())
            .then(|| PyTuple::new(py, array.cai_steps()))
            .transpose()?;
        Ok(ArrayParts {
            ptr: array.ptr(),
            nbytes: array.nbytes(),
            device,
            shape: PyTuple::new(py, array.cai_extents())?,
            dtype: self.numpys_dtype(py)?.into_any(),
            strides,
        })
    }

    pub(crate) fn describe(&self, py: Python<'_>) -> String {
        let shape = self.array.cai_shape();
        let place = place_text(self.array.device());
        let ready = match self.told().to_cai(Thread::current()) {
            None => "nothing pending".to_owned(),
            Some(1) => "ready on the legacy default stream (1)".to_owned(),
            Some(2) => "ready on the per-thread default stream (2)".to_owned(),
            Some(handle) => format!("ready on stream {handle:#x}"),
        };
        let layout = if self.array.layout().is_contiguous() {
            String::new()
        } else if self.array.dtype().is_packed() {
            format!(" strides={} items", tuple_text(self.array.layout().strides()))
        } else {
            format!(" strides={}", tuple_text(self.array.cai_strides().as_slice()))
        };
        let readonly = if self.array.readonly() { ", read-only" } else { "" };
        let released = if self.lease.is_leased() { "" } else { ", released" };
        let dtype = self.array.dtype();
        let name = if dtype.is_shared() { dtype.name().to_owned() } else { format!("{dtype:?}") };
        let name = self.words(py).and_then(typestr).unwrap_or(name);
        format!(
            "{name} {}{layout} at {:#x} on {place}, {ready}{readonly}{released}",
            tuple_text(shape.as_slice()),
            self.array.ptr(),
        )
    }
}

impl Drop for BaseView {
    fn drop(&mut self) {
        if let Some(guard) = self.lease.end_unshared() {
            guard.end();
        }
    }
}

#[cold]
fn released() -> Error {
    Error::new(Kind::Released, "a released view")
}

fn typestr(words: &Bound<'_, PyDict>) -> Option<String> {
    words.get_item("typestr").ok().flatten().map(|typestr| typestr.to_string())
}
