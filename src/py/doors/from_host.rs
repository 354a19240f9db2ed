//! Copies of arrays in the host's memory: on a GPU, made on the consumer's stream, or on the host.
//!
//! The driver has read the host's bytes when the call returns, so that the array may change and go at once. For larger
//! ones it may wait for the stream's work first (CUDA driver API, "API synchronization behavior"). Refused here are copies
//! in a graph capture.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::buffer::{self, Buffer};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::dlpack::host::HostTensor;
use crate::driver::host::HostMemory;
use crate::driver::{self, Handle};
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::order;
use crate::py::flag;
use crate::py::habits::Habit;
use crate::py::interpreter::{Answer, act, detach, entry};
use crate::py::lease::look;
use crate::py::observe::CallSpan;
use crate::py::producers::device::{check_exists, current_ordinal};
use crate::py::producers::guards;
use crate::py::producers::types::facts;
use crate::py::streams::Argument;
use crate::py::text::{an_object, refused};
use crate::py::views::{CAPTURED, capsule_of, capsule_of_copy, copy_held, copy_is_for};
use crate::stream::{Alive, Stream};

/// The GPU that a copy for `stream` is made on: that of the stream, else the current one.
#[pyfunction]
#[pyo3(signature = (stream=None))]
pub(crate) fn _gpu_for<'py>(py: Python<'py>, stream: Option<&Bound<'py, PyAny>>) -> Answer<'py> {
    entry(py, || {
        let driver = driver::prepared(|call| detach(py, call))?;
        let argument = Argument::parse(stream)?;
        if let Some(ordinal) = argument.ordinal() {
            return Ok(ordinal);
        }
        let ordinal = current_ordinal(&driver)?;
        match argument.alive(Place::gpu(ordinal)) {
            Some(stream) if matches!(stream.stream(), Stream::Handle(_)) => {
                Ok::<_, PyErr>(order::place_of(driver.get()?, stream)?.ordinal)
            }
            _ => Ok(ordinal),
        }
    })
}

/// Refuses to share an array on the host that has a mask; or one that may not be written with a library that `writes`,
/// unless the caller vouches for it.
#[pyfunction]
pub(crate) fn _check_host<'py>(
    x: &Bound<'py, PyAny>,
    writes: bool,
    readonly: Option<&Bound<'py, PyAny>>,
) -> Answer<'py> {
    act(x.py(), || {
        let readonly = flag::parse("readonly", readonly)?;
        check_mask(x)?;
        if !writes || readonly == Some(false) {
            return Ok(());
        }
        if readonly == Some(true) {
            return Err(Error::new(Kind::ReadOnlyAsked, "True for a library that may write").into());
        }
        if facts(x)?.has(Habit::Immutable) || host_tensor(x)?.readonly {
            return Err(Error::new(Kind::ReadOnlyConverted, "read-only memory").into());
        }
        Ok(())
    })
}

/// A capsule with a copy of an array on the host, in memory of the host. `name` is the element type, where the array's
/// own protocol has no word for it.
#[pyfunction]
#[pyo3(signature = (x, versioned, name=None))]
pub(crate) fn _host_copy<'py>(
    x: &Bound<'py, PyAny>,
    versioned: bool,
    name: Option<&str>,
) -> Answer<'py> {
    let py = x.py();
    entry(py, || {
        let tensor = host_tensor(x)?;
        let array = named(&tensor.array, name)?;
        let plan = buffer::plan(&tensor.array)?;
        let memory = plan.map(|plan| tensor.copied(&plan)).transpose()?.map(Arc::new);
        let address = memory.as_ref().map_or(0, |memory| memory.address());
        let copy = buffer::described(&array, address, array.device())?;
        capsule_of(py, &copy, true, versioned, Box::new(memory))
    })
}

/// A capsule with a copy of an array on the host, in memory of the GPU `ordinal`, usable on `stream`.
#[pyfunction]
#[pyo3(signature = (x, ordinal, stream, name=None))]
pub(crate) fn _host_to_gpu<'py>(
    x: &Bound<'py, PyAny>,
    ordinal: i32,
    stream: &Bound<'py, PyAny>,
    name: Option<&str>,
) -> Answer<'py> {
    let py = x.py();
    entry(py, || {
        let argument = Argument::parse(Some(stream))?;
        let driver = driver::prepared(|call| detach(py, call))?;
        driver.open(ordinal, |call| detach(py, call));
        check_exists(&driver, ordinal, "device", format_args!("(2, {ordinal})"))?;
        let tensor = host_tensor(x)?;
        let array = named(&tensor.array, name)?;
        let plan = buffer::plan(&tensor.array)?;
        let memory = plan.map(|plan| tensor.compact(&plan)).transpose()?.map(Arc::new);
        uploaded(py, &driver, (&array, memory.as_ref()), (&argument, Place::gpu(ordinal)))
    })
}

/// That copy.
fn uploaded<'py>(
    py: Python<'py>,
    driver: &Handle,
    (array, memory): (&Descriptor, Option<&Arc<HostMemory>>),
    (argument, at): (&Argument<'_, 'py>, Place),
) -> PyResult<Bound<'py, PyAny>> {
    let given = argument.alive(at);
    look(py);
    let kept = argument.keep(py, driver, at)?;
    let on = given.unwrap_or(Alive::legacy(at));
    if matches!(on.stream(), Stream::Handle(_)) {
        order::check_device(driver.get()?, on)?;
    }
    order::check_captures(driver.get()?, &[on], CAPTURED)?;
    let span = CallSpan::begin();
    let filled = |memory| Buffer::from_host(driver, memory, array.nbytes(), on);
    let buffer = detach(py, || memory.map(filled).transpose())?;
    let ptr = buffer.as_ref().map_or(0, Buffer::ptr);
    let buffer = buffer.unwrap_or(Buffer::NONE);
    let mut copied = copy_held(py, driver, (buffer, at), kept, on, None)?;
    span.copied(array, ptr, (on.stream(), at.ordinal), false);
    if let Some(holding) = copied.holding() {
        copy_is_for(py, holding, (argument, at))?;
    }
    let array = buffer::described(array, ptr, Device::cuda(at.ordinal))?;
    capsule_of_copy(py, &array, true, copied)
}

/// The tensor of an array on the host.
fn host_tensor(x: &Bound<'_, PyAny>) -> PyResult<HostTensor> {
    let py = x.py();
    check_mask(x)?;
    guards::check(x, &*facts(x)?, None)?;
    let newest = PyDict::new(py);
    newest.set_item(intern!(py, "max_version"), (1, 3))?;
    let method = x.getattr(intern!(py, "__dlpack__"))?;
    let answer = match method.call((), Some(&newest)) {
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
            method.call0()?
        }
        answer => answer?,
    };
    let capsule = answer.cast::<PyCapsule>();
    HostTensor::take(capsule.map_err(|_| refused(Kind::CapsuleType, an_object(&answer)))?)
}

/// Refuses a masked array, as NumPy's are: its `__dlpack__` gives the values without the mask.
fn check_mask(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let mask = x.getattr_opt(intern!(x.py(), "mask"))?;
    match mask.filter(|mask| !mask.is_none() && !mask.is_callable()) {
        Some(mask) => Err(Error::new(Kind::Mask, an_object(&mask)?).into()),
        None => Ok(()),
    }
}

/// The same array with elements of that type, which have as many bytes.
fn named(array: &Descriptor, name: Option<&str>) -> PyResult<Descriptor> {
    let Some(name) = name else { return Ok(array.clone()) };
    let dtype = Dtype::from_name(name).filter(|dtype| {
        dtype.element_size() == array.dtype().element_size() && array.dtype().lanes() == 1
    });
    let dtype = dtype.ok_or_else(|| Error::new(Kind::DtypeArgument, format!("{name:?}")))?;
    Ok(array.clone().of(dtype))
}
