//! `from_cai`: an array that speaks the CUDA Array Interface, as DLPack has it.

use pyo3::prelude::*;

use super::{Maybe, tell};
use crate::py::flag;
use crate::py::habits::Habit;
use crate::py::interpreter::{Answer, entry};
use crate::py::observe::CallSpan;
use crate::py::producers::cai::{self, ImportOptions};
use crate::py::producers::dlpack;
use crate::py::producers::own_view;
use crate::py::producers::types::{ProducerKind, facts};
use crate::py::streams::Argument;
use crate::py::views::{DLPackView, View};

const DOOR: &str = "from_cai";

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
///     ``__cuda_stream__``, which the view then holds. For a bare handle that nobody keeps alive the
///     legacy default stream waits for it in this call, and stands in from then on: later work on that
///     stream is not waited for. -1 declares that nothing is pending. None takes the dict's word. Where
///     the dict has none, version 3 means that nothing is pending; versions 0 to 2 say nothing, so the
///     type's exchange API or ``__dlpack__`` is asked, else the host waits for the device once and a
///     `HostSyncWarning` is given.
/// readonly : bool, optional
///     None keeps what the producer says. True hands out read-only memory; with False the caller
///     vouches that writing is right.
/// owner : object, optional
///     What keeps the memory of a dict alive.
/// device : int, str or tuple of (int, int), optional
///     A GPU by its number or as ``"cuda:0"``, or DLPack's ``(device_type, device_id)``: the device of an
///     array without elements, which has no pointer to ask, or the GPU that managed or pinned memory is
///     handed out as plain memory of.
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
) -> Answer<'py> {
    entry(x.py(), || {
        let span = CallSpan::begin();
        let made = view(x, stream, readonly, (owner, device, dtype));
        if span.is_observed() { tell(DOOR, span, made) } else { made }
    })
}

#[inline]
fn view<'py>(
    x: &Bound<'py, PyAny>,
    stream: Maybe<'_, 'py>,
    readonly: Maybe<'_, 'py>,
    (owner, device, dtype): (Maybe<'_, 'py>, Maybe<'_, 'py>, Maybe<'_, 'py>),
) -> PyResult<Bound<'py, DLPackView>> {
    let argument = Argument::parse(stream)?;
    let readonly = flag::parse("readonly", readonly)?;
    let options =
        ImportOptions { door: DOOR, stream: &argument, ordered: false, owner, device, dtype };
    let facts = facts(x)?;
    let quick = stream.is_none() && owner.is_none() && device.is_none() && dtype.is_none();
    let source = if let Some(table) = facts.table
        && quick
        && facts.has(Habit::SilentDict)
        && cai::ordering_wanted()
    {
        dlpack::exchange(DOOR, x, &facts, table, &argument)?
    } else if facts.producer == ProducerKind::CaiView && owner.is_none() {
        own_view::adapt(x.py(), x.cast::<View>()?.get().unwrap(x.py())?, &options)?
    } else {
        cai::import(x, &facts, &options)?
    };
    View::new(source, readonly).into_object(x.py(), DLPackView)
}
