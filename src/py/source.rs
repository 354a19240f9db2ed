//! What an import yields, and the one place where a hand-over's edge is decided and carried out.

use pyo3::prelude::*;

use super::back::Unable;
use super::keep::Keep;
use super::{current, parked};
use crate::descriptor::Descriptor;
use crate::device::MemoryKind;
use crate::driver::Handle;
use crate::error::{Kind, Result};
use crate::order::{self, Door, Place};
use crate::stream::{Ready, Request, Stream, Thread, plan};

/// An array that was taken in: what it is, what it is ready on, and who keeps it alive.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) array: Descriptor,
    pub(super) ready: Ready,
    pub(super) place: Place,
    pub(super) driver: Handle,
    pub(super) keep: Keep,
    /// By which door it came.
    pub(super) by: By,
}

/// What an array came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The exchange API.
    ExchangeApi,
    /// `__dlpack__`.
    Dlpack,
    /// A capsule.
    Capsule,
    /// A dict of the CUDA Array Interface, of that version.
    Cai(i64),
    /// A view of the bridge's own.
    View,
}

impl By {
    /// Its name, as events give it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ExchangeApi => "exchange API",
            Self::Dlpack => "__dlpack__",
            Self::Capsule => "capsule",
            Self::Cai(0) => "CAI v0",
            Self::Cai(1) => "CAI v1",
            Self::Cai(2) => "CAI v2",
            Self::Cai(_) => "CAI v3",
            Self::View => "view",
        }
    }
}

/// Makes memory that is `ready` usable as `request` asks, with the interpreter lock released while
/// the driver is called.
pub(super) fn hand_over(
    py: Python<'_>,
    door: &'static str,
    driver: &Handle,
    place: Place,
    ready: Ready,
    request: Request,
) -> Result<()> {
    parked::look(py);
    let edge = plan(ready, request, Thread::current());
    let on = || request.stream().or(ready.stream());
    order::carry_out(Door::handing_over(door), driver, place, edge, on, |call| py.detach(call))
}

/// Refuses a consumer's or declared stream of another device than the array's. Managed and pinned
/// memory is worked on by the streams of every device.
pub(super) fn check_stream(
    array: &Descriptor,
    driver: &Handle,
    place: Place,
    request: Request,
) -> Result<()> {
    match request {
        Request::On(stream @ Stream::Handle(_))
            if array.ptr() != 0 && array.device().kind == MemoryKind::Device =>
        {
            order::check_device(driver.get()?, place, stream)
        }
        _ => Ok(()),
    }
}

/// Refuses, by an error of `why`, a wait of the host for work of the context of `place` while that would
/// end a capture, as far as one is known of: of its default streams, and of those that the libraries work
/// on now.
pub(super) fn check_host_wait(
    py: Python<'_>,
    driver: &Handle,
    place: Place,
    why: (Kind, &str),
) -> std::result::Result<(), Unable> {
    let known = current::streams(py, driver, place.ordinal)?;
    Ok(order::check_host_wait(driver.get()?, place, &known, why)?)
}

/// What a consumer is told once [`hand_over`] has served `request`.
pub(super) fn told(ready: Ready, request: Request) -> Ready {
    match request {
        Request::Unsaid => ready,
        Request::NoOrder => Ready::Nothing,
        Request::On(stream) => Ready::On(stream),
    }
}
