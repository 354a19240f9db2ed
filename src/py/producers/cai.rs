//! Imports an array by the CUDA Array Interface: from an object, or from a dict with its owner. For a dict that does
//! not say what is pending, as in version 0 to 2, [`silence`] looks for the stream.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefProxy};

use super::device::{device_argument, locate, said_device, without_items};
use super::dict_stream::{DictStream, Earlier};
use super::dtype::{agreed, check_dtype, exact, name_of, named};
use super::interface::interface;
use super::readiness::declared;
use super::types::{self, ProducerKind, TypeFacts};
use super::{Wanted, by_attributes, missing_strides, silence};
use crate::cai::{Claim, Decoded};
use crate::device::Place;
use crate::driver;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::layout::Layout;
use crate::py::cai_dict::{self, Reading};
use crate::py::habits::Habit;
use crate::py::interpreter::detach;
use crate::py::lease::{HeldMemory, Readiness};
use crate::py::library::NamedBy;
use crate::py::numpy;
use crate::py::observe::By;
use crate::py::plain::is_constant;
use crate::py::source::check_argument;
use crate::py::streams::{KnownStream, StreamArgument};
use crate::py::text::an_object;
use crate::py::views::BaseView;
use crate::stream::{Ready, Request, Stream};

#[derive(Debug)]
pub(crate) struct ImportOptions<'a, 'py> {
    pub(crate) door: &'static str,
    /// The stream that has the array's pending work, by the caller's declaration.
    pub(crate) stream: &'a StreamArgument<'a, 'py>,
    /// The consumer's stream. If the caller named this stream, `CAI_BRIDGE_SYNC=0` does not turn off its wait.
    pub(crate) consumer: &'a StreamArgument<'a, 'py>,
    pub(crate) wanted: Wanted,
    pub(crate) owner: Option<&'a Bound<'py, PyAny>>,
    pub(crate) device: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
}

/// Imports `x` by its CAI dict, or by attributes with the same information. The consumer's stream does not wait yet.
pub(crate) fn import<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
    options: &ImportOptions<'_, 'py>,
) -> PyResult<Box<HeldMemory>> {
    let py = x.py();
    let owner = owner(x, facts, options.owner)?;
    let of_owner =
        if facts.producer == ProducerKind::Dict { Some(types::facts(owner)?) } else { None };
    let of_owner = of_owner.as_deref().unwrap_or(facts);
    let mut source = begin(owner, facts)?;
    let is_said = matches!(options.stream.request(), Request::On(_));
    let layout = source.array.layout_mut();
    let by_attributes = match &facts.attributes {
        Some(questions) => by_attributes::decode(questions, x, layout)?,
        None => None,
    };
    let exports = facts.producer != ProducerKind::Dict;
    let said_dtype = match options.dtype {
        None => None,
        Some(said) => named(said)?,
    };
    let (mut silent, mut names, mut words) = (false, None, None);
    let decoded = if let Some(read) = by_attributes {
        names = Some(read.stream);
        read.decoded
    } else {
        let dict = missing_strides::added(interface(x, facts)?, owner, of_owner)?;
        silent = silence::never_names_stream(of_owner, &dict)?;
        by_dict(&dict, owner, of_owner, options, said_dtype, layout, &mut words)?
    };
    let Decoded { version, ptr, readonly, mut dtype, reach, claim } = decoded;
    if let Some(said) = said_dtype.filter(|said| said.itemsize() == dtype.itemsize()) {
        dtype = said;
    } else if names.is_none() && exports && facts.may_say_more(dtype) {
        // A dict that was passed separately is free to give its owner's memory any element type.
        dtype = agreed(x, facts, dtype)?;
    }
    check_dtype(options.dtype, dtype)?;
    let wanted = options.device.map(device_argument).transpose()?;
    let layout = source.array.layout();
    let (device, place) = if layout.size() == 0 {
        let named = if let Claim::Stated(ready) = claim { ready.stream() } else { None };
        let named = named.filter(|_| exports && !of_owner.has(Habit::StoresDict));
        let said = || said_device(owner, &source.driver, named);
        without_items(&source.driver, ptr, wanted, [options.stream, options.consumer], said)?
    } else {
        locate(&source.driver, ptr, layout, wanted)?
    };
    source.driver.open(place.ordinal, |call| detach(py, call));
    source.array.set(ptr, dtype, reach, device, readonly)?;
    source.set_place(place);
    if let Some(words) = words {
        if exports && let Some(exact) = exact(x, facts, words.bind(py))? {
            words.bind(py).set_item(numpy::exact(py), exact)?;
        }
        source.keep_words(words);
    }
    source.by = By::Cai(version);
    // Managed and pinned memory can have pending work on another GPU's stream.
    let there = check_argument(&source.array, &source.driver, options.stream, place)?;
    let claim = match &names {
        Some(NamedBy::Library(current)) => by_attributes::current(py, *current, place)?,
        _ if silent => Claim::Silent,
        _ if claim == Claim::Stated(Ready::Nothing) && !of_owner.says_what_is_pending() => {
            Claim::Stated(Ready::Unsaid)
        }
        _ => claim,
    };
    let object = match &names {
        Some(NamedBy::Array(Some(object))) => Some(object),
        _ => None,
    };
    let driver = &source.driver;
    let ordered = matches!(options.consumer.request(), Request::On(_)) || ordering_wanted();
    let stores = of_owner.has(Habit::StoresDict);
    let work = DictStream { driver, place, owner, exports, ptr, of_owner, object, stores };
    if options.stream.request() == Request::Unspecified
        && ordered
        && let Some(producer) = work.on_default(py, claim)
    {
        source.produced(Readiness::of(Ready::On(producer.stream()), Some(producer)));
        return Ok(source);
    }
    let is_unnamed = matches!(names, Some(NamedBy::Array(None)));
    let (mut ready, before) = if source.array.ptr() == 0 {
        (Readiness::told(Ready::Nothing), None)
    } else {
        readiness(x, facts, options, &work, Said { claim, is_unnamed, there, ordered })?
    };
    let unnamed = match (options.stream.request(), claim) {
        (Request::Unspecified, Claim::Stated(Ready::Nothing | Ready::Unsaid)) => work.unnamed()?,
        _ => None,
    };
    let elided = options.stream.request() == Request::Unspecified && !ordered;
    if elided {
        ready.told = Ready::Nothing;
    }
    let named = if let Claim::Stated(ready) = claim { ready.stream() } else { None };
    waited(py, &mut ready, before.as_ref());
    keep_streams(&mut source, owner, facts, ready, |view| is_said || named != view.told().stream());
    source.keep_unnamed(unnamed);
    if let Some(before) = before {
        source.producer_side.put_upstream(KnownStream::Kept(before.stream));
    }
    Ok(source)
}

#[derive(Clone, Copy)]
struct Said {
    claim: Claim,
    /// Whether the array was read by attributes, and its own stream attribute names no stream.
    is_unnamed: bool,
    there: Place,
    /// Whether the caller named the consumer's stream, or [`ordering_wanted`] is true.
    ordered: bool,
}

/// The second result, if any, is another named stream, for which the array's stream now waits.
#[inline]
fn readiness(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    options: &ImportOptions<'_, '_>,
    work: &DictStream<'_, '_>,
    said: Said,
) -> PyResult<(Readiness, Option<Earlier>)> {
    let (py, door) = (x.py(), options.door);
    let Said { claim, is_unnamed, there, ordered } = said;
    let ready = match (options.stream.request(), claim) {
        (Request::On(_), claim) => {
            let mut before = None;
            if let (Some(declared), Claim::Stated(Ready::On(named))) =
                (options.stream.alive(there), claim)
                && ordering_wanted()
                && !is_unnamed
            {
                before = work.order_named(py, door, named, declared)?;
            }
            let ready = declared(py, door, options.stream, work.driver, there, work.place)?;
            return Ok((ready, before));
        }
        (request, Claim::Stated(Ready::On(stream))) if work.is_stored(stream) => {
            work.stored(py, door, stream, request, ordered)?
        }
        (Request::NoOrder, Claim::Stated(Ready::On(stream))) => {
            Readiness::of(Ready::Nothing, work.kept(py, stream)?)
        }
        (_, Claim::Stated(Ready::On(stream))) => {
            let before = if ordered { work.order_owners(py, door, stream)? } else { None };
            return Ok((work.exported(py, door, stream)?, before));
        }
        (Request::Unspecified, Claim::Silent) => {
            silence::settle(x, facts, work.owner, work.driver, work.place, door, ordered)?
        }
        (Request::Unspecified, Claim::Stated(ready)) => Readiness::told(ready),
        (Request::NoOrder, _) => Readiness::told(Ready::Nothing),
    };
    Ok((ready, None))
}

#[inline(always)]
fn waited(py: Python<'_>, ready: &mut Readiness, before: Option<&Earlier>) {
    if let Some(Earlier { stream, captured }) = before {
        ready.waited(py, *captured, stream);
    }
}

#[inline]
fn by_dict(
    dict: &Bound<'_, PyDict>,
    owner: &Bound<'_, PyAny>,
    of_owner: &TypeFacts,
    options: &ImportOptions<'_, '_>,
    said: Option<Dtype>,
    layout: &mut Layout,
    words: &mut cai_dict::Words,
) -> PyResult<Decoded> {
    let request = options.stream.request();
    let unnamed = match request {
        Request::On(_) => None,
        _ => default_stream(owner, of_owner)?,
    };
    let own = |is_open| match options.dtype {
        Some(said) => Ok((None, name_of(said)?)),
        None => match of_owner.dtype_of(owner)? {
            Some(own) if is_open => Ok((None, name_of(&own)?)),
            Some(own) => Ok((named(&own)?, None)),
            None => Ok((None, None)),
        },
    };
    let reading = Reading { unnamed, declared: request != Request::Unspecified, said };
    let words = (options.wanted != Wanted::DLPack).then_some(words);
    cai_dict::decode(dict, reading, own, layout, words)
}

fn default_stream(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<Option<Stream>> {
    let library = facts.library.filter(|_| facts.has(Habit::DefaultStreamUnnamed));
    library.map(|library| library.default_stream(x.py())).transpose()
}

/// If the owner of a separately passed dict is a view of the bridge, shares the view's memory: the view can be released
/// early.
#[inline]
fn begin(owner: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<Box<HeldMemory>> {
    let py = owner.py();
    if let Some(view) = owning_view(owner, facts) {
        return Ok(view.share(py)?);
    }
    let driver = driver::prepared(|call| detach(py, call))?;
    // A weak proxy does not keep its object alive, so keep that object.
    let owner = match owner.cast::<PyWeakrefProxy>() {
        Ok(proxy) => proxy.upgrade().unwrap_or_else(|| owner.clone()),
        Err(_) => owner.clone(),
    };
    Ok(HeldMemory::array(owner.unbind(), None, driver, By::Cai(0)))
}

fn owning_view<'a>(owner: &'a Bound<'_, PyAny>, facts: &TypeFacts) -> Option<&'a BaseView> {
    let is_dict = facts.producer == ProducerKind::Dict;
    if is_dict { owner.cast::<BaseView>().ok().map(Bound::get) } else { None }
}

/// If a view of the bridge owns the memory of a dict, `is_another` tells whether the stream of `ready` becomes an
/// upstream stream.
#[inline]
fn keep_streams(
    source: &mut HeldMemory,
    owner: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    ready: Readiness,
    is_another: impl Fn(&BaseView) -> bool,
) {
    let Some(view) = owning_view(owner, facts) else {
        source.produced(ready);
        return;
    };
    let Readiness { told, producer, ready_on } = ready;
    source.ready = told;
    let same = || producer.as_ref().map(|producer| producer.clone_ref(owner.py()));
    source.keep_ready_on(ready_on.or_else(same));
    if let Some(producer) = producer.filter(|_| is_another(view)) {
        source.producer_side.put_upstream(KnownStream::Kept(producer));
    }
}

fn owner<'a, 'py>(
    x: &'a Bound<'py, PyAny>,
    facts: &TypeFacts,
    owner: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<&'a Bound<'py, PyAny>> {
    let is_dict = facts.producer == ProducerKind::Dict;
    match owner {
        Some(owner) if is_dict && !owner.is(x) && is_constant(owner)? => {
            Err(Error::new(Kind::OwnerConstant, an_object(owner)?).into())
        }
        Some(owner) if is_dict && !(owner.is(x) && x.is_exact_instance_of::<PyDict>()) => Ok(owner),
        _ if is_dict => {
            let got = if owner.is_some() { "the dict itself" } else { "None" };
            Err(Error::new(Kind::OwnerMissing, got).into())
        }
        _ if facts.producer == ProducerKind::Class => Err(types::a_class(x)),
        Some(_)
            if !facts.has_cai
                && !types::speaks(x, intern!(x.py(), "__cuda_array_interface__"))? =>
        {
            let got = format!("{} beside owner=", an_object(x)?);
            Err(Error::at(Kind::DictType, "x", got).into())
        }
        Some(owner) => Err(Error::new(Kind::OwnerUnexpected, an_object(owner)?).into()),
        None => Ok(x),
    }
}

/// Whether importing a dict makes streams, or the host, wait even if the caller named no consumer's stream.
/// `CAI_BRIDGE_SYNC=0` turns these waits off, as Numba's and CuPy's variables do (CAI v3, "Interface Requirements").
pub(crate) fn ordering_wanted() -> bool {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CAI_BRIDGE_SYNC").is_none_or(|value| value != "0"))
}
