//! `DLPackView`: an array that speaks DLPack.

use dlpark::Managed;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use super::export::{self, CapsuleRequest, DOOR};
use super::export_request::{CopyTarget, ExportRequest, export_request};
use super::{BaseView, Room, copy};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::dlpack::encode::Keep;
use crate::dlpack::exchange::{Exchange, exchange_producer};
use crate::dlpack::{decode, encode};
use crate::driver;
use crate::error::{Error, Kind};
use crate::py::flag;
use crate::py::hand_over::{Recipient, hand_over, order_for};
use crate::py::interpreter::{Answer, detach, entry};
use crate::py::lease::{HeldMemory, MemoryGuard, look};
use crate::py::observe::{By, CallSpan, EndedBy};
use crate::py::source::place_of;
use crate::py::streams::{StreamArgument, argument};
use crate::py::text::shown;
use crate::stream::{Alive, Ready, Stream};

/// An array that speaks DLPack and nothing else: ``__dlpack__``, ``__dlpack_device__`` and, on the
/// type, the exchange API.
///
/// `to_dlpack` and `from_cai` make it. Consumers that know both protocols pick one by their own rules,
/// so a view speaks one protocol only.
#[pyclass(frozen, extends = BaseView, module = "cai_bridge")]
#[derive(Debug, Default)]
pub(crate) struct DLPackView {
    _room: Room,
}

#[pymethods]
impl DLPackView {
    /// A capsule with the array, or with a copy of it, usable on the consumer's stream.
    ///
    /// The consumer's stream waits for the producer's by an event. The host waits until a copy in host
    /// memory is complete. Without `stream` and another device it also waits until pinned or managed
    /// memory is ready: NumPy names no stream and reads on the CPU.
    ///
    /// Parameters
    /// ----------
    /// stream : None, int or stream object, optional
    ///     The consumer's stream, on the device for which the consumer asks: 1 or None is the legacy
    ///     default stream, 2 the per-thread one, others are handles. -1: no stream waits. 0 is
    ///     ambiguous, and refused.
    /// max_version : tuple of (int, int), optional
    ///     The newest DLPack version that the consumer knows. From (1, 0) on the capsule is versioned, and
    ///     a flag marks a copy.
    /// dl_device : tuple of (int, int), optional
    ///     The device for the consumer. None or the array's own device: the array as it is, or with
    ///     ``copy=True`` a copy. ``(2, id)``, another GPU: a copy there. Managed and pinned memory is
    ///     copied there only with ``copy=True``, since every GPU reaches it. ``(1, 0)``, the CPU: a copy
    ///     in host memory. With ``copy=False``, managed or pinned memory is exported to the CPU as it is,
    ///     once the host has waited; other memory is refused.
    /// copy : bool, optional
    ///     None copies only if `dl_device` needs a copy, True always, False never. Without another device
    ///     in `dl_device`, a copy of managed or pinned memory is on its GPU if `stream` is named, else on
    ///     the CPU: a reader on the CPU names no stream.
    ///
    /// Returns
    /// -------
    /// capsule
    ///     Named ``dltensor_versioned``, or ``dltensor`` if `max_version` is missing or below (1, 0). A copy
    ///     is C-contiguous, aligned to 256 bytes and writable.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     A device that this array cannot be on; ``copy=False`` if a copy is needed; a copy larger than
    ///     host memory; read-only memory, not copied, in a legacy capsule; a released view.
    /// ValueError, TypeError
    ///     A malformed argument.
    /// DriverError
    ///     A call of the CUDA driver failed.
    ///
    /// Notes
    /// -----
    /// A copy on a GPU is queued on the consumer's stream, or with -1 on the array's stream, if that stream
    /// is on the GPU; otherwise on the GPU's legacy default stream. The copy's memory is freed on the copy's
    /// stream, or on the legacy default stream after the copy. If the consumer passed a bare handle
    /// of a non-blocking stream that nothing keeps alive, the host waits when the consumer releases the
    /// copy, and the bridge warns: pass the stream object.
    ///
    /// DLPack 1.3, "Python Specification"; Python array API 2025.12, ``array.__dlpack__``.
    #[pyo3(signature = (stream=None, *, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> Answer<'py> {
        let (py, view, span) = (slf.py(), slf.as_super().get(), CallSpan::begin());
        let asked = DlpackArguments { stream, max_version, dl_device, copy };
        entry(py, || capsule(py, view, asked, span))
    }

    /// ``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory.
    fn __dlpack_device__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        entry(slf.py(), || Ok(slf.as_super().get().pair()))
    }
}

#[derive(Clone, Copy)]
pub(super) struct DlpackArguments<'a, 'py> {
    pub(super) stream: Option<&'a Bound<'py, PyAny>>,
    pub(super) max_version: Option<&'a Bound<'py, PyAny>>,
    pub(super) dl_device: Option<&'a Bound<'py, PyAny>>,
    pub(super) copy: Option<&'a Bound<'py, PyAny>>,
}

#[inline]
pub(super) fn capsule<'py>(
    py: Python<'py>,
    view: &BaseView,
    asked: DlpackArguments<'_, 'py>,
    span: CallSpan,
) -> PyResult<Bound<'py, PyAny>> {
    capsule_for(py, view, asked, span).map_err(|error| span.refused(DOOR, error))
}

#[inline]
fn capsule_for<'py>(
    py: Python<'py>,
    view: &BaseView,
    asked: DlpackArguments<'_, 'py>,
    span: CallSpan,
) -> PyResult<Bound<'py, PyAny>> {
    let DlpackArguments { stream, max_version, dl_device, copy } = asked;
    let argument = StreamArgument::parse(stream)?.or_legacy();
    let versioned = wants_versioned(max_version)?;
    let (own, ordinal) = (view.array.device(), view.place.ordinal);
    let copy = flag::parse("copy", copy)?;
    let wanted = export_request(own, ordinal, stream.is_some(), dl_device, copy)?;
    let on_host = wanted == ExportRequest::OnHost;
    let asked = CapsuleRequest { argument: &argument, versioned, on_host };
    let capsule = match wanted {
        ExportRequest::Own => {
            if stream.is_none() && view.array.device().kind != MemoryKind::Device {
                export::wait_for_host(py, view)?;
            }
            export::share(py, view, &view.array, &asked)
        }
        ExportRequest::OnHost => {
            export::wait_for_host(py, view)?;
            export::share(py, view, &view.array, &asked)
        }
        ExportRequest::Shared(device) => {
            export::share(py, view, &view.array.clone().on(device), &asked)
        }
        ExportRequest::Copy(CopyTarget::Gpu(ordinal)) => copy::to_gpu(py, view, ordinal, &asked),
        ExportRequest::Copy(CopyTarget::Host) => copy::to_host(py, view, versioned),
    }?;
    let by = if versioned { "dltensor_versioned" } else { "dltensor" };
    span.exchanged(view.passed(DOOR, by, argument.request().stream()));
    Ok(capsule)
}

fn wants_versioned(max_version: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(max_version) = max_version else { return Ok(false) };
    let refused = || -> PyErr {
        match shown(max_version) {
            Ok(got) => Error::new(Kind::MaxVersion, got).into(),
            Err(error) => error,
        }
    };
    if let Some((major, minor)) = argument::pair::<i64, i64>(max_version)? {
        return if major < 0 || minor < 0 { Err(refused()) } else { Ok(major >= 1) };
    }
    // A version number may be too large for an `i64`.
    let is_int = |item: Bound<'_, PyAny>| item.is_exact_instance_of::<PyInt>();
    match max_version.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 && pair.iter().all(is_int) => {
            let [major, minor] = [pair.get_item(0)?, pair.get_item(1)?];
            if major.lt(0)? || minor.lt(0)? { Err(refused()) } else { major.gt(0) }
        }
        _ => Err(refused()),
    }
}

const EXCHANGE: &str = "exchange API";

/// Makes the array ready on the legacy default stream, which [`Exchange::work_stream`] names to the consumer.
fn export(py: Python<'_>, view: &BaseView) -> PyResult<Managed<DLManagedTensorVersioned>> {
    let mut guard = MemoryGuard::new(view.share_for_hand_over(py)?);
    if let Some(held) = guard.memory_mut() {
        look(py);
        let to = Recipient { array: Some(&view.array), ..Recipient::of(&StreamArgument::LEGACY) };
        hand_over(EXCHANGE, py, held, &to)?;
        held.tag.by = EndedBy::Deleter;
        held.register(py, &view.array);
    }
    Ok(encode::versioned(&view.array, Keep(guard))?)
}

fn borrow<'a>(py: Python<'_>, view: &'a BaseView) -> PyResult<&'a Descriptor> {
    if view.array.readonly() {
        return Err(Error::new(Kind::ReadOnlyBorrowed, "read-only memory").into());
    }
    encode::check_padding(&view.array, "borrows it")?;
    // The wait may run code that releases the view, so hold the memory. The code below checks the view again.
    let guard = MemoryGuard::new(view.share_for_hand_over(py)?);
    if let Some(held) = guard.memory() {
        order_for(EXCHANGE, py, held, Alive::legacy(view.at()))?;
    }
    view.with_memory(|held| {
        if view.array.ptr() != 0 {
            held.lend(py, view.at());
        }
    })?;
    Ok(&view.array)
}

/// The exchange API of views. Of the view types only `DLPackView` and `ArrayView` have its table.
impl Exchange for BaseView {
    fn export(&self, py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let span = CallSpan::begin();
        let made = export(py, self);
        span.told(self.passed(EXCHANGE, "managed tensor", Some(Stream::Legacy)), made)
    }

    fn borrow(&self, py: Python<'_>) -> PyResult<&Descriptor> {
        let span = CallSpan::begin();
        let lent = borrow(py, self);
        span.told(self.passed(EXCHANGE, "borrowed tensor", Some(Stream::Legacy)), lent)
    }

    fn work_stream(_py: Python<'_>, _device: Device) -> PyResult<u64> {
        Ok(Stream::Legacy.handle())
    }

    fn import(
        py: Python<'_>,
        managed: Managed<DLManagedTensorVersioned>,
        array: Descriptor,
    ) -> PyResult<Py<Self>> {
        let span = CallSpan::begin();
        let driver = driver::prepared(|call| detach(py, call))?;
        let place = place_of(&driver, &array)?;
        let context = decode::context(&managed);
        let managed = Some(ImportedDlpack::Versioned(managed));
        let mut source = HeldMemory::array(py.None(), managed, driver, By::ExchangeApi);
        source.set_place(place);
        // The caller works on the legacy default stream (`work_stream`), and the exchange API forbids a wait of the
        // host.
        source.ready = Ready::On(Stream::Legacy);
        source.array = array;
        source.adopt_producer_side(py, context);
        let made = BaseView::object::<DLPackView>(py, source)?.into_super();
        let view = made.get();
        span.exchanged(view.passed(EXCHANGE, "tensor taken over", view.ready().stream()));
        Ok(made.unbind())
    }
}

exchange_producer!(BaseView);
