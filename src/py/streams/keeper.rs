//! What keeps a stream alive.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::exporter::Exporter;
use super::name::StreamName;
use super::voucher::Voucher;
use crate::array::RustStream;
use crate::device::Place;

#[derive(Debug)]
pub(super) enum Keeper {
    /// The stream is never destroyed.
    Always,
    /// The stream object keeps the stream alive until the object is garbage.
    Owner(Voucher),
    /// The stream object may be closed at any time, so the bridge asks the object for its handle before each use.
    Object(Voucher),
    /// The exporter of the dict that names the stream, and perhaps a second keeper, which is asked first.
    Exporter(Box<(Exporter, Option<Self>)>),
    Rust(Box<RustStream>),
    /// The stream is the legacy default stream, in place of blocking streams that may be destroyed or are unknown.
    StandIn,
    InGraph(Box<InGraph>),
}

/// The keeper of a stream that waited in a graph only, so that outside the graph it must wait again before each use.
#[derive(Debug)]
pub(super) struct InGraph {
    pub(super) own: Keeper,
    /// The number of the graph's capture; `None` if no wait was made because of a capture.
    pub(super) capture: Option<u64>,
    pub(super) waited_for: WaitedFor,
}

/// The parts of a reference to the stream that was waited for.
#[derive(Debug)]
pub(super) struct WaitedFor {
    pub(super) name: StreamName,
    pub(super) place: Place,
    pub(super) life: u64,
    pub(super) keeper: Keeper,
}

impl InGraph {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let WaitedFor { name, place, life, keeper } = &self.waited_for;
        let keeper = keeper.clone_ref(py);
        Self {
            own: self.own.clone_ref(py),
            capture: self.capture,
            waited_for: WaitedFor { name: *name, place: *place, life: *life, keeper },
        }
    }
}

impl Keeper {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Always => Self::Always,
            Self::StandIn => Self::StandIn,
            Self::InGraph(waited) => Self::InGraph(Box::new(waited.clone_ref(py))),
            Self::Rust(held) => Self::Rust(held.clone()),
            Self::Owner(object) => Self::Owner(object.clone_ref(py)),
            Self::Object(object) => Self::Object(object.clone_ref(py)),
            Self::Exporter(exporter) => {
                let besides = exporter.1.as_ref().map(|keeper| keeper.clone_ref(py));
                Self::Exporter(Box::new((exporter.0.clone_ref(py), besides)))
            }
        }
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Always | Self::Rust(_) | Self::StandIn => Ok(()),
            Self::InGraph(waited) => {
                waited.own.visit(visit)?;
                waited.waited_for.keeper.visit(visit)
            }
            Self::Owner(held) | Self::Object(held) => held.visit(visit),
            Self::Exporter(exporter) => {
                exporter.0.visit(visit)?;
                exporter.1.as_ref().map_or(Ok(()), |keeper| keeper.visit(visit))
            }
        }
    }
}
