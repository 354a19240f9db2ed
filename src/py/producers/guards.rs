//! What neither DLPack's exchange API nor a CAI dict says of a tensor, and would lose silently:
//! gradients, lazy conjugation and negation, sparse layouts. Torch has them.

use pyo3::intern;
use pyo3::prelude::*;

use super::types::Facts;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::py::interpreter::{answered, is_interrupt};
use crate::py::text::printed;

/// Refuses a tensor whose memory does not hold its values, or that autograd follows. `dtype` spares
/// the questions whose answer the type fixes; `None` asks all of them.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>, facts: &Facts, dtype: Option<Dtype>) -> PyResult<()> {
    let Some(lazy) = &facts.lazy else { return Ok(()) };
    if dtype.is_none_or(Dtype::is_inexact) && lazy.requires_grad.ask(x)? {
        return Err(Error::new(Kind::RequiresGrad, "True").into());
    }
    if lazy.is_neg.ask(x)? {
        return Err(Error::new(Kind::NegBit, "a tensor with the negative bit set").into());
    }
    if dtype.is_none_or(Dtype::is_complex) && lazy.is_conj.ask(x)? {
        return Err(Error::new(Kind::ConjBit, "a tensor with the conjugate bit set").into());
    }
    Ok(())
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
