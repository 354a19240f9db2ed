//! Takes in an array that speaks the CUDA Array Interface: an object, or a dict with its owner.
//!
//! What the dict leaves open is settled here: the device, which the pointer knows; the element type
//! behind `<V2` and `|V1`, which the object's `dtype` names; and, for versions 0 to 2, which say
//! nothing of streams, the stream or a wait on the host.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};

use super::dlpack::{Settled, of_producer};
use super::ndarray::Names;
use super::types::{self, Facts, Speaks};
use super::{fields, guards, ndarray, silence};
use crate::cai::{Claim, Decoded};
use crate::descriptor::{Descriptor, null};
use crate::device::{Device, MemoryKind, Place};
use crate::driver::{self, Handle};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order::{self, Door};
use crate::py::habits::Habit;
use crate::py::interpreter::{answered, detach};
use crate::py::lease::Holding;
use crate::py::native;
use crate::py::source::{By, Source, check_stream};
use crate::py::streams::argument::pair;
use crate::py::streams::{Argument, Keeping, Kept, current};
use crate::py::text::{an_object, attribute, beginning, printed, refused, shown, type_name};
use crate::py::views::View;
use crate::stream::{Alive, Ready, Request, Stream};

/// What the caller says beside the array itself.
#[derive(Debug)]
pub(crate) struct Said<'a, 'py> {
    /// The call.
    pub(crate) door: &'static str,
    /// The stream that the array's pending work is on.
    pub(crate) stream: &'a Argument<'a, 'py>,
    /// Whether a consumer's stream was asked for, which has to wait whatever the environment says.
    pub(crate) ordered: bool,
    /// The owner of a dict's memory.
    pub(crate) owner: Option<&'a Bound<'py, PyAny>>,
    /// The device.
    pub(crate) device: Option<&'a Bound<'py, PyAny>>,
    /// The name of the element type, or an object that has one.
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
}

/// Takes `x` in.
pub(crate) fn import<'py>(
    x: &Bound<'py, PyAny>,
    facts: &Facts,
    said: &Said<'_, 'py>,
) -> PyResult<Source> {
    let py = x.py();
    let owner = owner(x, facts, said.owner)?;
    let of_owner = if facts.speaks == Speaks::Dict { Some(types::facts(owner)?) } else { None };
    let of_owner = of_owner.as_deref().unwrap_or(facts);
    let by_parts = facts.parts.as_ref().map(|parts| parts.decode(x)).transpose()?.flatten();
    let (mut silent, mut names) = (false, None);
    let decoded = if let Some(said) = by_parts {
        names = Some(said.stream);
        said.decoded
    } else {
        let unnamed = default_stream(owner, of_owner)?;
        let name = || said.dtype.map_or_else(|| dtype_of(owner), name_of);
        let dict = interface(x, facts)?;
        silent = of_owner.has(Habit::NeverNamesStream) && !dict.contains(intern!(py, "stream"))?;
        fields::decode(&dict, unnamed, name)?
    };
    check_dtype(said.dtype, decoded.dtype)?;
    let driver = driver::prepared(|call| detach(py, call))?;
    let wanted = said.device.map(device_argument).transpose()?;
    let (device, place) = locate(&driver, decoded.ptr, &decoded.layout.0, wanted)?;
    driver.open(place.ordinal, |call| detach(py, call));
    let Decoded { version, ptr, readonly, dtype, layout, claim } = decoded;
    let claim = match &names {
        Some(Names::Library) => ndarray::current(py, place)?,
        _ if silent => Claim::Silent,
        _ => claim,
    };
    let array = Descriptor::new(ptr, dtype, layout, device, readonly)?;
    check_stream(&array, &driver, said.stream.alive(place))?;
    let exports = facts.speaks != Speaks::Dict;
    let object = match &names {
        Some(Names::Array(Some(object))) => Some(object),
        _ => None,
    };
    let work = Work { driver: &driver, place, owner, exports, of_owner, object };
    let (ready, home, kept) = match (said.stream.request(), claim) {
        _ if array.ptr() == 0 => (Ready::Nothing, None, None),
        (Request::On(_), _) => work.declared(py, said)?,
        (Request::NoOrder, Claim::Said(Ready::On(stream))) => {
            (Ready::Nothing, work.kept(py, stream)?, None)
        }
        (_, Claim::Said(Ready::On(stream))) => {
            let (home, kept) = work.exported(py, said.door, stream)?;
            (Ready::On(stream), home, kept)
        }
        (Request::Unsaid, Claim::Silent) => {
            let ordered = said.ordered || ordering_wanted();
            silence::settle(x, facts, owner, (&driver, place), (said.door, ordered))?
        }
        (Request::NoOrder | Request::Unsaid, _) => (Ready::Nothing, None, None),
    };
    let elided = said.stream.request() == Request::Unsaid && !(said.ordered || ordering_wanted());
    let ready = if elided { Ready::Nothing } else { ready };
    let holding = holding(owner, facts, (&driver, place), (home, kept), said)?;
    Ok(Source { array, ready, holding, place, by: By::Cai(version) })
}

/// Whose stream a dict's array is ready on.
struct Work<'a, 'py> {
    driver: &'a Handle,
    place: Place,
    owner: &'a Bound<'py, PyAny>,
    /// Whether it is the owner's own dict, which vouches for the stream that it names.
    exports: bool,
    of_owner: &'a Facts,
    /// The object of the stream that the array is ready on, where it was read.
    object: Option<&'a Bound<'py, PyAny>>,
}

impl Work<'_, '_> {
    /// The stream that the caller declares.
    fn declared(&self, py: Python<'_>, said: &Said<'_, '_>) -> PyResult<Settled> {
        let Some(alive) = said.stream.alive(self.place) else {
            return Ok((Ready::Nothing, None, None));
        };
        let ready = Ready::On(alive.stream());
        let (home, kept) = match said.stream.keep(py, self.driver, self.place)? {
            Some(Keeping::Kept(home)) => (Some(home), None),
            _ => of_producer(py, said.door, self.driver, alive, true)?,
        };
        Ok((ready, home, kept))
    }

    /// The stream that the dict names.
    fn exported(
        &self,
        py: Python<'_>,
        door: &'static str,
        stream: Stream,
    ) -> PyResult<(Option<Kept>, Option<Kept>)> {
        match self.kept(py, stream)? {
            Some(home) => Ok((Some(home), None)),
            None if self.exports => Ok((None, None)),
            None => {
                let alive = current::named(py, stream.handle(), self.place);
                of_producer(py, door, self.driver, alive, true)
            }
        }
    }

    /// The same, if something keeps it: by the specification the exporter does; CuPy's arrays do not.
    fn kept(&self, py: Python<'_>, stream: Stream) -> PyResult<Option<Kept>> {
        let alive = current::named(py, stream.handle(), self.place);
        if let (Some(object), Stream::Handle(_)) = (self.object, stream)
            && let Some(kept) = Kept::by_object(self.driver, object, alive)?
        {
            return Ok(Some(kept));
        }
        if let Some(kept) = Kept::vouched(py, self.driver, alive)? {
            return Ok(Some(kept));
        }
        if self.of_owner.has(Habit::KeepsStreamObject)
            && let Some(kept) = Kept::by_attribute(self.driver, self.owner, alive)?
        {
            return Ok(Some(kept));
        }
        let exported = || Kept::exported(self.driver, alive, self.owner);
        Ok(self.exports.then(exported).transpose()?)
    }
}

/// The stream that the library of `x` means where its dicts name none: Numba's default stream, the legacy
/// one or, by its own setting, the per-thread one.
fn default_stream(x: &Bound<'_, PyAny>, facts: &Facts) -> PyResult<Option<Stream>> {
    if !facts.has(Habit::DefaultStreamUnnamed) {
        return Ok(None);
    }
    current::numbas_default(x.py()).map(Some)
}

/// References to the owner, whose memory goes back to `home`, and is ready there or on `kept`. One of our own
/// views as the owner of a dict is asked for those that it has, since it may be released before the array is
/// done.
fn holding(
    owner: &Bound<'_, PyAny>,
    facts: &Facts,
    (driver, place): (&Handle, Place),
    (home, kept): (Option<Kept>, Option<Kept>),
    said: &Said<'_, '_>,
) -> PyResult<Box<Holding>> {
    let py = owner.py();
    if facts.speaks == Speaks::Dict
        && let Ok(view) = owner.cast::<View>()
    {
        let mut holding = view.get().share(py)?;
        holding.ready_on(kept.or_else(|| home.as_ref().map(|home| home.clone_ref(py))));
        if let (Request::On(_), Some(home)) = (said.stream.request(), home) {
            holding.declare(home);
        }
        return Ok(holding);
    }
    let mut holding = Holding::array(owner.clone().unbind(), None, driver, place, home);
    holding.ready_on(kept);
    Ok(holding)
}

/// The object that keeps the memory of `x` alive.
fn owner<'a, 'py>(
    x: &'a Bound<'py, PyAny>,
    facts: &Facts,
    owner: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<&'a Bound<'py, PyAny>> {
    match owner {
        _ if facts.speaks == Speaks::Dict => {
            owner.ok_or_else(|| Error::new(Kind::OwnerMissing, "None").into())
        }
        Some(owner) => Err(Error::new(Kind::OwnerUnexpected, an_object(owner)?).into()),
        None => Ok(x),
    }
}

/// The dict.
fn interface<'py>(x: &Bound<'py, PyAny>, facts: &Facts) -> PyResult<Bound<'py, PyDict>> {
    if facts.speaks == Speaks::Dict {
        return Ok(x.cast::<PyDict>()?.clone());
    }
    if facts.lazy.is_some() {
        guards::check_layout(x, facts)?;
        guards::check(x, facts, None)?;
    }
    match x.getattr(intern!(x.py(), "__cuda_array_interface__")) {
        Ok(interface) => match interface.cast_into::<PyDict>() {
            Ok(dict) => Ok(dict),
            Err(error) => Err(Error::new(Kind::DictType, an_object(&error.into_inner())?).into()),
        },
        Err(error) if error.is_instance_of::<PyAttributeError>(x.py()) => {
            Err(speechless(x, facts, error).unwrap_or_else(|interrupt| interrupt))
        }
        Err(error) => Err(error),
    }
}

/// Why an object has no dict to read: it is on the CPU, or it speaks no CAI.
#[cold]
fn speechless(x: &Bound<'_, PyAny>, facts: &Facts, error: PyErr) -> PyResult<PyErr> {
    let py = x.py();
    let device = answered(py, x.call_method0(intern!(py, "__dlpack_device__")))?;
    let device = device.map(|device| pair(&device)).transpose()?.flatten();
    let device = device.map(|(kind, id)| Device::from_dlpack(kind, id));
    let refused = match device {
        Some(Err(elsewhere)) => elsewhere,
        _ if facts.has_cai => {
            let (name, raised) = (type_name(x)?, printed(error.value(py))?);
            let got = format!("{name}, whose __cuda_array_interface__ raised {raised}");
            Error::new(Kind::Protocol, got)
        }
        _ if facts.speaks == Speaks::DLPackView => {
            Error::new(Kind::Protocol, "a DLPackView, which speaks only DLPack; to_cai takes it")
        }
        _ => {
            let speaks = if x.hasattr(intern!(py, "__dlpack__"))? {
                "which speaks only DLPack; to_cai and to_dlpack take it"
            } else {
                "which has no __cuda_array_interface__"
            };
            Error::new(Kind::Protocol, format!("{}, {speaks}", type_name(x)?))
        }
    };
    let refused = PyErr::from(refused);
    refused.set_cause(py, Some(error));
    Ok(refused)
}

/// Where the memory is, for consumers, and where its producer's streams are: the driver knows both by the
/// pointer, the caller the first where there is none.
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
        return Ok((device, Place::gpu(device.id)));
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
    as_wanted(own, wanted).map(|device| (device, Place::owning(found)))
}

/// The device of memory that is on `own`, as the caller wants it handed out.
pub(super) fn as_wanted(own: Device, wanted: Option<Device>) -> Result<Device> {
    match wanted {
        None => Ok(own),
        Some(device) if device == own => Ok(own),
        // Managed and pinned memory is reached by every device under unified addressing.
        Some(device) if device.kind == MemoryKind::Device && own.kind != MemoryKind::Device => {
            Ok(device)
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
    let given = if value.is_exact_instance_of::<PyInt>() {
        native::small(value).and_then(|id| i32::try_from(id).ok()).map(|id| (2, id))
    } else if let Ok(text) = value.cast::<PyString>() {
        beginning(text)?.strip_prefix("cuda:").and_then(|id| id.parse().ok()).map(|id| (2, id))
    } else {
        pair(value)?
    };
    let (kind, id) = given.ok_or_else(|| refused(Kind::DeviceArgument, shown(value)))?;
    Ok(Device::from_dlpack(kind, id)?)
}

/// Whether waits at import are wanted: `CAI_BRIDGE_SYNC=0` leaves them out, as the variables of that
/// name do for Numba and CuPy (CAI v3, "Interface Requirements").
pub(crate) fn ordering_wanted() -> bool {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CAI_BRIDGE_SYNC").is_none_or(|value| value != "0"))
}

/// The name of the element type that `x.dtype` has.
fn dtype_of(x: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match answered(x.py(), x.getattr(intern!(x.py(), "dtype")))? {
        Some(dtype) => name_of(&dtype),
        None => Ok(None),
    }
}

/// The name of an element type: a string, NumPy's `name`, a scalar type's own, or what it prints as
/// (`torch.bfloat16`).
fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = dtype.py();
    let text = if let Ok(text) = dtype.cast::<PyString>() {
        beginning(text)?
    } else if let Some(name) = attribute(dtype, intern!(py, "name"))? {
        name
    } else if let Some(name) = attribute(dtype, intern!(py, "__name__"))? {
        name
    } else {
        shown(dtype)?
    };
    Ok(text.rsplit('.').next().map(str::to_owned))
}

fn check_dtype(wanted: Option<&Bound<'_, PyAny>>, dtype: Dtype) -> PyResult<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let name = name_of(wanted)?.unwrap_or_default();
    if name == dtype.name() {
        return Ok(());
    }
    let got = format!("{name:?} for a typestr that says {}", dtype.name());
    Err(Error::new(Kind::DtypeArgument, got).into())
}

/// One of our own views, taken in again with what the caller says beside it: a stream that he declares is one
/// of the producer's besides the one that the memory came from, and waits for the consumer as well.
pub(crate) fn adapt(py: Python<'_>, mut view: Source, said: &Said<'_, '_>) -> PyResult<Source> {
    check_dtype(said.dtype, view.array.dtype())?;
    check_stream(&view.array, &view.holding.driver, said.stream.alive(view.place))?;
    if let Some(wanted) = said.device.map(device_argument).transpose()? {
        let device = match view.array.ptr() {
            0 => wanted,
            _ => as_wanted(view.array.device(), Some(wanted))?,
        };
        view.array = view.array.on(device);
    }
    match (said.stream.request(), said.stream.alive(view.place)) {
        (Request::NoOrder, _) => view.ready = Ready::Nothing,
        (_, Some(alive)) if view.array.ptr() != 0 => declare(py, &mut view, said, alive)?,
        _ => {}
    }
    Ok(view)
}

fn declare(
    py: Python<'_>,
    view: &mut Source,
    said: &Said<'_, '_>,
    alive: Alive<'_>,
) -> PyResult<()> {
    view.ready = Ready::On(alive.stream());
    if view.holding.is_home(alive) {
        view.holding.ready_on(None);
        return Ok(());
    }
    let driver = view.holding.driver.clone();
    let keeping = said.stream.keep(py, &driver, view.place)?;
    if let Some(Keeping::Kept(kept) | Keeping::StandIn(kept)) = keeping {
        view.holding.ready_on(Some(kept.clone_ref(py)));
        view.holding.declare(kept);
    } else {
        let legacy = Alive::legacy(view.place);
        let door = Door::handing_over(said.door);
        order::connect(door, &driver, (alive, legacy), |call| detach(py, call))?;
        view.holding.ready_on(Some(Kept::legacy(view.place)));
    }
    Ok(())
}
