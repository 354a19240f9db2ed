//! The functions that users call: each reads from top to bottom like its docs.

pub(crate) mod convert;
pub(crate) mod from_cai;
mod library;
mod maker;
mod ndarray;
pub(crate) mod to_cai;
pub(crate) mod to_dlpack;

pub(crate) use maker::Maker;
pub(crate) use ndarray::Ndarrays;

use pyo3::PyClass;
use pyo3::prelude::*;

use super::observe::Began;
use super::views::View;

/// An argument that may be left out.
type Maybe<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// A call of `door` that is told of: the view that it made, or why it made none.
#[cold]
fn tell<'py, V: PyClass<BaseType = View>>(
    door: &'static str,
    began: Began,
    made: PyResult<Bound<'py, V>>,
) -> PyResult<Bound<'py, V>> {
    let made = made.map_err(|error| began.refused(door, error))?;
    began.exchanged(made.as_super().get().passage_in(door));
    Ok(made)
}
