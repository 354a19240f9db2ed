//! `from_cai`: a DLPack view of an array that speaks the CUDA Array Interface.

use pyo3::prelude::*;

use super::{Optional, report};
use crate::py::flag;
use crate::py::habits::Habit;
use crate::py::interpreter::{Answer, entry};
use crate::py::observe::CallSpan;
use crate::py::producers::Wanted;
use crate::py::producers::cai::{self, ImportOptions};
use crate::py::producers::dlpack;
use crate::py::producers::own_view;
use crate::py::producers::types::{ProducerKind, facts};
use crate::py::streams::StreamArgument;
use crate::py::views::{BaseView, CaiView, DLPackView};

const DOOR: &str = "from_cai";

/// A view of an array that speaks the CUDA Array Interface, for consumers that speak DLPack.
///
/// Nothing is copied. The view keeps the producer alive, and so does every capsule and DLPack tensor
/// that it hands out. At the end of each the producer's stream waits for the consumer's, see
/// `DLPackView.release`.
///
/// Parameters
/// ----------
/// x : object or dict
///     An object with ``__cuda_array_interface__`` (version 0 to 3), such a dict with ``owner=``, or a
///     ``CaiView``.
/// stream : None, int or stream object, optional
///     The **producer's** stream: 1, 2, a handle, or an object with ``__cuda_stream__``, which the
///     view then holds. If the dict names another stream, yours waits for the work that is queued
///     there now, and both wait for the consumer at the end. If nothing keeps a bare handle alive,
///     the legacy default stream waits for the work that is queued there now, and replaces that
///     stream from then on: queue no later work for the array there. -1 says that nothing is pending,
///     also on the dict's stream. None takes the dict's stream. If a dict of version 3 names none,
///     consumers wait for the legacy default stream, unless the bridge knows that the library means
///     something else. If a dict of version 0 to 2 names none, the bridge asks the library for its
///     current stream, or calls ``__dlpack__``. Without both the host waits for the device, with a
///     `HostSyncWarning`.
/// readonly : bool, optional
///     None keeps the producer's flag. True hands out read-only memory. With False you vouch that
///     writing is right.
/// owner : object, optional
///     The object that keeps the memory of a dict alive. A number, a text or another constant is
///     refused.
/// device : int, str or tuple of (int, int), optional
///     A GPU as a number or as ``"cuda:0"``, or DLPack's ``(device_type, device_id)``. Pass it to
///     hand out managed or pinned memory as plain memory of that GPU, or to name the device of an
///     array without elements. By default the pointer of such an array tells the device, then
///     ``stream``, then the object's ``__dlpack_device__`` or ``device`` or the dict's stream; else
///     it is the current device.
/// dtype : str or dtype, optional
///     The element type, such as ``"bfloat16"`` for ``<V2``. It must have the typestr's size. By
///     default it is ``x.dtype``, if that has the typestr's size, else the typestr's type.
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
///
/// Examples
/// --------
/// >>> from cai_bridge import from_cai
/// >>> from cai_bridge.testing import simulated_cuda
/// >>> with simulated_cuda() as cuda:
/// ...     x, stream = cuda.array([1.0, 2.0], speaks="cai3"), cuda.stream()
/// ...     capsule = from_cai(x).__dlpack__(stream=stream.handle)
/// ...     del capsule  # a consumer takes it: torch.from_dlpack(from_cai(x))
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None, owner=None, device=None, dtype=None))]
pub(crate) fn from_cai<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
    owner: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
) -> Answer<'py> {
    entry(x.py(), || {
        let span = CallSpan::begin();
        let made = view(x, stream, readonly, owner, device, dtype);
        if span.is_observed() { report(DOOR, span, made) } else { made }
    })
}

/// Makes a `CaiView` of `view`'s array. `stream` is the producer's stream, as for [`from_cai`].
pub(super) fn ready_on<'py>(
    view: &Bound<'py, PyAny>,
    stream: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = view.py();
    let argument = StreamArgument::parse(Some(stream))?;
    let options = options(&argument, None, None, None);
    let source = own_view::adapt(py, view.cast::<BaseView>()?.get().unwrap(py)?, &options)?;
    Ok(BaseView::object::<CaiView>(py, source)?.into_any())
}

fn options<'a, 'py>(
    stream: &'a StreamArgument<'a, 'py>,
    owner: Optional<'a, 'py>,
    device: Optional<'a, 'py>,
    dtype: Optional<'a, 'py>,
) -> ImportOptions<'a, 'py> {
    ImportOptions {
        door: DOOR,
        stream,
        consumer: &StreamArgument::UNSPECIFIED,
        wanted: Wanted::DLPack,
        owner,
        device,
        dtype,
    }
}

#[inline]
fn view<'py>(
    x: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
    owner: Optional<'_, 'py>,
    device: Optional<'_, 'py>,
    dtype: Optional<'_, 'py>,
) -> PyResult<Bound<'py, DLPackView>> {
    let argument = StreamArgument::parse(stream)?;
    let readonly = flag::parse("readonly", readonly)?;
    let options = options(&argument, owner, device, dtype);
    let facts = facts(x)?;
    let quick = stream.is_none() && owner.is_none() && device.is_none() && dtype.is_none();
    let mut source = if let Some(table) = facts.table
        && quick
        && facts.has(Habit::SilentDict)
        && cai::ordering_wanted()
    {
        dlpack::exchange(DOOR, x, &facts, table, &argument)?
    } else if facts.producer == ProducerKind::CaiView && owner.is_none() {
        let source = x.cast::<BaseView>()?.get().unwrap(x.py())?;
        Wanted::DLPack.check(x.py(), &source)?;
        own_view::adapt(x.py(), source, &options)?
    } else {
        let source = cai::import(x, &facts, &options)?;
        Wanted::DLPack.check(x.py(), &source)?;
        source
    };
    source.array.set_readonly(readonly);
    BaseView::object::<DLPackView>(x.py(), source)
}
