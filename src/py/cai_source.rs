//! Takes in an array that speaks the CUDA Array Interface: an object, or a dict with its owner.
//!
//! What the dict leaves open is settled here: the device, which the pointer knows; the element type
//! behind `<V2` and `|V1`, which the object's `dtype` names; and, for versions 0 to 2, which say
//! nothing of streams, the stream or a wait on the host.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyAttributeError, PyException};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use super::adopt::Live;
use super::back::Back;
use super::cai_view::CaiView;
use super::dlpack_view::DLPackView;
use super::errors::HostSyncWarning;
use super::keep::Keep;
use super::source::{By, Source, check_host_wait, check_stream};
use super::stream::{an_object, type_name};
use super::traced::{Began, now};
use super::types::{Facts, Speaks};
use super::{fields, guards, types};
use crate::cai::{Claim, Decoded};
use crate::descriptor::{Descriptor, null};
use crate::device::{Device, MemoryKind};
use crate::dlpack::exchange::Table;
use crate::driver::{self, Handle};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order::{self, Place};
use crate::stream::{Ready, Request, Stream, Thread};

/// What the caller says beside the array itself.
#[derive(Default)]
pub(super) struct Said<'a, 'py> {
    /// The stream that the array's pending work is on.
    pub(super) stream: Option<Request>,
    /// Whether a consumer's stream was asked for, which has to wait whatever the environment says.
    pub(super) ordered: bool,
    /// The stream object, to be held.
    pub(super) held: Option<Py<PyAny>>,
    /// The owner of a dict's memory.
    pub(super) owner: Option<&'a Bound<'py, PyAny>>,
    /// The device.
    pub(super) device: Option<&'a Bound<'py, PyAny>>,
    /// The name of the element type, or an object that has one.
    pub(super) dtype: Option<&'a Bound<'py, PyAny>>,
}

/// Takes `x` in.
pub(super) fn import<'py>(
    x: &Bound<'py, PyAny>,
    facts: &Facts,
    said: Said<'_, 'py>,
) -> PyResult<Source> {
    let py = x.py();
    let (interface, owner) = interface(x, facts, said.owner)?;
    let table = if facts.speaks == Speaks::Dict { types::facts(owner)?.table } else { facts.table };
    let decoded = fields::decode(&interface, || {
        said.dtype.map_or_else(|| dtype_of(owner), |dtype| Ok(name_of(dtype)))
    })?;
    check_dtype(said.dtype, decoded.dtype)?;
    let driver = driver::current()?;
    let wanted = said.device.map(device_argument).transpose()?;
    let (device, place) = locate(&driver, decoded.ptr, &decoded.layout.0, wanted)?;
    let Decoded { version, ptr, readonly, dtype, layout, claim } = decoded;
    let array = Descriptor::new(ptr, dtype, layout, device, readonly)?;
    let ready = match (said.stream, claim) {
        (Some(Request::On(stream)), _) => array.pending(Ready::On(stream)),
        (Some(Request::NoOrder), _) => Ready::Nothing,
        _ if array.ptr() == 0 || !(said.ordered || ordering_wanted()) => Ready::Nothing,
        (_, Claim::Said(ready)) => ready,
        (_, Claim::Silent) => settle_silence(py, owner, table, device, &driver, place)?,
    };
    check_stream(&array, &driver, place, said.stream.unwrap_or(Request::Unsaid))?;
    let keep = keep(owner, facts, &driver, place, (claim, ready), said)?;
    Ok(Source { array, ready, place, driver, keep, by: By::Cai(version) })
}

/// References to the owner, and how the memory goes back to it: to the stream that the caller or the
/// dict names. One of our own views as the owner of a dict is asked for those that it has, since it
/// may be released before the array is done.
fn keep(
    owner: &Bound<'_, PyAny>,
    facts: &Facts,
    driver: &Handle,
    place: Place,
    (claim, ready): (Claim, Ready),
    said: Said<'_, '_>,
) -> PyResult<Keep> {
    let py = owner.py();
    let declared = said.held.as_ref().map(|held| held.clone_ref(py));
    let exporter = || (facts.speaks != Speaks::Dict).then(|| owner.clone().unbind());
    let home = match (said.stream, claim, ready) {
        // A stream without its object, which the caller is to keep alive no longer than the view.
        (Some(Request::On(stream)), ..) => Live::new(py, stream, declared, driver, place.ordinal)?,
        // The exporter keeps the stream alive, says the specification; CuPy does not.
        (_, Claim::Said(Ready::On(stream)), _) => {
            Live::new(py, stream, None, driver, place.ordinal)?
                .or_else(|| Some(Live::lent(stream, exporter())))
        }
        (_, Claim::Silent, Ready::On(stream)) => {
            Live::new(py, stream, None, driver, place.ordinal)?
        }
        _ => None,
    };
    if facts.speaks == Speaks::Dict {
        let view = owner.cast::<CaiView>().map(|view| &view.get().0);
        let view = view.or_else(|_| owner.cast::<DLPackView>().map(|view| &view.get().0));
        if let Ok(view) = view {
            let object = home.as_ref().and_then(|home| home.object.as_ref());
            let object = object.map(|object| object.clone_ref(py));
            let mut keep = view.share(py, said.held.or(object))?;
            if matches!(said.stream, Some(Request::On(_))) {
                keep.declare(home);
            }
            return Ok(keep);
        }
    }
    Ok(Keep::new(owner.clone().unbind(), None, said.held, Back::new(driver, place, home)))
}

/// The dict, and the object that keeps its memory alive.
fn interface<'a, 'py>(
    x: &'a Bound<'py, PyAny>,
    facts: &Facts,
    owner: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyDict>, &'a Bound<'py, PyAny>)> {
    if facts.speaks == Speaks::Dict {
        let owner = owner.ok_or_else(|| Error::new(Kind::OwnerMissing, "None"))?;
        return Ok((x.cast::<PyDict>()?.clone(), owner));
    }
    if let Some(owner) = owner {
        return Err(Error::new(Kind::OwnerUnexpected, an_object(owner)).into());
    }
    if facts.has_lazy_bits {
        guards::check_layout(x, facts)?;
        guards::check(x, facts, None)?;
    }
    match x.getattr(intern!(x.py(), "__cuda_array_interface__")) {
        Ok(interface) => match interface.cast_into::<PyDict>() {
            Ok(dict) => Ok((dict, x)),
            Err(error) => {
                let got = an_object(&error.into_inner());
                Err(Error::new(Kind::DictType, got).into())
            }
        },
        Err(error) if error.is_instance_of::<PyAttributeError>(x.py()) => {
            Err(silent(x, facts, error))
        }
        Err(error) => Err(error),
    }
}

/// Why an object has no dict to read: it is on the CPU, or it speaks no CAI.
#[cold]
fn silent(x: &Bound<'_, PyAny>, facts: &Facts, error: PyErr) -> PyErr {
    let py = x.py();
    let device = x
        .call_method0(intern!(py, "__dlpack_device__"))
        .and_then(|pair| pair.extract::<(u32, i32)>());
    let refused = match device {
        Ok((kind, id)) if Device::from_dlpack(kind, id).is_err() => Device::from_dlpack(kind, id)
            .err()
            .unwrap_or_else(|| Error::new(Kind::CpuMemory, "CPU memory")),
        _ if facts.has_cai => {
            let got = format!(
                "{}, whose __cuda_array_interface__ raised {}",
                type_name(x),
                error.value(py)
            );
            Error::new(Kind::Protocol, got)
        }
        _ if facts.speaks == Speaks::DLPackView => {
            Error::new(Kind::Protocol, "a DLPackView, which speaks DLPack; to_cai takes it")
        }
        _ => Error::new(
            Kind::Protocol,
            format!("{}, which has no __cuda_array_interface__", type_name(x)),
        ),
    };
    let refused = PyErr::from(refused);
    refused.set_cause(py, Some(error));
    refused
}

/// Where the memory is: the driver knows by the pointer, the caller where there is none.
fn locate(
    driver: &Handle,
    ptr: u64,
    layout: &Layout,
    wanted: Option<Device>,
) -> Result<(Device, Place)> {
    if layout.size() == 0 {
        let device = match wanted {
            Some(device) => device,
            None => Device::cuda(current_ordinal(driver)?),
        };
        return Ok((device, Place::of(device)));
    }
    if ptr == 0 {
        return Err(null(layout));
    }
    let found = driver.locate(ptr)?;
    let own = match found.kind {
        MemoryKind::Device => Device::cuda(found.ordinal),
        // dlpack.h: "For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."
        kind => Device { kind, id: 0 },
    };
    let place = Place::owning(found);
    match wanted {
        None => Ok((own, place)),
        Some(device) if device == own => Ok((own, place)),
        // Managed and pinned memory is reached by every device under unified addressing.
        Some(device) if device.kind == MemoryKind::Device && own.kind != MemoryKind::Device => {
            let context = place.context.filter(|_| device.id == place.ordinal);
            Ok((device, Place { ordinal: device.id, context }))
        }
        Some(device) => {
            let got = format!(
                "({}, {}) for memory of ({}, {})",
                device.kind.code(),
                device.id,
                own.kind.code(),
                own.id
            );
            Err(Error::new(Kind::DeviceArgument, got))
        }
    }
}

fn current_ordinal(driver: &Handle) -> Result<i32> {
    let driver = driver.get()?;
    // A thread without a context works on device 0, as CUDA's runtime has it.
    if driver.current_context()?.is_none() { Ok(0) } else { driver.current_ordinal() }
}

fn device_argument(value: &Bound<'_, PyAny>) -> PyResult<Device> {
    let malformed = || Error::new(Kind::DeviceArgument, super::stream::shown(value));
    let (kind, id) = if value.is_exact_instance_of::<PyInt>() {
        (2, value.extract::<i32>().map_err(|_| malformed())?)
    } else {
        value.extract::<(u32, i32)>().map_err(|_| malformed())?
    };
    Ok(Device::from_dlpack(kind, id)?)
}

/// Whether waits at import are wanted: `CAI_BRIDGE_SYNC=0` leaves them out, as the variables of that
/// name do for Numba and CuPy (CAI v3, "Interface Requirements").
pub(super) fn ordering_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CAI_BRIDGE_SYNC").is_none_or(|value| value != "0"))
}

/// Versions 0 to 2 say nothing of streams: the type's exchange API may, else the host waits once.
fn settle_silence(
    py: Python<'_>,
    owner: &Bound<'_, PyAny>,
    table: Option<Table>,
    device: Device,
    driver: &Handle,
    place: Place,
) -> PyResult<Ready> {
    if let Some(table) = table {
        let native = table.current_work_stream(py, Device { id: place.ordinal, ..device })?;
        return Ok(Ready::On(Stream::from_native(native, Thread::current())));
    }
    warn_once(py, owner)?;
    let got = "an array that says nothing of its stream, for which the host would wait";
    check_host_wait(py, driver, place, (Kind::CaptureHostWait, got))?;
    let (driver, began) = (driver.get()?, Began::now());
    py.detach(|| order::wait_on_host(driver, place))?;
    tracing::debug!(
        name: "host wait", target: "cai_bridge", door = "from_cai", device = place.ordinal,
        order = "made", why = "host wait", trace.began = began.at(),
        trace.ended = now(),
        "the dict says nothing of streams; the host waited for the context"
    );
    Ok(Ready::Nothing)
}

fn warn_once(py: Python<'_>, owner: &Bound<'_, PyAny>) -> PyResult<()> {
    static WARNED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let name = type_name(owner);
    let warned = || WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned().as_ref().is_some_and(|names| names.contains(&name)) {
        return Ok(());
    }
    let text = format!(
        "{name} exports a CUDA Array Interface without a stream (version 0 to 2), so the host waits for the device \
         at every import; from_cai(x, stream=...) with the stream of its pending work, or -1 where there is none, avoids it"
    );
    let text = CString::new(text).unwrap_or_default();
    PyErr::warn(py, &py.get_type::<HostSyncWarning>(), &text, 1)?;
    // Only now: where warnings are errors, the next import is refused as well.
    warned().get_or_insert_default().insert(name);
    Ok(())
}

/// The name of the element type that `x.dtype` has.
fn dtype_of(x: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match x.getattr(intern!(x.py(), "dtype")) {
        Ok(dtype) => Ok(name_of(&dtype)),
        Err(error) if error.is_instance_of::<PyException>(x.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of an element type: a string, NumPy's `name`, a scalar type's own, or what it prints as
/// (`torch.bfloat16`).
fn name_of(dtype: &Bound<'_, PyAny>) -> Option<String> {
    let named = |attribute| dtype.getattr(attribute).ok()?.extract::<String>().ok();
    let text = match dtype.extract::<String>() {
        Ok(text) => text,
        Err(_) => named(intern!(dtype.py(), "name"))
            .or_else(|| named(intern!(dtype.py(), "__name__")))
            .unwrap_or_else(|| super::stream::shown(dtype)),
    };
    text.rsplit('.').next().map(str::to_owned)
}

fn check_dtype(wanted: Option<&Bound<'_, PyAny>>, dtype: Dtype) -> Result<()> {
    match wanted.map(|wanted| name_of(wanted).unwrap_or_default()) {
        Some(name) if name != dtype.name() => {
            let got = format!("{name:?} for a typestr that says {}", dtype.name());
            Err(Error::new(Kind::DtypeArgument, got))
        }
        _ => Ok(()),
    }
}

impl Source {
    /// What the caller declares of one of our own views: work of the producer's on another stream than
    /// the one that the memory came from, which has to wait for the consumer as well.
    pub(super) fn declare(
        &mut self,
        py: Python<'_>,
        said: &Said<'_, '_>,
        object: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        if let Some(Request::On(stream)) = said.stream
            && self.array.ptr() != 0
            && !self.keep.is_home(stream)
        {
            let live = Live::new(py, stream, object, &self.driver, self.place.ordinal)?;
            self.keep.declare(live);
        }
        Ok(())
    }
}

/// One of our own views, taken in again with what the caller says beside it.
pub(super) fn adapt(view: Source, said: &Said<'_, '_>) -> PyResult<Source> {
    check_dtype(said.dtype, view.array.dtype())?;
    let ready = match said.stream {
        None | Some(Request::Unsaid) => view.ready,
        Some(Request::NoOrder) => Ready::Nothing,
        Some(Request::On(stream)) => view.array.pending(Ready::On(stream)),
    };
    check_stream(&view.array, &view.driver, view.place, said.stream.unwrap_or(Request::Unsaid))?;
    let Some(wanted) = said.device.map(device_argument).transpose()? else {
        return Ok(Source { ready, ..view });
    };
    let (device, place) =
        locate(&view.driver, view.array.ptr(), view.array.layout(), Some(wanted))?;
    Ok(Source { array: view.array.on(device), ready, place, ..view })
}
