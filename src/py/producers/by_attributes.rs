//! Reads arrays by their attributes, which is faster than reading their CAI dict. The bridge reads the first array of a
//! type both ways. Unless the two agree, the bridge reads arrays of that type by their dict.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyType};

use crate::cai::{self, Claim, Decoded, VERSION};
use crate::device::Place;
use crate::dtype::Dtype;
use crate::layout::{Dims, Layout, Reach};
use crate::py::cai_dict::{self, Reading};
use crate::py::habits::{Habit, Habits};
use crate::py::interpreter::answered;
use crate::py::library::{AttributeQuestions, Current, Library, NamedBy};
use crate::py::native;
use crate::py::numpy;
use crate::stream::{Ready, Stream, Thread};

type ArrayReach = (u64, Dtype, Reach);

pub(super) struct Attributes<'py> {
    pub(super) decoded: Decoded,
    pub(super) stream: NamedBy<'py>,
}

/// How to read arrays of `kind`, the type of `x`, by attributes that `library` knows; `None` to read their dict.
pub(super) fn questions(
    x: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyType>,
    habits: Habits,
    library: Option<&'static dyn Library>,
) -> PyResult<Option<AttributeQuestions>> {
    let py = x.py();
    // A derived class that defines the protocol itself lacks these habits, and can have other attributes.
    let is_read = habits.has(Habit::NamesCurrentStream) || habits.has(Habit::KeepsStreamObject);
    let Some(library) = library.filter(|_| is_read) else { return Ok(None) };
    let found = answered(py, library.attributes(x, kind))?.flatten();
    let same = match &found {
        Some(questions) => answered(py, agree(questions, habits, x))?,
        None => None,
    };
    if same == Some(true) {
        return Ok(found);
    }
    tracing::debug!(
        name: "route", target: "cai_bridge", library = library.name(),
        "the bridge uses the public route: the attributes are not the library's, or its dict differs"
    );
    Ok(None)
}

/// Whether the attributes of `x` agree with its CAI dict, except for strides that the library's dicts leave out. False
/// for read-only memory: no attribute says that memory is read-only.
fn agree(questions: &AttributeQuestions, habits: Habits, x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let dict = x.getattr(intern!(x.py(), "__cuda_array_interface__"))?.cast_into::<PyDict>()?;
    let (mut said, mut layout) = (Layout::EMPTY, Layout::EMPTY);
    let by_dict =
        cai_dict::decode(&dict, Reading::default(), |_| Ok((None, None)), &mut said, None)?;
    let Some((ptr, dtype, reach)) = read(questions, x, &mut layout)? else { return Ok(false) };
    let broadcast = habits.has(Habit::LeavesOutStrides) && layout.strides().contains(&0);
    let same_layout =
        (layout == said && reach == by_dict.reach) || (broadcast && layout.shape() == said.shape());
    Ok(!by_dict.readonly && (ptr, dtype) == (by_dict.ptr, by_dict.dtype) && same_layout)
}

/// Writes the layout of `x` to `layout`. `None` if the dict of `x` must be read.
fn read(
    questions: &AttributeQuestions,
    x: &Bound<'_, PyAny>,
    layout: &mut Layout,
) -> PyResult<Option<ArrayReach>> {
    let Some(shape) = native::tuple(&questions.shape.answer(x)?) else { return Ok(None) };
    let strides = match &questions.contiguous {
        Some(contiguous) if contiguous.answer(x)?.is(&*PyBool::new(x.py(), true)) => None,
        _ => match native::tuple(&questions.strides.answer(x)?) {
            None => return Ok(None),
            strides => strides,
        },
    };
    let Some(dtype) = numpy::known(&questions.dtype.answer(x)?) else { return Ok(None) };
    let shape = shape.as_slice();
    let steps = strides.as_ref().map(Dims::as_slice);
    // If the layout is refused, let the caller read the dict, which gives the usual error.
    let Ok(mut reach) = cai::laid_out(shape, steps, dtype, layout) else { return Ok(None) };
    let thin = || shape.iter().any(|&extent| extent < 2);
    if strides.is_some() && layout.is_contiguous() && thin() {
        // The dict of a contiguous array has no strides, so compute the reach without strides.
        reach = cai::laid_out(shape, None, dtype, layout)?;
    }
    if layout.size() == 0 {
        return Ok(Some((0, dtype, reach)));
    }
    Ok(questions.address.read(x)?.map(|ptr| (ptr, dtype, reach)))
}

/// `None` if the dict of `x` must be read.
pub(super) fn decode<'py>(
    questions: &AttributeQuestions,
    x: &Bound<'py, PyAny>,
    layout: &mut Layout,
) -> PyResult<Option<Attributes<'py>>> {
    let Some((ptr, dtype, reach)) = read(questions, x, layout)? else { return Ok(None) };
    let Some((ready, stream)) = questions.address.stream(x)? else { return Ok(None) };
    let claim = Claim::Stated(ready);
    let decoded = Decoded { version: VERSION, ptr, readonly: false, dtype, reach, claim };
    Ok(Some(Attributes { decoded, stream }))
}

/// The library's current stream at `place`, or the legacy default stream if the library does not say.
pub(super) fn current(py: Python<'_>, current: &dyn Current, place: Place) -> PyResult<Claim> {
    let native = current.native(py, place.ordinal)?.unwrap_or_default();
    Ok(Claim::Stated(Ready::On(Stream::from_native(native, Thread::current()))))
}
