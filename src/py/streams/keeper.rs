//! What keeps a stream alive.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::exporter::Exporter;
use super::voucher::Voucher;
use crate::array::RustStream;

/// What keeps a stream alive.
#[derive(Debug)]
pub(super) enum Keeper {
    /// Nothing is needed: a default stream, or a stream of a library that destroys none.
    Always,
    /// The stream's object, which cannot be closed while it is held.
    Owner(Voucher),
    /// The stream's object, which can be closed and is asked at each use.
    Object(Voucher),
    /// The exporter of a dict that names the stream, asked at each use; and another keeper, if any, asked before the
    /// exporter.
    Exporter(Box<(Exporter, Option<Self>)>),
    /// Rust code holds the stream.
    Rust(Box<RustStream>),
    /// Nothing keeps the stream: the legacy default stream stands in for it.
    StandIn,
}

impl Keeper {
    /// A copy for another holder.
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

    /// Shows the garbage collector the held objects.
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
