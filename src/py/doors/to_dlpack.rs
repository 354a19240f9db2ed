//! `to_dlpack`: a DLPack view of an array that speaks either protocol. Also tests whether an object is an array, and
//! whether an array is on the host or on a GPU.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};

use super::another_way::has_cai;
use super::to_cai::import;
use super::{Optional, report};
use crate::device::MemoryKind;
use crate::dlpack::capsule;
use crate::error::Kind;
use crate::py::habits::Habit;
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::observe::CallSpan;
use crate::py::producers::types::{Arrays, ProducerKind, facts, speaks};
use crate::py::producers::{Wanted, dlpack, dlpack_device};
use crate::py::views::{BaseView, DLPackView};

const DOOR: &str = "to_dlpack";

/// A view of an array that speaks either protocol, for consumers that speak DLPack.
///
/// Nothing is copied. The host waits only if nobody says on which stream the array is ready, see
/// `from_cai`. The view keeps the producer alive. If `stream` is given, it waits in this call. A
/// consumer's stream waits when the consumer asks for a capsule, see ``DLPackView.__dlpack__``.
///
/// Parameters
/// ----------
/// x : object
///     Any object that `to_cai` takes: an object with DLPack's exchange API or ``__dlpack__``, a capsule, a
///     view, or an object that speaks the CUDA Array Interface (version 0 to 3).
/// stream : None, int or stream object, optional
///     The consumer's stream, as in `to_cai`.
/// readonly : bool, optional
///     As in `to_cai`.
///
/// Returns
/// -------
/// DLPackView
///
/// Raises
/// ------
/// BufferError
///     DLPack cannot express the array, or CUDA cannot reach its memory.
/// ValueError, TypeError, DriverError
///     As in `to_cai`.
///
/// Notes
/// -----
/// DLPack 1.3, "Python Specification".
///
/// Examples
/// --------
/// >>> from cai_bridge import to_dlpack
/// >>> from cai_bridge.testing import simulated_cuda
/// >>> with simulated_cuda() as cuda:
/// ...     x = cuda.array([1.0, 2.0], speaks="dlpack")
/// ...     with to_dlpack(x, stream=cuda.stream(), readonly=True) as view:
/// ...         view.shape, view.readonly
/// ((2,), True)
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None))]
pub(crate) fn to_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
) -> Answer<'py> {
    entry(x.py(), || {
        let span = CallSpan::begin();
        let made = import(DOOR, x, stream, readonly, Wanted::DLPack)
            .and_then(|source| BaseView::object::<DLPackView>(x.py(), source));
        if span.is_observed() { report(DOOR, span, made) } else { made }
    })
}

/// Whether an object is an array on the host. A class is not an array, even if it has an array's attributes.
pub(super) fn is_on_host(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        let elsewhere = capsule::read(capsule).map_err(|error| error.kind());
        return Ok(elsewhere.is_err_and(|kind| kind == Kind::CpuMemory));
    }
    let may_be = facts(x)?.producer == ProducerKind::Foreign;
    Ok(may_be && !is_on_gpu(x)?)
}

/// Whether importing is the quickest way to learn where an array is: the import refuses a host array.
pub(super) fn says_as_taken(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let facts = facts(x)?;
    let known = facts.table.is_some() || facts.has(Habit::KeepsToDlpack);
    Ok(facts.producer == ProducerKind::Foreign && known && !facts.is_numpys)
}

/// Whether an array may be on a GPU: true unless the array is known to be on the host. False for a capsule whose name
/// is not DLPack's.
pub(super) fn is_on_gpu(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        let elsewhere = capsule::read(capsule).map_err(|error| error.kind());
        let left = [Kind::CpuMemory, Kind::CapsuleName];
        return Ok(!elsewhere.is_err_and(|kind| left.contains(&kind)));
    }
    let facts = facts(x)?;
    // Borrowing through a view's table would make the view's end wait for a borrower.
    if facts.producer == ProducerKind::DLPackView {
        return Ok(true);
    }
    if let Some(table) = facts.table {
        // Borrowing is far quicker than calling `__dlpack_device__`.
        match answered(py, table.borrow(x))? {
            Some(Ok(_)) => return Ok(true),
            Some(Err(elsewhere)) if elsewhere.kind() == Kind::CpuMemory => return Ok(false),
            _ => {}
        }
    }
    if facts.is_numpys {
        return speaks(x, intern!(py, "__cuda_array_interface__"));
    }
    // An array that has only a CAI dict counts as on a GPU.
    if facts.has_cai && !facts.has_dlpack {
        return Ok(true);
    }
    let declared = match dlpack_device(x) {
        // The import may use the dict after DLPack has failed.
        Err(refused) if refused.is_of_protocol(py) && has_cai(x)? => return Ok(true),
        declared => declared?,
    };
    match declared {
        // The `__dlpack_device__` of PyTorch's pinned tensors says pinned memory, but their capsules say CPU memory.
        Some(Ok(device)) if device.kind == MemoryKind::Host => Ok(!dlpack::is_hosts(x)?),
        Some(Err(elsewhere)) => Ok(elsewhere.kind() != Kind::CpuMemory),
        _ => Ok(true),
    }
}

/// Whether `convert` takes an object as an array. Capsules and CAI dicts count as arrays.
pub(super) fn is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    match facts(x)?.arrays {
        Arrays::All => Ok(true),
        Arrays::None => Ok(false),
        Arrays::Some if x.is_instance_of::<PyDict>() => is_bare_dict(x),
        Arrays::Some => Ok(answered(x.py(), speaks_itself(x))?.unwrap_or(false)),
    }
}

/// Whether the object has a protocol that its type lacks. Checks values: some objects have every attribute.
fn speaks_itself(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let method = |name| PyResult::Ok(x.getattr_opt(name)?.filter(PyAnyMethods::is_callable));
    if method(intern!(py, "__dlpack__"))?.is_some()
        && let Some(device) = method(intern!(py, "__dlpack_device__"))?
        && device.call0()?.is_instance_of::<PyTuple>()
    {
        return Ok(true);
    }
    let interface = x.getattr_opt(intern!(py, "__cuda_array_interface__"))?;
    Ok(interface.is_some_and(|interface| interface.is_instance_of::<PyDict>()))
}

/// Whether `x` is a CAI dict. Its memory's owner is unknown, so `convert` refuses the dict.
pub(super) fn is_bare_dict(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let has = |name| x.contains(name);
    let typestr = intern!(py, "typestr");
    Ok(x.is_instance_of::<PyDict>()
        && has(typestr)?
        && has(intern!(py, "data"))?
        && has(intern!(py, "shape"))?
        && has(intern!(py, "version"))?
        && x.get_item(typestr)?.is_instance_of::<PyString>())
}
