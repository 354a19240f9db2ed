//! Imports an array by DLPack: by the exchange API, by `__dlpack__`, or as a capsule. JAX's `__dlpack__` (0.11.2) fails
//! on -1. PyTorch's (2.11) refuses stream 2, and tensors that are not on the current device. So the bridge makes the
//! array's GPU current, and calls again with other arguments if the first were refused.

use dlpark::python::ImportedDlpack;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::by_dict::{ByDict, OfMemory, also_by_dict};
use super::device::{check_exists, check_memory};
use super::dunder::{ask, ask_quickly, call, dlpack_device};
use super::readiness::{of_producer, work_stream};
use super::types::{self, ProducerKind, TypeFacts};
use super::{ImportFor, Refused, host_wait, refusals};
use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind, Place};
use crate::dlpack::capsule::{self, Form, Held};
use crate::dlpack::decode;
use crate::dlpack::exchange::ExchangeTable;
use crate::driver::{self, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Purpose};
use crate::py::habits::Habit;
use crate::py::hand_over::{Recipient, hand_over};
use crate::py::interpreter::{answered, detach};
use crate::py::lease::{Captured, HeldMemory, Readiness, Unconsumed, look};
use crate::py::observe::By;
use crate::py::source::{check_argument, place_of};
use crate::py::streams::{KnownStream, StreamArgument, StreamRef, current};
use crate::py::text::{an_object, refused};
use crate::stream::{Alive, Ready, Request, Stream};

/// Imports `x` by the exchange API, and hands it over. The tensor is ready on the library's current work stream.
#[inline(always)]
pub(crate) fn exchange(
    door: &'static str,
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    table: ExchangeTable,
    argument: &StreamArgument<'_, '_>,
) -> Result<Box<HeldMemory>, Refused> {
    let py = x.py();
    look(py);
    let driver = driver::prepared(|call| detach(py, call))?;
    let imported = table.import(x).map_err(|error| refusals::explain(x, facts, error))?;
    decode::check_own(imported.0.flags())?;
    let mut source = HeldMemory::array(x.clone().unbind(), None, driver, By::ExchangeApi);
    let read = imported.read_into(&mut source.array);
    read.map_err(|error| refusals::explain_null(x, facts, error))?;
    source.take(ImportedDlpack::Versioned(imported.0));
    refusals::check(x, facts, Some(source.array.dtype()))?;
    if !facts.has(Habit::KeepsToDlpack) {
        check_memory(&source.driver, &source.array)?;
    }
    let place = place(py, &source.driver, &source.array)?;
    source.set_place(place);
    let native = table.current_work_stream(py, Device::cuda(place.ordinal))?;
    let work = current::named(py, native, place);
    let ready = if let Some(producer) = StreamRef::of_default(work) {
        Readiness::of(Ready::On(work.stream()), Some(producer))
    } else {
        let passed_on = argument.request() == Request::Unspecified;
        of_producer(py, door, &source.driver, work, place, passed_on)?
    };
    source.produced(ready);
    let dict_stream = if facts.has(Habit::KeepsToDlpack) {
        None
    } else {
        also_by_dict(x, facts, &mut source, work)?
    };
    hand_over(
        door,
        py,
        &mut source,
        &Recipient { ready_on: Some(work), dict_stream, ..Recipient::of(argument) },
    )?;
    Ok(source)
}

/// `known` has the type facts of the array to which `x` delegates `__dlpack__`, or those of `x` itself.
pub(crate) fn protocol(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    known: &TypeFacts,
    asked: ImportFor<'_, '_>,
) -> Result<Box<HeldMemory>, Refused> {
    let ImportFor { door, argument, consumer, wanted } = asked;
    let py = x.py();
    look(py);
    let driver = driver::prepared(|call| detach(py, call))?;
    let quick = argument.naming(|| ask_quickly(x, known, argument.request()));
    let quick = quick.map_err(Refused::ByProducer)?;
    let device = if quick.is_none() { declared_device(x)? } else { None };
    refusals::check(x, facts, None)?;
    // If the library's stream is known, request no order (-1): the bridge itself orders the hand-over and the end.
    let own = match device {
        Some(device)
            if known.producer == ProducerKind::Foreign
                && (device.kind == MemoryKind::Device || known.has(Habit::IgnoresStream)) =>
        {
            work_stream(py, known, &driver, device.id)?
        }
        _ => None,
    };
    let request = if own.is_some() { Request::NoOrder } else { argument.request() };
    let (answer, ready) = if let Some(answered) = quick {
        answered
    } else {
        let ask = || argument.naming(|| ask(x, known, request)).map_err(Refused::ByProducer);
        on_device(py, &driver, device, ask)?
    };
    let capsule =
        answer.cast::<PyCapsule>().map_err(|_| refused(Kind::CapsuleType, an_object(&answer)))?;
    let held = capsule::read(capsule).map_err(|error| refusals::explain_null(x, known, error))?;
    let Held { form, array, context } = held;
    wanted.check_dtype(array.dtype())?;
    if let Form::Versioned(flags) = form {
        decode::check_own(flags)?;
    }
    let dict = ByDict::of(x, facts, known, &array)?;
    let readonly = dict.readonly || known.has(Habit::Immutable);
    let array = array.with_readonly(readonly.then_some(true));
    if !known.has(Habit::KeepsToDlpack) {
        check_memory(&driver, &array)?;
    }
    check_device(device, &array)?;
    let place = place(py, &driver, &array)?;
    let silent = known.has(Habit::OrdersNothing) && consumer.request() != Request::NoOrder;
    if silent && array.ptr() != 0 {
        let has_dict = types::speaks(x, intern!(py, "__cuda_array_interface__"))?;
        host_wait::wait(x, has_dict, &driver, place, door)?;
    }
    let work = own.map(|native| current::named(py, native, place));
    let passed_on = argument.request() == Request::Unspecified;
    let of_work = |work| of_producer(py, door, &driver, work, place, passed_on);
    let of_work = work.map(of_work).transpose()?;
    let dict_stream = dict.pending(py, known, place).filter(|_| !silent);
    let names_legacy = dict_stream.is_some_and(|named| named.stream() == Stream::Legacy);
    let presumed =
        own.is_none() && !silent && !names_legacy && ready != Stream::Legacy && array.ptr() != 0;
    let captured =
        if presumed { presume(py, door, known, &driver, place, argument)? } else { Captured::No };
    // Without `work`, take the stream for which the producer made the capsule.
    let ready = work.or_else(|| match ready {
        Stream::Legacy => Some(Alive::legacy(place)),
        _ => argument.alive(place),
    });
    let told = ready.map_or(Ready::Nothing, |ready| Ready::On(ready.stream()));
    let mut readiness = of_work.unwrap_or(Readiness::told(told));
    let of = OfMemory { driver: &driver, place, ptr: array.ptr() };
    let mut unnamed = None;
    if readiness.producer.is_none() {
        readiness.producer = dict.kept(x, known, of)?;
        unnamed = dict.unnamed(x, known, of)?;
    }
    let mut source = HeldMemory::array(x.clone().unbind(), None, driver, By::Dlpack);
    source.array = array;
    source.set_place(place);
    source.produced(readiness);
    source.keep_unnamed(unnamed);
    source.adopt_producer_side(py, context);
    hand_over(
        door,
        py,
        &mut source,
        &Recipient { ready_on: ready, dict_stream, ..Recipient::of(argument) },
    )?;
    if captured != Captured::No {
        source.captured(captured, [StreamRef::standing_in(place)]);
    }
    // Do this last: if an earlier step fails, the capsule is not consumed.
    source.take(capsule::take(capsule)?);
    Ok(source)
}

/// Makes the requested stream, if any, wait for the legacy default stream, unless the library is known to follow
/// DLPack. Returns the capture that the wait is part of.
fn presume(
    py: Python<'_>,
    door: &'static str,
    known: &TypeFacts,
    driver: &Handle,
    place: Place,
    argument: &StreamArgument<'_, '_>,
) -> PyResult<Captured> {
    let Some(to) = argument.alive(place) else { return Ok(Captured::No) };
    if known.has(Habit::KeepsToDlpack) {
        return Ok(Captured::No);
    }
    let door = Purpose::hand_over_of(door, Ready::Unsaid);
    let made = order::connect(door, driver, Alive::legacy(place), to, |call| detach(py, call))?;
    Ok(Captured::of(driver, Some(to), made)?)
}

pub(super) fn make_ready(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    driver: &Handle,
    place: Place,
) -> PyResult<()> {
    refusals::check(x, facts, None)?;
    let device = Some(Device::cuda(place.ordinal));
    on_device(x.py(), driver, device, || ask(x, facts, Request::Unspecified)).map(drop)
}

/// Imports the capsule `x`, and hands the array over. The capsule owns its tensor until [`consume`].
pub(crate) fn capsule(
    door: &'static str,
    x: &Bound<'_, PyAny>,
    argument: &StreamArgument<'_, '_>,
) -> PyResult<Box<HeldMemory>> {
    let py = x.py();
    look(py);
    let Held { array, context, .. } = capsule::read(x.cast::<PyCapsule>()?)?;
    let driver = driver::prepared(|call| detach(py, call))?;
    let place = place(py, &driver, &array)?;
    if array.ptr() != 0 && driver.get().is_ok() {
        if array.device().kind == MemoryKind::Device {
            check_exists(&driver, place.ordinal, "device", format_args!("(2, {})", place.ordinal))?;
        }
        check_memory(&driver, &array)?;
    }
    let mut source = HeldMemory::array(x.clone().unbind(), None, driver, By::Capsule);
    source.array = array;
    source.set_place(place);
    source.produced(Readiness::told(Ready::On(Stream::Legacy)));
    let kept = source.adopt_from_capsule(py, context);
    let own = match &kept {
        Some(KnownStream::Kept(kept)) => kept.confirm(py, &source.driver).map_err(PyErr::from)?,
        _ => None,
    };
    if let (Some(KnownStream::Kept(kept)), Some(own)) = (&kept, own) {
        source.ready = Ready::On(own.stream());
        let is_producers = source.producer_side.is_kept_by(kept);
        source.keep_ready_on((!is_producers).then(|| kept.clone_ref(py)));
    }
    let from = own.unwrap_or(Alive::legacy(place));
    // Of a stream that nothing keeps, use what that stream waited for.
    let is_lost = kept.is_some() && own.is_none();
    let producer = is_lost.then(|| source.producer_side.producer(py)).flatten();
    let dict_stream = match &producer {
        Some(producer) => producer.confirm(py, &source.driver).map_err(PyErr::from)?,
        None => None,
    };
    hand_over(
        door,
        py,
        &mut source,
        &Recipient { ready_on: Some(from), dict_stream, ..Recipient::of(argument) },
    )?;
    Ok(source)
}

/// Does not consume the capsule `x`.
pub(crate) fn check_capsule(
    x: &Bound<'_, PyAny>,
    argument: &StreamArgument<'_, '_>,
) -> PyResult<()> {
    let Held { array, .. } = capsule::read(x.cast::<PyCapsule>()?)?;
    let driver = driver::prepared(|call| detach(x.py(), call))?;
    let place = place(x.py(), &driver, &array)?;
    Ok(check_argument(&array, &driver, argument, place).map(drop)?)
}

/// Does nothing if `source` came from no capsule.
pub(crate) fn consume(py: Python<'_>, source: &mut HeldMemory) -> PyResult<()> {
    if source.by == By::Capsule
        && let Some(capsule) = source.object(py)
    {
        source.take(capsule::take(capsule.bind(py).cast::<PyCapsule>()?)?);
    }
    Ok(())
}

/// The caller must call [`Unconsumed::consume`] after the last step that can fail.
pub(crate) fn consume_later(py: Python<'_>, source: &mut HeldMemory) -> Option<Unconsumed> {
    if source.by == By::Capsule { source.take_later(py) } else { None }
}

/// Also has the CUDA driver retain the GPU's primary context, by [`Handle::open`].
#[inline(always)]
pub(crate) fn place(py: Python<'_>, driver: &Handle, array: &Descriptor) -> Result<Place> {
    let place = place_of(driver, array)?;
    driver.open(place.ordinal, |call| detach(py, call));
    Ok(place)
}

fn declared_device(x: &Bound<'_, PyAny>) -> Result<Option<Device>, Refused> {
    Ok(dlpack_device(x)?.transpose()?)
}

/// Fails if `__dlpack_device__` and the capsule state the same kind of memory, but different IDs. Ignores empty arrays.
fn check_device(named: Option<Device>, array: &Descriptor) -> Result<()> {
    let (Some(named), said) = (named, array.device()) else { return Ok(()) };
    if array.ptr() == 0 || named.kind != said.kind || named.id == said.id {
        return Ok(());
    }
    let [said, got] =
        [said, named].map(|device| format!("({}, {})", device.kind.code(), device.id));
    let got = format!("{got} for memory of {said}");
    Err(Error::at(Kind::DeviceElsewhere, "__dlpack_device__", got))
}

/// Whether the capsule of `x` has memory of the host. False if `x` returns no capsule.
#[cold]
pub(crate) fn is_hosts(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some((answer, _)) = answered(x.py(), call(x, None))? else { return Ok(false) };
    let Ok(capsule) = answer.cast::<PyCapsule>() else { return Ok(false) };
    Ok(capsule::read(capsule).is_err_and(|error| error.kind() == Kind::CpuMemory))
}

/// If `device` is a GPU, makes that GPU current during `ask`: some producers export only from the current GPU.
fn on_device<R, E: From<Error>>(
    py: Python<'_>,
    driver: &Handle,
    device: Option<Device>,
    ask: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let gpu = device.filter(|device| device.kind == MemoryKind::Device);
    let (Some(device), Ok(calls)) = (gpu, driver.get()) else {
        return ask();
    };
    driver.open(device.id, |call| detach(py, call));
    order::within(calls, Place::gpu(device.id), |_| ask()).map_err(|error| {
        let missing = check_exists(
            driver,
            device.id,
            "__dlpack_device__",
            format_args!("(2, {})", device.id),
        );
        missing.err().filter(|why| why.kind() == Kind::DeviceMissing).map_or(error, E::from)
    })
}
