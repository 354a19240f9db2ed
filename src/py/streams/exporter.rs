//! Exporters of CAI dicts. The bridge asks an exporter again for the stream with pending work.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::voucher::Voucher;
use crate::descriptor::Descriptor;
use crate::py::interpreter::answered;
use crate::py::this_thread::asking;
use crate::stream::{Ready, Stream, Thread};

#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) voucher: Voucher,
    /// The address in the exporter's dict at import. A dict with another address describes other memory.
    pub(super) ptr: u64,
    /// Whether the exporter's dict may later name another stream than at import.
    pub(super) moves: bool,
    /// Whether a dict whose stream is missing or `None` means that nothing is pending.
    pub(super) none_is_nothing: bool,
    /// The number (`cuCtxGetId`) of the exporter's context at import; 0 for a default stream that cannot move.
    pub(super) life: u64,
}

impl Exporter {
    /// What the exporter's dict says now about pending work. `None` if the exporter cannot be asked, the dict cannot be
    /// read, or the dict describes other memory.
    pub(super) fn ask(&self, py: Python<'_>, before: Stream) -> PyResult<Option<Ready>> {
        let now = self.voucher.ask(py, |object| said_of(object, self.ptr))?;
        Ok(match (now, before) {
            // The number 2 means a different stream on each thread, so keep the stream of the first thread.
            (Some(Ready::On(Stream::PerThread(_))), Stream::PerThread(_)) => {
                Some(Ready::On(before))
            }
            (Some(Ready::Nothing), _) if !self.none_is_nothing => Some(Ready::Unsaid),
            (now, _) => now,
        })
    }

    /// False only if the exporter's dict, read now, does not name the stream `before`.
    pub(super) fn stays(&self, py: Python<'_>, before: Stream) -> PyResult<bool> {
        let now = if self.moves { self.ask(py, before)? } else { None };
        Ok(now.is_none_or(|now| now == Ready::On(before)))
    }

    pub(super) fn is_of_garbage(&self, py: Python<'_>) -> bool {
        self.voucher.object(py).is_none()
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { voucher: self.voucher.clone_ref(py), ..*self }
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.voucher.visit(visit)
    }
}

/// What the dict of `object` says about pending work; `None` if the dict cannot be read or its address is not `ptr`.
pub(crate) fn ready_by(object: &Bound<'_, PyAny>, ptr: u64) -> PyResult<Option<Ready>> {
    Ok(answered(object.py(), said_of(object, ptr))?.flatten())
}

fn said_of(object: &Bound<'_, PyAny>, ptr: u64) -> PyResult<Option<Ready>> {
    let dict = interface(object)?;
    if address(&dict)? == Some(ptr) { pending(&dict).map(Some) } else { Ok(None) }
}

/// The CAI dict of `object`, if the dict's address is 0 or inside the memory of `array`.
pub(crate) fn dict_of<'py>(
    object: &Bound<'py, PyAny>,
    array: &Descriptor,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = object.py();
    let Some(dict) = answered(py, interface(object))? else { return Ok(None) };
    let (start, length) = array.span();
    let is_in = |ptr: u64| ptr == 0 || (ptr >= start && ptr < start.saturating_add(length));
    let is_of_it = answered(py, address(&dict))?.flatten().is_some_and(is_in);
    Ok(is_of_it.then_some(dict))
}

fn interface<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let dict = asking(object, || object.getattr(intern!(object.py(), "__cuda_array_interface__")))?;
    Ok(dict.cast_into::<PyDict>()?)
}

fn address(dict: &Bound<'_, PyDict>) -> PyResult<Option<u64>> {
    let data = dict.get_item(intern!(dict.py(), "data"))?;
    data.map(|data| data.get_item(0)?.extract()).transpose()
}

pub(crate) fn pending(dict: &Bound<'_, PyDict>) -> PyResult<Ready> {
    let named = dict.get_item(intern!(dict.py(), "stream"))?;
    let named = named.filter(|named| !named.is_none()).map(|named| named.extract()).transpose()?;
    Ok(Ready::from_cai(named, Thread::current())?)
}
