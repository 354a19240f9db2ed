//! What neither DLPack's exchange API nor a CAI dict says of a tensor, and would lose silently:
//! gradients, lazy conjugation and negation, sparse layouts. Torch has them.

use pyo3::intern;
use pyo3::prelude::*;

use super::types::{Facts, Lazy};
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::py::habits::Habit;
use crate::py::interpreter::{answered, is_interrupt};
use crate::py::text::{an_object, printed};

/// Refuses a tensor whose memory does not hold its values, or that autograd follows. `dtype` spares
/// the questions whose answer the type fixes; `None` asks all of them.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>, facts: &Facts, dtype: Option<Dtype>) -> PyResult<()> {
    let Some(lazy) = &facts.lazy else { return Ok(()) };
    let found = match found(x, lazy, dtype) {
        Err(error) => behind_wrapper(x, facts, error, || self::found(x, lazy, dtype)),
        found => found,
    };
    found?.map_or(Ok(()), |error| Err(error.into()))
}

/// What is to be refused, as the tensor answers.
#[inline(always)]
fn found(x: &Bound<'_, PyAny>, lazy: &Lazy, dtype: Option<Dtype>) -> PyResult<Option<Error>> {
    let found = if dtype.is_none_or(Dtype::is_inexact) && lazy.requires_grad.ask(x)? {
        (Kind::RequiresGrad, "True")
    } else if lazy.is_neg.ask(x)? {
        (Kind::NegBit, "a tensor with the negative bit set")
    } else if dtype.is_none_or(Dtype::is_complex) && lazy.is_conj.ask(x)? {
        (Kind::ConjBit, "a tensor with the conjugate bit set")
    } else {
        return Ok(None);
    };
    Ok(Some(Error::new(found.0, found.1)))
}

/// The same of a tensor that answered by `error`: classes of torch's that let nothing be done with their tensors but
/// exporting them, as `ReadOnlyTensorWrapper`, refuse every question. torch itself answers for them.
#[cold]
fn behind_wrapper<R>(
    x: &Bound<'_, PyAny>,
    facts: &Facts,
    error: PyErr,
    ask: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let py = x.py();
    if is_interrupt(py, &error) || !facts.has(Habit::WrapsTensors) {
        return Err(error);
    }
    let torch = py.import(intern!(py, "torch._C"));
    let plain = torch.and_then(|torch| torch.call_method0("DisableTorchFunctionSubclass"));
    let Some(plain) = answered(py, plain)? else { return Err(error) };
    plain.call_method0(intern!(py, "__enter__"))?;
    let asked = ask();
    plain.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    answered(py, asked)?.ok_or(error)
}

/// Refuses a masked array, as NumPy's are: its `__dlpack__` gives the values without the mask.
pub(crate) fn check_mask(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let mask = x.getattr_opt(intern!(x.py(), "mask"))?;
    match mask.filter(|mask| !mask.is_none() && !mask.is_callable()) {
        Some(mask) => Err(Error::new(Kind::Mask, an_object(&mask)?).into()),
        None => Ok(()),
    }
}

/// Says what a producer's own failure was about, where it was about the layout.
#[cold]
pub(crate) fn explain(x: &Bound<'_, PyAny>, facts: &Facts, error: PyErr) -> PyErr {
    if is_interrupt(x.py(), &error) {
        return error;
    }
    match unstrided(x, facts) {
        Err(interrupt) => interrupt,
        Ok(Some(layout)) => {
            let refused = PyErr::from(Error::new(Kind::SparseLayout, layout));
            refused.set_cause(x.py(), Some(error));
            refused
        }
        Ok(None) => error,
    }
}

/// Refuses a layout that has no strides.
pub(crate) fn check_layout(x: &Bound<'_, PyAny>, facts: &Facts) -> PyResult<()> {
    match unstrided(x, facts)? {
        Some(layout) => Err(Error::new(Kind::SparseLayout, layout).into()),
        None => Ok(()),
    }
}

fn unstrided(x: &Bound<'_, PyAny>, facts: &Facts) -> PyResult<Option<String>> {
    if facts.lazy.is_none() {
        return Ok(None);
    }
    let layout = answered(x.py(), x.getattr(intern!(x.py(), "layout")))?;
    let layout = layout.map(|layout| printed(&layout)).transpose()?;
    Ok(layout.filter(|layout| !layout.ends_with("strided")))
}
