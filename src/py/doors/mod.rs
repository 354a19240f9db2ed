//! The functions that users call.

mod another_way;
mod batch;
mod call_argument;
mod consumer_stream;
pub(crate) mod convert;
mod converter;
pub(crate) mod copies;
pub(crate) mod from_cai;
mod from_host;
mod library_traits;
mod limits;
mod own;
pub(crate) mod to_cai;
pub(crate) mod to_dlpack;
mod tree;
pub(crate) mod walk;
mod whole;

pub(crate) use call_argument::{_unraisable, CallArgument};
pub(crate) use converter::Converter;

use pyo3::PyClass;
use pyo3::prelude::*;

use super::observe::CallSpan;
use super::views::BaseView;

type Optional<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

#[cold]
fn report<'py, V: PyClass<BaseType = BaseView>>(
    door: &'static str,
    span: CallSpan,
    made: PyResult<Bound<'py, V>>,
) -> PyResult<Bound<'py, V>> {
    let made = made.map_err(|error| span.refused(door, error))?;
    span.exchanged(made.as_super().get().passed_in(door));
    Ok(made)
}
