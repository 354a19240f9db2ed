//! What keeps a stream alive.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::exporter::Exporter;
use super::voucher::Voucher;
use crate::array::RustStream;

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
}

impl Keeper {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Always => Self::Always,
            Self::StandIn => Self::StandIn,
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
            Self::Owner(held) | Self::Object(held) => held.visit(visit),
            Self::Exporter(exporter) => {
                exporter.0.visit(visit)?;
                exporter.1.as_ref().map_or(Ok(()), |keeper| keeper.visit(visit))
            }
        }
    }
}
