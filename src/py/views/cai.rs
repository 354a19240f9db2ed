//! `CaiView`: an array as the CUDA Array Interface has it, and `to_cai`, which makes it.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::View;
use crate::error::Kind;
use crate::order::{self, Purpose};
use crate::py::cai_dict;
use crate::py::interpreter::{Answer, detach, entry};
use crate::py::observe::CallSpan;
use crate::py::source::ready_stream;
use crate::py::streams::KeepAlive;
use crate::py::streams::current::{self, StreamPolicy};
use crate::stream::{Alive, Ready, Stream};

/// The dict, as a door.
const DICT: &str = "__cuda_array_interface__";

/// An array that speaks the CUDA Array Interface, version 3, and nothing else.
///
/// `to_cai` makes it. Consumers that know both protocols pick one by their own rules, so a view speaks
/// one protocol only.
#[pyclass(frozen, extends = View, module = "cai_bridge")]
#[derive(Debug)]
pub(crate) struct CaiView;

#[pymethods]
impl CaiView {
    /// The dict of the CUDA Array Interface, version 3: a new one each time.
    ///
    /// ``shape`` in items, ``typestr``, ``data`` as ``(pointer, read-only)``, ``strides`` in bytes or
    /// None for C-contiguous, ``version`` 3, ``stream`` None, 1, 2 or a handle.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     The view was released.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        let (py, view, span) = (slf.py(), slf.as_super().get(), CallSpan::begin());
        entry(py, || dict(py, view, span))
    }
}

/// The dict of `view`, for a reader.
pub(super) fn dict<'py>(
    py: Python<'py>,
    view: &View,
    span: CallSpan,
) -> PyResult<Bound<'py, PyDict>> {
    let ready = ready(py, view).map_err(|refused| span.refused(DICT, refused))?;
    let dict = cai_dict::encode(py, &view.array, ready)?;
    span.exchanged(view.hand_over(DICT, "CAI v3", ready.stream()));
    Ok(dict)
}

/// Readies a view's array for a reader of its dict, and returns the stream that it is ready on: none if that
/// stream was closed, since the host waits for it here.
///
/// If no stream was named, the reader is taken to work on its library's current stream. The view notes that
/// stream for the end, also if nothing is pending. If the library ignores the dict's stream, its current stream
/// waits here.
fn ready(py: Python<'_>, view: &View) -> PyResult<Ready> {
    let unnamed = view.held(|holding| holding.read(py))?;
    let mut ready = view.ready;
    if let Ready::On(stream @ Stream::Handle(_)) = ready
        && view.held(|holding| holding.may_lose(stream))?
    {
        let holding = view.share(py)?;
        if ready_stream(py, DICT, &holding, (ready, view.place))?.is_none() {
            ready = Ready::Nothing;
        }
    }
    if !unnamed {
        return Ok(ready);
    }
    current::each(py, &view.driver, view.at(), |reader, takes| {
        if reader.stream() != Stream::Legacy
            && view.held(|holding| holding.has_to_note(reader))?
            && let KeepAlive::By(kept) = KeepAlive::of(py, &view.driver, reader)?
        {
            view.held(|holding| holding.note(py, kept))?;
        }
        match (takes, ready) {
            (StreamPolicy::Ignored, Ready::On(stream)) if !reader.is_at(stream, view.place) => {
                wait_for_producer(py, view, stream, reader)
            }
            _ => Ok(()),
        }
    })?;
    Ok(ready)
}

/// Makes `reader` wait for what the array is ready on, unless one of them is being captured.
fn wait_for_producer(
    py: Python<'_>,
    view: &View,
    stream: Stream,
    reader: Alive<'_>,
) -> PyResult<()> {
    let holding = view.share(py)?;
    let ready = (Ready::On(stream), view.place);
    let Some(from) = ready_stream(py, DICT, &holding, ready)? else { return Ok(()) };
    let driver = &view.driver;
    let why = (Kind::CaptureLegacy, "a reader of the dict");
    if order::check_captures(driver.get()?, &[from, reader], why).is_ok() {
        let door = Purpose::hand_over(DICT);
        order::connect(door, driver, (from, reader), |call| detach(py, call))?;
    }
    Ok(())
}
