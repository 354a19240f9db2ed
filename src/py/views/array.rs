//! `Array`: an extension module's array that speaks both protocols.

use pyo3::prelude::*;

use super::{BaseView, Room, cai, dlpack};
use crate::py::interpreter::{Answer, entry};
use crate::py::observe::CallSpan;

/// An array that an extension module returns. It speaks both protocols: DLPack, with the exchange API, and the CUDA
/// Array Interface, version 3.
#[pyclass(frozen, extends = BaseView, module = "cai_bridge", name = "Array")]
#[derive(Debug, Default)]
pub(crate) struct ArrayView {
    _room: Room,
}

#[pymethods]
impl ArrayView {
    /// The dict of the CUDA Array Interface, like that of a `CaiView`. `BufferError` if the array was released.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        let (py, view, span) = (slf.py(), slf.as_super().get(), CallSpan::begin());
        entry(py, || cai::dict(py, view, span))
    }

    /// Returns a capsule with the array or a copy of it, as `DLPackView.__dlpack__` does.
    #[pyo3(signature = (stream=None, *, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> Answer<'py> {
        let (py, view, span) = (slf.py(), slf.as_super().get(), CallSpan::begin());
        let asked = dlpack::DlpackArguments { stream, max_version, dl_device, copy };
        entry(py, || dlpack::capsule(py, view, asked, span))
    }

    /// ``(device_type, device_id)`` in DLPack's numbers.
    fn __dlpack_device__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        entry(slf.py(), || Ok(slf.as_super().get().pair()))
    }
}
