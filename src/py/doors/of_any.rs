//! `to_dlpack`, and what `convert` is made of: arrays of whatever protocol, for whatever consumer.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

use super::of_dlpack::{check_export, take_in};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::dlpack::encode;
use crate::dlpack::exchange::Table;
use crate::error::{Error, Kind};
use crate::order::{self, Door};
use crate::py::flag;
use crate::py::interpreter::{Answer, entry};
use crate::py::lease::Tenant;
use crate::py::observe::{Began, End, Passage};
use crate::py::producers::types::{facts, table_of};
use crate::py::source::{Source, consumers_place, hand_over, told};
use crate::py::streams::Argument;
use crate::py::text::tuple_text;
use crate::py::views::{CaiView, DLPackView, View};
use crate::stream::{Elided, Ready, Request};

const DOOR: &str = "to_dlpack";

/// A view of an array that speaks either protocol, for consumers that speak DLPack.
///
/// Nothing is copied, and the host does not wait. The view keeps the producer alive; what it hands out
/// is ordered for the consumer that asks for it, see ``DLPackView.__dlpack__``.
///
/// Parameters
/// ----------
/// x : object
///     What `to_cai` takes: an object with DLPack's exchange API or ``__dlpack__``, a capsule, a view, or an
///     object that speaks the CUDA Array Interface (version 0 to 3).
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
/// BufferError, ValueError, TypeError, DriverError
///     As in `to_cai`.
///
/// Notes
/// -----
/// DLPack 1.3, "Python Specification".
#[pyfunction]
#[pyo3(signature = (x, stream=None, readonly=None))]
pub(crate) fn to_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    readonly: Option<&Bound<'py, PyAny>>,
) -> Answer<'py> {
    entry(x.py(), || {
        let began = Began::now();
        let made = Argument::parse(stream).and_then(|argument| {
            let readonly = flag::parse("readonly", readonly)?;
            let source = take_in(DOOR, x, &*facts(x)?, &argument)?;
            View::new(source, readonly).into_object(x.py(), DLPackView)
        });
        let made = made.map_err(|error| began.refused(DOOR, error))?;
        began.exchanged(made.as_super().get().passage_in(DOOR));
        Ok(made)
    })
}

const CONVERT: &str = "convert";

/// What arrays are made for.
#[derive(Clone, Copy)]
enum Target {
    Cai,
    DLPack,
    /// A library with an exchange API, whose arrays are made by it.
    Library(Table),
}

/// Where the consumer of the arrays of a GPU works: what was said, or its library's answer.
struct Asked<'py> {
    ordinal: i32,
    answer: Option<Bound<'py, PyAny>>,
}

/// Makes views of arrays, or arrays of a library with an exchange API, in order for one stream: all of them,
/// or none. What is refused says in `_cai_bridge_item` which it was.
///
/// `stream` is the consumer's; where that is None, `current` is asked for each device's, or else the exchange
/// API. `writes` refuses read-only memory that nobody vouches for.
#[pyfunction]
#[pyo3(signature = (xs, target, stream, current, readonly, writes))]
pub(crate) fn _convert<'py>(
    xs: &Bound<'py, PyList>,
    target: &Bound<'py, PyType>,
    stream: Option<&Bound<'py, PyAny>>,
    current: Option<&Bound<'py, PyAny>>,
    readonly: Option<bool>,
    writes: bool,
) -> Answer<'py> {
    let py = xs.py();
    entry(py, || {
        let target = Target::of(target)?;
        let mut sources = Vec::with_capacity(xs.len());
        for (item, x) in xs.iter().enumerate() {
            let taken = take(&x, readonly, writes);
            sources.push(taken.map_err(|error| at_item(py, error, item))?);
        }
        let streams = streams(py, &sources, stream, current)?;
        let mut arguments = Vec::with_capacity(streams.len());
        for Asked { ordinal, answer } in &streams {
            let argument = match (answer, stream.is_none(), target) {
                (None, true, Target::Library(table)) => {
                    Argument::native(table.current_work_stream(py, Device::cuda(*ordinal))?)
                }
                (answer, ..) => Argument::parse(answer.as_ref())?,
            };
            let argument = if stream.is_none() { argument.unsaid() } else { argument };
            arguments.push((*ordinal, argument));
        }
        let mut ordered = Vec::new();
        for (item, source) in sources.iter_mut().enumerate() {
            let at = consumers_place(&source.array, source.place);
            let argument = arguments.iter().find(|(ordinal, _)| *ordinal == at.ordinal);
            if let Some((_, argument)) = argument {
                order_for(py, source, (argument, at), &mut ordered)
                    .map_err(|error| at_item(py, error, item))?;
            }
        }
        let made = PyList::empty(py);
        for (item, source) in sources.into_iter().enumerate() {
            let array = make(py, source, target, readonly);
            made.append(array.map_err(|error| at_item(py, error, item))?)?;
        }
        Ok(made)
    })
}

impl Target {
    fn of(target: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = target.py();
        if target.is(py.get_type::<CaiView>()) {
            return Ok(Self::Cai);
        }
        if target.is(py.get_type::<DLPackView>()) {
            return Ok(Self::DLPack);
        }
        match table_of(target)? {
            Some(table) => Ok(Self::Library(table)),
            None => Err(Error::new(Kind::ExchangeTable, "none").into()),
        }
    }
}

/// Takes an array in, ready where its producer works, with no consumer yet.
fn take(x: &Bound<'_, PyAny>, readonly: Option<bool>, writes: bool) -> PyResult<Source> {
    let mut source = take_in(CONVERT, x, &*facts(x)?, &Argument::UNSAID)?;
    source.array = source.array.with_readonly(readonly);
    if writes && source.array.readonly() {
        return Err(Error::new(Kind::ReadOnlyConverted, "read-only memory").into());
    }
    Ok(source)
}

/// The consumer's stream for each GPU that there are arrays of.
fn streams<'py>(
    py: Python<'py>,
    sources: &[Source],
    stream: Option<&Bound<'py, PyAny>>,
    current: Option<&Bound<'py, PyAny>>,
) -> PyResult<Vec<Asked<'py>>> {
    let mut streams: Vec<Asked<'py>> = Vec::new();
    for source in sources {
        let ordinal = consumers_place(&source.array, source.place).ordinal;
        if streams.iter().any(|asked| asked.ordinal == ordinal) {
            continue;
        }
        let answer = match (stream, current) {
            (Some(stream), _) => Some(stream.clone()),
            (None, Some(current)) => Some(current.call1((ordinal,))?),
            (None, None) => None,
        };
        streams.push(Asked { ordinal, answer: answer.filter(|answer| !answer.is(py.None())) });
    }
    Ok(streams)
}

/// Makes `source` usable on its consumer's stream. All arrays are taken in by now, so that one event orders
/// all those that are ready on the same stream.
fn order_for(
    py: Python<'_>,
    source: &mut Source,
    (argument, at): (&Argument<'_, '_>, Place),
    ordered: &mut Vec<(Ready, Place, Place)>,
) -> PyResult<()> {
    let (ready, request) = (source.ready, argument.request());
    check_export(source, argument, at)?;
    let pair = (ready, source.place, at);
    if ordered.contains(&pair) {
        let door = Door::handing_over(CONVERT);
        order::elided(door, source.place, Elided::Together, || request.stream());
    } else {
        hand_over(py, CONVERT, &source.holding, (ready, source.place), (argument, at))?;
        ordered.push(pair);
    }
    if source.array.ptr() != 0 && (request != Request::Unsaid || !source.holding.has_consumer()) {
        source.holding.hand_to(py, argument, at)?;
    }
    if let Request::On(_) = request {
        source.holding.ready_for_consumer(py);
    }
    source.ready = told(ready, request);
    Ok(())
}

/// The array of `source` as the consumer has it.
fn make(
    py: Python<'_>,
    source: Source,
    target: Target,
    readonly: Option<bool>,
) -> PyResult<Bound<'_, PyAny>> {
    let began = Began::now();
    let view = match target {
        Target::Library(table) => return give(py, source, table, began),
        Target::Cai => View::new(source, readonly).into_object(py, CaiView)?.into_any(),
        Target::DLPack => View::new(source, readonly).into_object(py, DLPackView)?.into_any(),
    };
    began.exchanged(view.cast::<View>()?.get().passage_in(CONVERT));
    Ok(view)
}

/// An array that a library makes itself of a managed tensor, whose deleter gives the memory back.
fn give(
    py: Python<'_>,
    mut source: Source,
    table: Table,
    began: Began,
) -> PyResult<Bound<'_, PyAny>> {
    let array: Descriptor = source.array;
    // PyTorch ends the process where its exchange API meets them (torch 2.11).
    if array.layout().strides().iter().any(|step| *step < 0) {
        let got = tuple_text(array.layout().strides());
        return Err(Error::new(Kind::StrideNegative, got).into());
    }
    source.holding.tag = (End::Deleter, array.ptr());
    let managed = encode::versioned(&array, Box::new(Tenant::new(source.holding)))?;
    let made = table.give(py, managed)?;
    let (by, stream) = (source.by.as_str(), source.ready.stream());
    began.exchanged(Passage { door: CONVERT, by, array: &array, stream });
    Ok(made)
}

/// Notes which item an error is about, for whoever knows what that is.
#[cold]
fn at_item(py: Python<'_>, error: PyErr, item: usize) -> PyErr {
    let _ = error.value(py).setattr("_cai_bridge_item", item);
    error
}
