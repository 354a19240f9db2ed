//! GPU memory that the bridge allocates, and copies of arrays to a GPU or to the host. A copy to a GPU is queued on a
//! stream. For a copy to the host, the host waits.

use std::sync::Arc;

use crate::capture::CaptureStatus;
use crate::copy_plan::{Block, CopyPlan};
use crate::descriptor::Descriptor;
use crate::device::{Context, Device, MemoryKind, Place};
use crate::driver::codes::{
    CONTEXT_IS_DESTROYED, NOT_SUPPORTED, STREAM_CAPTURE_UNSUPPORTED, failed,
};
use crate::driver::copies::{CopyRoute, Transfer};
use crate::driver::host::HostMemory;
use crate::driver::{Driver, Handle};
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::order::{context_of, within};
use crate::stream::Alive;

/// Dropping a `Buffer` frees nothing: without a call of [`Buffer::free`] the memory leaks.
#[derive(Debug)]
pub struct Buffer {
    ptr: u64,
    /// The memory's context, and the context's number ([`Driver::life`]).
    context: Option<(Context, u64)>,
    pooled: bool,
}

impl Buffer {
    pub const NONE: Self = Self { ptr: 0, context: None, pooled: true };

    /// Queues a compact copy of `array` on `on`. `before` must make `on` wait until `array` is ready.
    pub fn filled(
        driver: &Handle,
        array: &Descriptor,
        on: Alive<'_>,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let bytes = array.nbytes().unsigned_abs();
        let Some(plan) = plan(array)? else { return Ok(Self::NONE) };
        let calls = driver.get()?;
        let made = Self::uninitialised(calls, bytes, on)?;
        let copied = before().and_then(|()| {
            within(calls, on.place(), |to| {
                let route = route(calls, array, on.place(), to)?;
                fill(calls, &plan, array.ptr(), made.ptr, route, on)
            })
        });
        made.kept_if(driver, on, copied)
    }

    /// Copies the first `bytes` bytes of `memory`, on the stream `on`. CUDA can still read pinned `memory` after the
    /// call has returned.
    pub fn from_host(
        driver: &Handle,
        memory: &Arc<HostMemory>,
        bytes: i64,
        on: Alive<'_>,
    ) -> Result<Self> {
        let run = Layout::from_elements(&[bytes], None, 1).map(|(run, _)| CopyPlan::new(&run, 1));
        let Some(plan) = run? else { return Ok(Self::NONE) };
        let calls = driver.get()?;
        let made = Self::uninitialised(calls, bytes.unsigned_abs(), on)?;
        let copied = within(calls, on.place(), |_| {
            fill(calls, &plan, memory.address(), made.ptr, CopyRoute::FromHost(memory), on)
        });
        made.kept_if(driver, on, copied)
    }

    /// `bytes` must not be 0. Work queued on `on` after the call may use the memory.
    pub fn uninitialised(calls: &dyn Driver, bytes: u64, on: Alive<'_>) -> Result<Self> {
        within(calls, on.place(), |context| {
            let context = Some((context, calls.life(context)?));
            match calls.allocate(bytes, on) {
                Ok(ptr) => Ok(Self { ptr, context, pooled: true }),
                Err(error) if is_unsupported(&error) => {
                    Ok(Self { ptr: calls.allocate_now(bytes)?, context, pooled: false })
                }
                Err(error) => Err(error),
            }
        })
        .map_err(|error| error.of_memory(bytes))
    }

    fn kept_if(mut self, driver: &Handle, on: Alive<'_>, copied: Result<()>) -> Result<Self> {
        copied.inspect_err(|_| drop(self.free(driver, on)))?;
        Ok(self)
    }

    /// 0 if the buffer has no memory, or was freed.
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// From CUDA 12 on, fails if the memory's context was destroyed.
    pub fn check(&self, driver: &dyn Driver) -> Result<()> {
        match self.context {
            Some((context, life)) if driver.life(context).ok() != Some(life) => {
                Err(failed("cuMemFreeAsync", CONTEXT_IS_DESTROYED))
            }
            _ => Ok(()),
        }
    }

    pub const fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Frees the memory after the work queued on `on`. If the memory comes from no pool, the host waits for that work,
    /// so the call fails while a graph capture forbids the wait.
    pub fn free(&mut self, driver: &Handle, on: Alive<'_>) -> Result<()> {
        if self.ptr == 0 {
            return Ok(());
        }
        let driver = driver.get()?;
        self.check(driver)?;
        within(driver, on.place(), |_| {
            if self.pooled {
                driver.free_on(self.ptr, on)?;
            } else if driver.capture_status(on)? == CaptureStatus::Outside {
                driver.free_now(self.ptr)?;
            } else {
                return Err(failed("cuMemFree", STREAM_CAPTURE_UNSUPPORTED));
            }
            // Here, and not after `within`, which can still fail: a caller that tries again must not free twice.
            *self = Self::NONE;
            Ok(())
        })
    }
}

/// Whether the memory is pageable: CUDA knows neither its first nor its last byte.
pub fn is_pageable(driver: &dyn Driver, address: u64, bytes: u64) -> Result<bool> {
    let last = address.saturating_add(bytes.saturating_sub(1));
    Ok(driver.pointer(address)?.is_none() && driver.pointer(last)?.is_none())
}

fn is_unsupported(error: &Error) -> bool {
    error.driver_code().is_some_and(|failed| failed.code == NOT_SUPPORTED)
}

/// `None` if `array` has no elements. Fails for packed elements that are not contiguous: CUDA copies whole bytes.
pub fn plan(array: &Descriptor) -> Result<Option<CopyPlan>> {
    let (layout, dtype) = (array.layout(), array.dtype());
    if !dtype.is_packed() {
        return Ok(CopyPlan::new(layout, dtype.element_size()));
    }
    if !layout.is_contiguous() {
        let got = format!("{dtype:?} with strides {:?}, to be copied", layout.strides());
        return Err(Error::new(Kind::SubByte, got));
    }
    let (bytes, _) = Layout::from_elements(&[array.nbytes()], None, 1)?;
    Ok(CopyPlan::new(&bytes, 1))
}

/// [`CopyRoute::Peer`] is only for device memory of another GPU, not for pinned or managed memory.
fn route(
    driver: &dyn Driver,
    array: &Descriptor,
    place: Place,
    to: Context,
) -> Result<CopyRoute<'static>> {
    if array.device() == Device::cuda(place.ordinal) {
        return Ok(CopyRoute::Device);
    }
    match driver.pointer(array.ptr())? {
        Some(found) if found.kind == MemoryKind::Device && found.ordinal != place.ordinal => {
            Ok(CopyRoute::Peer { from: context_of(driver, Place::owning(found))?, to })
        }
        _ => Ok(CopyRoute::Device),
    }
}

/// The context of `on` must be current, the GPU of `on` must reach both memories, and `array` must be ready on `on`.
pub fn copy_to(driver: &dyn Driver, array: &Descriptor, target: u64, on: Alive<'_>) -> Result<()> {
    let Some(plan) = plan(array)? else { return Ok(()) };
    fill(driver, &plan, array.ptr(), target, CopyRoute::Device, on)
}

/// The context of `on` must be current.
fn fill(
    driver: &dyn Driver,
    plan: &CopyPlan,
    source: u64,
    target: u64,
    route: CopyRoute<'_>,
    on: Alive<'_>,
) -> Result<()> {
    plan.take(queued(driver, source, target, route, on))?;
    plan.repeat(queued(driver, target, target, CopyRoute::Device, on))
}

/// The result's two numbers are the block's offsets in bytes, from `source` and from `target`.
fn queued<'a>(
    driver: &'a dyn Driver,
    source: u64,
    target: u64,
    route: CopyRoute<'a>,
    on: Alive<'a>,
) -> impl FnMut(Block, i64, i64) -> Result<()> + 'a {
    move |block, from, to| {
        // Neither sum wraps around: both arrays lie in the address space.
        let (source, target) = (source.wrapping_add_signed(from), target.wrapping_add_signed(to));
        driver.copy(Transfer { source, target, block, route }, on)
    }
}

/// Copies `array`, which must be ready on `on`, to the host, and waits for the copy. `None` if `array` has no elements.
pub fn on_host(
    driver: &Handle,
    array: &Descriptor,
    on: Alive<'_>,
) -> Result<Option<Arc<HostMemory>>> {
    let bytes = array.nbytes();
    if bytes == 0 {
        return Ok(None);
    }
    // A test can suppress a simulated copy and then read the bytes, so initialise them.
    let make = |length| match driver {
        Handle::Cuda => HostMemory::new(length),
        Handle::Simulated(_) | Handle::Borrowed(_) => HostMemory::filled(length, 0),
    };
    let memory = usize::try_from(bytes).ok().and_then(make).map(Arc::new);
    let memory = memory.ok_or_else(|| no_host_memory(bytes))?;
    into_host(driver, array, on, &memory).map(|()| Some(memory))
}

#[cold]
pub fn no_host_memory(bytes: i64) -> Error {
    Error::new(Kind::HostMemory, format!("{bytes} bytes, more than the host can allocate"))
}

/// Like [`on_host`], but copies into `memory`, which must have room for the copy.
pub fn into_host(
    driver: &Handle,
    array: &Descriptor,
    on: Alive<'_>,
    memory: &Arc<HostMemory>,
) -> Result<()> {
    let Some(plan) = plan(array)? else { return Ok(()) };
    let driver = driver.get()?;
    within(driver, on.place(), |_| {
        let route = CopyRoute::Host(memory);
        let copied = plan.take(queued(driver, array.ptr(), memory.address(), route, on));
        let waited = driver.wait_stream(on);
        if waited.is_err() {
            // Queued work may still write to the memory, so leak the memory.
            std::mem::forget(Arc::clone(memory));
        }
        copied.and(waited)
    })?;
    plan.repeat(|block, from, to| {
        let repeated = memory.repeat(block, from.unsigned_abs(), to.unsigned_abs());
        repeated.ok_or_else(|| no_host_memory(array.nbytes()))
    })
}

/// The descriptor of a compact copy of `array` at `ptr`. If the copy is in host memory, `device` is a placeholder.
pub fn described(array: &Descriptor, ptr: u64, device: Device) -> Result<Descriptor> {
    let layout = Layout::from_elements(array.layout().shape(), None, array.dtype().element_size())?;
    Descriptor::new(ptr, array.dtype(), layout, device, false)
}
