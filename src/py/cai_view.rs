//! `CaiView`: an array as the CUDA Array Interface has it, and `to_cai`, which makes it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dlpack_view::DLPackView;
use super::source::{Source, check_stream, hand_over, told};
use super::traced::Began;
use super::types::{Facts, Speaks, facts};
use super::view::View;
use super::view_class::view_class;
use super::{cai_source, dlpack_source, fields, flag, stream};
use crate::error::{Error, Kind};
use crate::stream::Request;

/// The dict, as a door.
const DICT: &str = "__cuda_array_interface__";

view_class! {
/// An array that speaks the CUDA Array Interface, version 3, and nothing else.
///
/// Made by `to_cai`. Consumers that know both protocols pick one by rules of their own, so a view
/// speaks the one that was asked for.
CaiView {
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
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (view, began) = (&self.0, Began::now());
        if let Err(released) = view.check_kept() {
            let refused = released.into();
            began.refused(DICT, &refused);
            return Err(refused);
        }
        let dict = fields::encode(py, &view.array, view.ready)?;
        began.exchanged(view.passage(DICT, "CAI v3", view.ready.stream()));
        Ok(dict)
    }
}
}

/// A view of an array that speaks DLPack, for consumers that speak the CUDA Array Interface.
///
/// Nothing is copied, and the host does not wait. The view keeps the producer alive; at its end the
/// producer's stream waits for the consumer's, see `CaiView.release`.
///
/// Parameters
/// ----------
/// x : object
///     An object with DLPack's exchange API or ``__dlpack__``, a ``dltensor`` or
///     ``dltensor_versioned`` capsule, a ``DLPackView``, or an object that speaks only the CUDA Array
///     Interface (version 0 to 3).
/// stream : None, int or stream object, optional
///     The consumer's stream, on which the array must be usable: 1, 2, a handle, or an object with
///     ``__cuda_stream__``, which the view then holds. A bare handle is waited for at the end only where
///     PyTorch or CuPy work on that stream just now, and so vouch for it. None makes no wait and names
///     the producer's stream, which the consumer has to mind; -1 asks for no order at all, and names
///     none.
/// readonly : bool, optional
///     None keeps what the producer says. True hands out read-only memory; with False the caller
///     vouches that writing is right.
///
/// Returns
/// -------
/// CaiView
///
/// Raises
/// ------
/// BufferError
///     The CUDA Array Interface cannot express the array, or it is not in CUDA's reach.
/// ValueError
///     A malformed capsule, dict or argument, or a stream of another device than the array's.
/// TypeError
///     An object that speaks neither protocol, or an argument of another type.
/// DriverError
///     A call of the CUDA driver failed, a graph capture has no place for the order, or the array
///     belongs to the process that this one was forked from.
///
/// Notes
/// -----
/// CUDA Array Interface (Version 3), "Synchronization"; DLPack 1.3, "Python Specification".
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None))]
pub(crate) fn to_cai<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, CaiView>> {
    let began = Began::now();
    let made = convert(x, stream, readonly);
    if began.is_told() {
        tell(began, &made);
    }
    made
}

#[inline]
fn convert<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, CaiView>> {
    let (request, held) = stream::parse(stream)?;
    let readonly = flag::parse("readonly", readonly)?;
    let facts = facts(x)?;
    let source = by_its_door(x, &facts, request, held)?;
    Bound::new(x.py(), CaiView(View::new(source, readonly)))
}

#[cold]
fn tell(began: Began, made: &PyResult<Bound<'_, CaiView>>) {
    match made {
        Ok(made) => began.exchanged(made.get().0.passage_in("to_cai")),
        Err(error) => began.refused("to_cai", error),
    }
}

#[inline]
fn by_its_door(
    x: &Bound<'_, PyAny>,
    facts: &Facts,
    request: Request,
    held: Option<Py<PyAny>>,
) -> PyResult<Source> {
    if let (Speaks::Foreign, Some(table)) = (facts.speaks, facts.table) {
        return dlpack_source::exchange(x, facts, table, request, held);
    }
    match facts.speaks {
        Speaks::CaiView => {
            re_export(x, x.cast::<CaiView>()?.get().0.unwrap(x.py(), None)?, request, held)
        }
        Speaks::DLPackView => {
            re_export(x, x.cast::<DLPackView>()?.get().0.unwrap(x.py(), None)?, request, held)
        }
        Speaks::Capsule => dlpack_source::capsule(x, request, held),
        Speaks::Foreign if facts.has_dlpack || (!facts.has_cai && has_dlpack(x)?) => {
            dlpack_source::protocol(x, facts, request, held)
        }
        Speaks::Foreign if facts.has_cai || has_cai(x)? => {
            let ordered = matches!(request, Request::On(_));
            let said = cai_source::Said { ordered, ..Default::default() };
            re_export(x, cai_source::import(x, facts, said)?, request, held)
        }
        Speaks::Dict => {
            let got = "a dict, which has no owner; from_cai(dict, owner=...) takes one";
            Err(Error::new(Kind::Protocol, got).into())
        }
        Speaks::Foreign => {
            let got = format!(
                "{} without a known __dlpack_c_exchange_api__, __dlpack__ or __cuda_array_interface__",
                stream::an_object(x)
            );
            Err(Error::new(Kind::Protocol, got).into())
        }
    }
}

/// Whether the object itself has the attribute, where its type has neither: seldom, and slow to ask.
fn has_dlpack(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    x.hasattr(intern!(x.py(), "__dlpack__"))
}

/// The same for the other protocol.
fn has_cai(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    x.hasattr(intern!(x.py(), "__cuda_array_interface__"))
}

/// An array whose readiness is known: the edge to the consumer, and what its dict then says.
fn re_export(
    x: &Bound<'_, PyAny>,
    mut source: Source,
    request: Request,
    held: Option<Py<PyAny>>,
) -> PyResult<Source> {
    let py = x.py();
    check_stream(&source.array, &source.driver, source.place, request)?;
    hand_over(py, "to_cai", &source.driver, source.place, source.ready, request)?;
    source.keep.tell(py, &source.array, request, held)?;
    Ok(Source { ready: told(source.ready, request), ..source })
}
