//! The functions that users call: each reads from top to bottom like its docs.

mod lent;
mod maker;
mod means;
mod ndarray;
mod of_any;
mod of_cai;
mod of_dlpack;
mod to_library;

pub(crate) use lent::Lent;
pub(crate) use maker::Maker;
pub(crate) use ndarray::Ndarrays;
pub(crate) use of_any::{_is_on_gpu, to_dlpack};
pub(crate) use of_cai::from_cai;
pub(crate) use of_dlpack::{source, to_cai};
pub(crate) use to_library::convert;

use pyo3::prelude::*;

/// An argument that may be left out.
type Maybe<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
