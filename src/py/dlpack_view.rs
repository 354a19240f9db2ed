//! `DLPackView`: an array as DLPack has it, and `from_cai`, which makes it.

use dlpark::Managed;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use super::back::Back;
use super::cai_source::{self, Said};
use super::cai_view::CaiView;
use super::copied;
use super::keep::Keep;
use super::shared::{self, Asked, DOOR};
use super::source::{By, Source, hand_over};
use super::traced::{Began, End};
use super::types::{Speaks, facts};
use super::view::View;
use super::view_class::view_class;
use super::wish::{Target, Wish, wish};
use super::{flag, stream};
use crate::descriptor::Descriptor;
use crate::device::Device;
use crate::dlpack::encode;
use crate::dlpack::exchange::{Exchange, exchange_producer};
use crate::driver;
use crate::error::{Error, Kind, Result};
use crate::order::Place;
use crate::stream::{Ready, Request, Stream};

view_class! {
/// An array that speaks DLPack and nothing else: ``__dlpack__``, ``__dlpack_device__`` and, on the
/// type, the exchange API.
///
/// Made by `from_cai`. Consumers that know both protocols pick one by rules of their own, so a view
/// speaks the one that was asked for.
DLPackView {
    /// A capsule with the array, or with a copy of it, usable on the consumer's stream.
    ///
    /// The consumer's stream waits for the producer's by an event; the host does not wait, but for a
    /// copy in its own memory.
    ///
    /// Parameters
    /// ----------
    /// stream : None, int or stream object, optional
    ///     The consumer's stream, of the device that it asks for: 1 or None the legacy default stream,
    ///     2 the per-thread one, a handle; -1 asks for no order. 0 is refused as ambiguous.
    /// max_version : tuple of (int, int), optional
    ///     The newest DLPack that the consumer knows. From (1, 0) on the capsule is versioned, and says
    ///     of a copy that it is one.
    /// dl_device : tuple of (int, int), optional
    ///     None or the array's own device; ``(2, id)``, another GPU, to which the array is copied,
    ///     unless its memory is managed or pinned, which every GPU reaches; ``(1, 0)``, the CPU, for
    ///     which it is copied into host memory.
    /// copy : bool, optional
    ///     None copies where there is no other way, True always, False never.
    ///
    /// Returns
    /// -------
    /// capsule
    ///     Named ``dltensor_versioned``, or ``dltensor`` for a consumer that asks for no version. A copy
    ///     is C-contiguous, aligned to 256 bytes, and may be written.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     A device that cannot be; False where a copy is needed; a copy in pinned or managed memory, or
    ///     of more than the host has memory for; read-only memory, not copied, in a legacy capsule; a
    ///     released view.
    /// ValueError, TypeError
    ///     A malformed argument.
    /// DriverError
    ///     A call of the CUDA driver failed.
    ///
    /// Notes
    /// -----
    /// A copy on a GPU is queued on the consumer's stream, with -1 on the producer's, in stream-ordered
    /// memory that goes back on the stream when the consumer is done. With -1, or a bare handle that no
    /// imported library works on, nobody vouches for the stream by then, so the host waits for the
    /// context's work before the memory goes back: give the stream object.
    ///
    /// DLPack 1.3, "Python Specification"; Python array API 2025.12, ``array.__dlpack__``.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let began = Began::now();
        hand_out(py, &self.0, (stream, max_version), (dl_device, copy), began)
            .inspect_err(|error| began.refused(DOOR, error))
    }

    /// ``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory.
    fn __dlpack_device__(&self) -> (u32, i32) {
        self.0.device()
    }
}
}

/// A capsule for a consumer's stream and newest version, and its wishes for a device and a copy.
#[inline]
fn hand_out<'py>(
    py: Python<'py>,
    view: &View,
    (stream, max_version): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
    (dl_device, copy): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
    began: Began,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, object) = stream::parse(stream)?;
    let (request, versioned) = (request.or_legacy(), wants_versioned(max_version)?);
    let copy = flag::parse("copy", copy)?;
    let asked = Asked { request, object, versioned };
    let capsule = match wish(view.array.device(), dl_device, copy)? {
        Wish::Own => shared::own(py, view, asked),
        Wish::Shared(device) => shared::on(py, view, device, asked),
        Wish::Copy(Target::Gpu(ordinal)) => copied::to_gpu(py, view, ordinal, asked),
        Wish::Copy(Target::Host) => copied::to_host(py, view, versioned),
    }?;
    let by = if versioned { "dltensor_versioned" } else { "dltensor" };
    began.exchanged(view.passage(DOOR, by, request.stream()));
    Ok(capsule)
}

fn wants_versioned(max_version: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(max_version) = max_version else { return Ok(false) };
    let pair = max_version.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let numbers = pair.and_then(|pair| pair.extract::<(i64, i64)>().ok());
    if let Some((major, _)) = numbers {
        return Ok(major >= 1);
    }
    // Integers of any size are versions.
    match pair {
        Some(pair) if pair.iter().all(|item| item.is_exact_instance_of::<PyInt>()) => {
            pair.get_item(0)?.gt(0)
        }
        _ => Err(Error::new(Kind::MaxVersion, stream::shown(max_version)).into()),
    }
}

/// The exchange API, as a door.
const EXCHANGE: &str = "exchange API";

/// Makes the array usable on the legacy default stream, which is the one that
/// [`Exchange::work_stream`] names: the exchange API has no stream of the consumer.
fn onto_legacy(py: Python<'_>, view: &View) -> Result<()> {
    hand_over(py, EXCHANGE, &view.driver, view.place, view.ready, Request::On(Stream::Legacy))
}

fn export(py: Python<'_>, view: &View) -> PyResult<Managed<DLManagedTensorVersioned>> {
    let mut keep = Box::new(view.share(py, None)?);
    onto_legacy(py, view)?;
    // Whoever imports it is told to work there.
    keep.hand_to(py, &view.array, Request::On(Stream::Legacy), None)?;
    keep.ends_by(End::Deleter);
    Ok(encode::versioned(&view.array, keep)?)
}

fn borrow<'a>(py: Python<'_>, view: &'a View) -> Result<&'a Descriptor> {
    if view.array.readonly() {
        return Err(Error::new(Kind::ReadOnlyBorrowed, "read-only memory"));
    }
    // Held across the order, during which others run, and looked at again after it.
    let _held = view.share(py, None)?;
    onto_legacy(py, view)?;
    view.check_kept()?;
    view.lend();
    Ok(&view.array)
}

impl Exchange for DLPackView {
    fn export(&self, py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let began = Began::now();
        let made = export(py, &self.0);
        began.told(self.0.passage(EXCHANGE, "managed tensor", Some(Stream::Legacy)), made)
    }

    fn borrow(&self, py: Python<'_>) -> PyResult<&Descriptor> {
        let began = Began::now();
        let lent = borrow(py, &self.0).map_err(PyErr::from);
        began.told(self.0.passage(EXCHANGE, "borrowed tensor", Some(Stream::Legacy)), lent)
    }

    fn work_stream(_py: Python<'_>, _device: Device) -> PyResult<u64> {
        Ok(Stream::Legacy.handle())
    }

    fn import(
        py: Python<'_>,
        managed: Managed<DLManagedTensorVersioned>,
        array: Descriptor,
    ) -> PyResult<Py<Self>> {
        let began = Began::now();
        let (driver, place) = (driver::current()?, Place::of(array.device()));
        let back = Back::new(&driver, place, None);
        let source = Source {
            // The function's contract: no synchronisation, and the caller works on `work_stream`.
            ready: Ready::On(Stream::Legacy),
            place,
            driver,
            keep: Keep::new(py.None(), Some(ImportedDlpack::Versioned(managed)), None, back),
            array,
            by: By::ExchangeApi,
        };
        let made = Py::new(py, Self(View::new(source, None)))?;
        let view = &made.get().0;
        began.exchanged(view.passage(EXCHANGE, "tensor taken over", view.ready.stream()));
        Ok(made)
    }
}

exchange_producer!(DLPackView);

/// A view of an array that speaks the CUDA Array Interface, for consumers that speak DLPack.
///
/// Nothing is copied. The view keeps the producer alive, and so does every capsule and DLPack tensor
/// that it hands out; at the end of each the producer's stream waits for its consumer's, see
/// `DLPackView.release`.
///
/// Parameters
/// ----------
/// x : object or dict
///     An object with ``__cuda_array_interface__`` (version 0 to 3), such a dict with ``owner=``, or a
///     ``CaiView``.
/// stream : None, int or stream object, optional
///     The producer's stream, which the caller declares: 1, 2, a handle, or an object with
///     ``__cuda_stream__``, which the view then holds; a bare handle has to stay alive as long as the
///     view. -1 declares that nothing is pending. None takes the dict's word. Where the
///     dict has none, version 3 means that nothing is pending; versions 0 to 2 say nothing, so the
///     type's exchange API is asked, else the host waits for the device once and a `HostSyncWarning`
///     is given.
/// readonly : bool, optional
///     None keeps what the producer says. True hands out read-only memory; with False the caller
///     vouches that writing is right.
/// owner : object, optional
///     What keeps the memory of a dict alive.
/// device : int or tuple of (int, int), optional
///     The device of an array without elements, which has no pointer to ask; or ``(2, id)`` to hand
///     managed or pinned memory out as plain CUDA memory.
/// dtype : str or dtype, optional
///     The element type behind ``<V2`` and ``|V1``, such as ``"bfloat16"``, where ``x.dtype`` does not
///     name it.
///
/// Returns
/// -------
/// DLPackView
///
/// Raises
/// ------
/// BufferError
///     DLPack cannot express the array.
/// ValueError
///     A malformed dict or argument, or a pointer that CUDA does not know.
/// TypeError
///     An object that does not speak the CUDA Array Interface, or an argument of another type.
/// DriverError
///     A call of the CUDA driver failed.
///
/// Notes
/// -----
/// CUDA Array Interface (Version 3), "Synchronization" and "Lifetime management".
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None, owner=None, device=None, dtype=None))]
pub(crate) fn from_cai<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
    owner: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, DLPackView>> {
    let began = Began::now();
    let made = convert(x, stream, readonly, Said { owner, device, dtype, ..Said::default() });
    if began.is_told() {
        tell(began, &made);
    }
    made
}

#[cold]
fn tell(began: Began, made: &PyResult<Bound<'_, DLPackView>>) {
    match made {
        Ok(made) => began.exchanged(made.get().0.passage_in("from_cai")),
        Err(error) => began.refused("from_cai", error),
    }
}

#[inline]
fn convert<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
    mut said: Said<'_, 'py>,
) -> PyResult<Bound<'py, DLPackView>> {
    let (declared, held) = stream::parse(stream)?;
    (said.stream, said.held) = ((declared != Request::Unsaid).then_some(declared), held);
    let readonly = flag::parse("readonly", readonly)?;
    let facts = facts(x)?;
    let source = if facts.speaks == Speaks::CaiView && said.owner.is_none() {
        let view = x.cast::<CaiView>()?.get();
        let object = said.held.as_ref().map(|held| held.clone_ref(x.py()));
        let mut source = cai_source::adapt(view.0.unwrap(x.py(), said.held.take())?, &said)?;
        source.declare(x.py(), &said, object)?;
        source
    } else {
        cai_source::import(x, &facts, said)?
    };
    Bound::new(x.py(), DLPackView(View::new(source, readonly)))
}
