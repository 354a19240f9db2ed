//! `to_cai`: a view that speaks the CUDA Array Interface, of an array that speaks DLPack or the CUDA Array Interface.

use pyo3::intern;
use pyo3::prelude::*;

use super::another_way::{self, from_dict, has_cai};
use super::{Optional, report};
use crate::error::{Error, Kind};
use crate::py::flag;
use crate::py::habits::Habit;
use crate::py::hand_over::{Recipient, hand_over};
use crate::py::interpreter::{Answer, answered, entry};
use crate::py::lease::{HeldMemory, look};
use crate::py::observe::CallSpan;
use crate::py::producers::types::{ProducerKind, TypeFacts, facts, speaks, stands_for};
use crate::py::producers::{ImportFor, Refused, Wanted, dlpack, types};
use crate::py::streams::StreamArgument;
use crate::py::text::an_object;
use crate::py::views::{BaseView, CaiView};

const DOOR: &str = "to_cai";

/// A view of an array that speaks DLPack, for consumers that speak the CUDA Array Interface.
///
/// Nothing is copied. The host waits only if nobody says on which stream the array is ready, see
/// `from_cai`. The view keeps the producer alive. At its end the producer's stream waits for the
/// consumer's, see `CaiView.release`.
///
/// Parameters
/// ----------
/// x : object
///     An object with DLPack's exchange API or ``__dlpack__``, a ``dltensor`` or
///     ``dltensor_versioned`` capsule, a ``DLPackView``, or an object that speaks only the CUDA Array
///     Interface (version 0 to 3). If an object speaks both protocols, the consumer also waits for
///     the stream that the dict names. If its DLPack raises an exception, the bridge reads the dict.
/// stream : None, int or stream object, optional
///     The **consumer's** stream: 1, 2, a handle, or an object with ``__cuda_stream__``, which the
///     view then holds. The stream waits for the producer's. If nothing keeps a bare handle of a
///     non-blocking stream alive, the host waits at the end, with a warning once for each line of the
///     program. With None the consumer must wait: the dict names the stream that the array is ready on.
///     At the end the producer's stream then waits for PyTorch's and CuPy's current streams and for the
///     legacy default stream. With -1 no stream waits, not even at the end, and the dict names no stream.
/// readonly : bool, optional
///     None keeps the producer's flag. True hands out read-only memory. With False you vouch that
///     writing is right.
///
/// Returns
/// -------
/// CaiView
///
/// Raises
/// ------
/// BufferError
///     The CUDA Array Interface cannot express the array, or CUDA cannot reach its memory.
/// ValueError
///     A malformed capsule, dict or argument, or a stream of another device than the array's.
/// TypeError
///     An object that speaks neither protocol, or an argument of another type.
/// DriverError
///     A call of the CUDA driver failed, a graph capture cannot contain the wait, or this process was
///     forked from the process that made the array.
///
/// Notes
/// -----
/// CUDA Array Interface (Version 3), "Synchronization"; DLPack 1.3, "Python Specification".
///
/// Examples
/// --------
/// >>> from cai_bridge import to_cai
/// >>> from cai_bridge.testing import simulated_cuda
/// >>> with simulated_cuda() as cuda:
/// ...     x, stream = cuda.array([1.0, 2.0], speaks="dlpack"), cuda.stream()
/// ...     with to_cai(x, stream=stream) as view:
/// ...         view.stream == stream.handle
/// True
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None))]
pub(crate) fn to_cai<'py>(
    x: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
) -> Answer<'py> {
    entry(x.py(), || {
        let span = CallSpan::begin();
        let made = view(x, stream, readonly);
        if span.is_observed() { report(DOOR, span, made) } else { made }
    })
}

#[inline]
fn view<'py>(
    x: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
) -> PyResult<Bound<'py, CaiView>> {
    let source = import(DOOR, x, stream, readonly, Wanted::Cai)?;
    BaseView::object::<CaiView>(x.py(), source)
}

#[inline(always)]
pub(super) fn import<'py>(
    door: &'static str,
    x: &Bound<'py, PyAny>,
    stream: Optional<'_, 'py>,
    readonly: Optional<'_, 'py>,
    wanted: Wanted,
) -> PyResult<Box<HeldMemory>> {
    let argument = StreamArgument::parse(stream)?;
    let readonly = flag::parse("readonly", readonly)?;
    let mut source = source_for(door, x, &argument, wanted)?;
    source.array.set_readonly(readonly);
    Ok(source)
}

pub(crate) fn source(door: &'static str, x: &Bound<'_, PyAny>) -> PyResult<Box<HeldMemory>> {
    source_for(door, x, &StreamArgument::UNSPECIFIED, Wanted::DLPack)
}

#[inline(always)]
fn source_for(
    door: &'static str,
    x: &Bound<'_, PyAny>,
    argument: &StreamArgument<'_, '_>,
    wanted: Wanted,
) -> PyResult<Box<HeldMemory>> {
    let facts = facts(x)?;
    let mut source = take_in(x, &facts, ImportFor { door, argument, consumer: argument, wanted })?;
    wanted.check(x.py(), &source)?;
    dlpack::consume(x.py(), &mut source)?;
    Ok(source)
}

/// Imports `x`, and tries another protocol after some errors. A capsule is not consumed yet.
#[inline(always)]
pub(super) fn take_in(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    asked: ImportFor<'_, '_>,
) -> PyResult<Box<HeldMemory>> {
    let take_in = |facts: &TypeFacts| take_in_by(x, facts, asked);
    take_in(facts).or_else(|refused| another_way::take_in(x, facts, asked, refused, take_in))
}

#[inline(always)]
fn take_in_by(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    asked: ImportFor<'_, '_>,
) -> Result<Box<HeldMemory>, Refused> {
    let ImportFor { door, argument, .. } = asked;
    if let (ProducerKind::Foreign, Some(table)) = (facts.producer, facts.table) {
        if facts.has_still(table, x)? {
            return dlpack::exchange(door, x, facts, table, argument);
        }
        return Err(Error::new(Kind::ExchangeTable, "a type that has another one by now").into());
    }
    match facts.producer {
        ProducerKind::CaiView | ProducerKind::DLPackView => {
            let view = x.cast::<BaseView>().map_err(PyErr::from)?;
            Ok(unwrap_view(door, x.py(), view.get(), argument)?)
        }
        ProducerKind::Capsule => Ok(dlpack::capsule(door, x, argument)?),
        ProducerKind::Foreign if facts.has_cai && facts.has(Habit::NamesCurrentStream) => {
            Ok(from_dict(x, facts, asked)?)
        }
        ProducerKind::Foreign if facts.has_dlpack => dlpack::protocol(x, facts, facts, asked),
        ProducerKind::Foreign if !facts.has_cai && has_dlpack(x)? => match stands_for(x)? {
            Some(array) => {
                let known = types::facts(&array)?;
                dlpack::protocol(x, facts, &known, asked)
            }
            None => dlpack::protocol(x, facts, facts, asked),
        },
        ProducerKind::Foreign if facts.has_cai || has_cai(x)? => Ok(from_dict(x, facts, asked)?),
        ProducerKind::Class => Err(types::a_class(x).into()),
        ProducerKind::Dict => {
            let got = "a dict, which has no owner; from_cai(dict, owner=...) takes it";
            Err(Error::new(Kind::Protocol, got).into())
        }
        ProducerKind::Foreign => {
            let several = x.hasattr(intern!(x.py(), "__iter__"))?;
            let got = format!(
                "{} without a known __dlpack_c_exchange_api__, __dlpack__ or __cuda_array_interface__{}",
                an_object(x)?,
                if is_sparse(x)? {
                    PARTS
                } else if several && cfg!(feature = "wheel") {
                    TREES
                } else {
                    ""
                }
            );
            Err(Error::new(Kind::Protocol, got).into())
        }
    }
}

/// A hint for an iterable object; only the Python package has `convert`.
const TREES: &str = " (convert takes lists, tuples, dicts and dataclasses of arrays)";

const PARTS: &str = " (x.todense() of a sparse array, or its parts, as x.data and x.indices)";

/// CuPy's `csr_matrix` and JAX's `BCOO` have these attributes.
#[cold]
fn is_sparse(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let has = |name| Ok::<_, PyErr>(answered(x.py(), x.hasattr(name))? == Some(true));
    let py = x.py();
    Ok(has(intern!(py, "todense"))? && has(intern!(py, "data"))? && has(intern!(py, "indices"))?)
}

/// Reading the attribute may be slow, so call this only if the type has neither protocol.
fn has_dlpack(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    speaks(x, intern!(x.py(), "__dlpack__"))
}

fn unwrap_view(
    door: &'static str,
    py: Python<'_>,
    view: &BaseView,
    argument: &StreamArgument<'_, '_>,
) -> PyResult<Box<HeldMemory>> {
    look(py);
    let mut source = view.unwrap(py)?;
    hand_over(door, py, &mut source, &Recipient::of(argument))?;
    Ok(source)
}
