//! Arrays in host memory, for a library: shared with the library, copied on the host, or copied to a GPU. When a call
//! that copies to a GPU returns, the host array has been read: by the CPU, or by the driver if the array is in pageable
//! memory (CUDA driver API, "API synchronization behavior").

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;

use super::consumer_stream::ConsumerStream;
use super::converter::Converter;
use super::library_traits::LibraryTraits;
use super::tree::ConvertOptions;
use crate::buffer::{self, Buffer};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::dlpack::host::HostTensor;
use crate::driver::host::HostMemory;
use crate::driver::{self, Handle};
use crate::error::{Error, Kind};
use crate::order;
use crate::py::interpreter::detach;
use crate::py::lease::look;
use crate::py::numpy;
use crate::py::observe::CallSpan;
use crate::py::producers::device::{check_exists, current_ordinal};
use crate::py::producers::host::{self, HostArray};
use crate::py::streams::StreamArgument;
use crate::py::views::{CAPTURED, capsule_of_copy, copy_held, copy_is_for};
use crate::stream::{Alive, Request, Stream};

impl Converter {
    /// Returns `x` itself, an array that shares the memory of `x`, or a copy of `x`.
    #[cold]
    pub(super) fn of_host<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        how: &ConvertOptions<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, asked, copy) = (x.py(), how.readonly, how.copy == Some(true));
        let traits = self.traits(py)?;
        StreamArgument::parse(how.stream)?;
        if traits.limits.writes && asked == Some(true) {
            return Err(Error::new(Kind::ReadOnlyAsked, "True for a library that may write").into());
        }
        let Some(from_host) = &traits.from_host else {
            if copy {
                let tensor = host::take_in(x, copy)?;
                return self.of_copy_on_gpu(py, traits, &tensor, how);
            }
            return Err(Error::new(Kind::CpuConverted, "CPU memory").into());
        };
        let is_own = x.is_instance(traits.types.bind(py))?;
        let made = if is_own && (traits.is_numpy || !copy) {
            x.clone()
        } else {
            let tensor = host::take_in(x, copy)?;
            let tensor = if copy && !traits.is_numpy { tensor.copy()? } else { tensor };
            let ptr = tensor.array.ptr();
            let made = made_of(py, traits, from_host, tensor, asked)?;
            if how.copy == Some(false) {
                check_shared(&made, ptr)?;
            }
            made
        };
        if traits.is_numpy { as_asked(made, copy, asked) } else { Ok(made) }
    }

    /// The copy is on the GPU of the caller's stream, else on the current GPU.
    fn of_copy_on_gpu<'py>(
        &self,
        py: Python<'py>,
        traits: &LibraryTraits,
        tensor: &HostTensor,
        how: &ConvertOptions<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let said = StreamArgument::parse(how.stream)?;
        // Even with -1, the library's stream must wait for the copy.
        let named = how.stream.filter(|_| said.request() != Request::NoOrder);
        let driver = driver::prepared(|call| detach(py, call))?;
        let ordinal = ordinal_for(&driver, &StreamArgument::parse(named)?)?;
        let library = self.library.bind(py);
        let on = ConsumerStream::of(library, traits, ordinal, named)?;
        let argument = on.argument().map_err(|error| on.explain(library, error))?.or_legacy();
        driver.open(ordinal, |call| detach(py, call));
        check_exists(&driver, ordinal, "device", format_args!("(2, {ordinal})"))?;
        let (low, bytes) = tensor.array.span();
        let is_pageable = buffer::is_pageable(driver.get()?, low, bytes)?;
        let memory = tensor.compact(is_pageable)?;
        let (array, memory, at) = (&tensor.array, memory.as_ref(), Place::gpu(ordinal));
        let capsule = uploaded(py, &driver, array, memory, &argument, at)?;
        let how =
            ConvertOptions { stream: named, readonly: how.readonly, ..ConvertOptions::default() };
        let mut batch = self.several(py, &[capsule], &how)?;
        batch.consume(py)?;
        batch.made.pop().ok_or_else(|| Error::new(Kind::Released, "no array").into())
    }
}

fn made_of<'py>(
    py: Python<'py>,
    traits: &LibraryTraits,
    from_host: &str,
    mut tensor: HostTensor,
    asked: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    // If a tensor does not say whether it may be written, NumPy's array is read-only, unless `asked` is `Some(false)`.
    if traits.is_numpy && !tensor.says_readonly {
        tensor.array.set_readonly(Some(true));
    }
    traits.wanted.check_dtype(tensor.array.dtype())?;
    traits.limits.admit(&mut tensor.array, asked.or(traits.limits.readonly))?;
    let dtype = tensor.array.dtype();
    let (module, name) = from_host.split_once(':').unwrap_or((from_host, ""));
    let made = py.import(module)?.getattr(name)?.call1((HostArray(tensor),))?;
    if traits.is_numpy && dtype.is_opaque() {
        return made.call_method1(intern!(py, "view"), (numpy::dtype(py, dtype)?,));
    }
    Ok(made)
}

/// Fails if the library has copied the memory, as XLA does with memory that is not aligned to 64 bytes (JAX 0.10).
#[cold]
fn check_shared(made: &Bound<'_, PyAny>, ptr: u64) -> PyResult<()> {
    let own = host::take_in(made, false)?.array.ptr();
    if own == ptr {
        return Ok(());
    }
    let got = format!("False for memory at {ptr:#x}, which the library copies");
    Err(Error::new(Kind::CopyNeeded, got).into())
}

fn as_asked(
    array: Bound<'_, PyAny>,
    copy: bool,
    readonly: Option<bool>,
) -> PyResult<Bound<'_, PyAny>> {
    let (py, flags, writeable) =
        (array.py(), intern!(array.py(), "flags"), intern!(array.py(), "writeable"));
    let made = if copy {
        array.call_method0(intern!(py, "copy"))?
    } else if readonly == Some(true) && array.getattr(flags)?.getattr(writeable)?.is_truthy()? {
        array.call_method0(intern!(py, "view"))?
    } else {
        array
    };
    if readonly == Some(true) {
        made.getattr(flags)?.setattr(writeable, false)?;
    }
    Ok(made)
}

fn ordinal_for(driver: &Handle, argument: &StreamArgument<'_, '_>) -> PyResult<i32> {
    if let Some(ordinal) = argument.ordinal() {
        return Ok(ordinal);
    }
    let ordinal = current_ordinal(driver)?;
    match argument.alive(Place::gpu(ordinal)) {
        Some(stream) if matches!(stream.stream(), Stream::Handle(_)) => {
            Ok(order::place_of(driver.get()?, stream)?.ordinal)
        }
        _ => Ok(ordinal),
    }
}

/// Returns a capsule with a copy of `array`, usable on the stream of `argument`.
fn uploaded<'py>(
    py: Python<'py>,
    driver: &Handle,
    array: &Descriptor,
    memory: Option<&Arc<HostMemory>>,
    argument: &StreamArgument<'_, 'py>,
    at: Place,
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
    let mut copied = copy_held(py, driver, buffer, at, kept, on, None)?;
    span.copied(array, ptr, on, false);
    if let Some(held) = copied.memory_mut() {
        copy_is_for(py, held, argument, at)?;
    }
    let array = buffer::described(array, ptr, Device::cuda(at.ordinal))?;
    capsule_of_copy(py, &array, true, copied)
}
