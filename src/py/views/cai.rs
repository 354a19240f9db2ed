//! `CaiView`: an array that speaks the CUDA Array Interface.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::reader::{self, DICT};
use super::{BaseView, Room};
use crate::error::Kind;
use crate::py::cai_dict;
use crate::py::interpreter::{Answer, entry};
use crate::py::observe::CallSpan;
use crate::stream::Thread;

/// An array that speaks the CUDA Array Interface, version 3, and nothing else.
///
/// `to_cai` makes it. Consumers that know both protocols pick one by their own rules, so a view speaks
/// one protocol only.
#[pyclass(frozen, extends = BaseView, module = "cai_bridge")]
#[derive(Debug, Default)]
pub(crate) struct CaiView {
    _room: Room,
}

#[pymethods]
impl CaiView {
    /// The dict of the CUDA Array Interface, version 3: a new one each time.
    ///
    /// ``shape`` in items, ``typestr``, ``data`` as ``(pointer, read-only)``, ``strides`` in bytes or
    /// None for C-contiguous, ``version`` 3, ``stream`` None, 1, 2 or a handle.
    ///
    /// Raises
    /// ------
    /// AttributeError
    ///     The view was released.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        let (py, view, span) = (slf.py(), slf.as_super().get(), CallSpan::begin());
        entry(py, || {
            dict(py, view, span).map_err(|error| match view.check_leased() {
                // Consumers test for the interface with `hasattr`, which returns False only for `AttributeError`.
                Err(released) if released.kind() == Kind::Released => {
                    PyAttributeError::new_err(released.to_string())
                }
                _ => error,
            })
        })
    }
}

pub(super) fn dict<'py>(
    py: Python<'py>,
    view: &BaseView,
    span: CallSpan,
) -> PyResult<Bound<'py, PyDict>> {
    let (ready, again) = reader::ready(py, view).map_err(|refused| span.refused(DICT, refused))?;
    let stream = ready.to_cai(Thread::current());
    let dict = match view.dict.get(py) {
        Some(last) if last.0 == stream && view.words(py).is_none() => last.1.bind(py).copy()?,
        last => {
            let words = view.words(py);
            let dict = cai_dict::encode(py, &view.array, ready, words)?;
            // Most views are read once, so the dict is kept from the second read on.
            if again && last.is_none() {
                let _ = view.dict.set(py, Box::new((stream, dict.copy()?.unbind())));
            }
            dict
        }
    };
    span.exchanged(view.passed(DICT, "CAI v3", ready.stream()));
    Ok(dict)
}
