//! Refuses arrays that a producer might silently export wrong: tensors with gradients, with lazy conjugation or
//! negation, or with a sparse layout, and masked arrays.

use pyo3::intern;
use pyo3::prelude::*;

use super::Refused;
use super::lazy::{Bits, Lazy};
use super::types::TypeFacts;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::py::flag;
use crate::py::habits::Habit;
use crate::py::interpreter::{answered, is_interrupt};
use crate::py::native::ObjectQuestion;
use crate::py::text::{an_object, printed, type_name};

/// Fails for a tensor that autograd tracks, or whose negative or conjugate bit is set.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>, facts: &TypeFacts, dtype: Option<Dtype>) -> PyResult<()> {
    let bits = match &facts.lazy {
        Some(Lazy::Bits(bits)) => bits,
        None => return Ok(()),
        Some(Lazy::Others { requires_grad, stop_gradient }) => {
            let (grad, stop) = (requires_grad.as_ref(), stop_gradient.as_ref());
            return followed(x, facts, grad, stop, dtype);
        }
    };
    let found = match found(x, bits, dtype) {
        Err(error) => behind_wrapper(x, facts, error, || self::found(x, bits, dtype)),
        found => found,
    };
    found?.map_or(Ok(()), |error| Err(error.into()))
}

#[inline(always)]
fn found(x: &Bound<'_, PyAny>, bits: &Bits, dtype: Option<Dtype>) -> PyResult<Option<Error>> {
    let found = if dtype.is_none_or(Dtype::is_inexact) && bits.requires_grad.ask(x)? {
        (Kind::RequiresGrad, "True")
    } else if bits.is_neg.ask(x)? {
        (Kind::NegBit, "a tensor with the negative bit set")
    } else if dtype.is_none_or(Dtype::is_complex) && bits.is_conj.ask(x)? {
        (Kind::ConjBit, "a tensor with the conjugate bit set")
    } else {
        return Ok(None);
    };
    Ok(Some(Error::new(found.0, found.1)))
}

/// Fails if `requires_grad` is True or `stop_gradient` is False, for an element type that can have gradients.
#[inline(never)]
fn followed(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    requires_grad: Option<&ObjectQuestion>,
    stop_gradient: Option<&ObjectQuestion>,
    dtype: Option<Dtype>,
) -> PyResult<()> {
    if !dtype.is_none_or(Dtype::is_inexact) {
        return Ok(());
    }
    let own = facts.more.of(x)?;
    let said = |question: Option<&ObjectQuestion>, name| -> PyResult<Option<bool>> {
        let answer = match question {
            Some(question) => Some(question.answer(x)?),
            None => own.get(x, name)?,
        };
        Ok(answer.map(|answer| flag::truth(&answer)).transpose()?.flatten())
    };
    if said(requires_grad, intern!(x.py(), "requires_grad"))? == Some(true) {
        return Err(Error::new(Kind::RequiresGrad, "True").into());
    }
    if said(stop_gradient, intern!(x.py(), "stop_gradient"))? == Some(false) {
        return Err(Error::at(Kind::RequiresGrad, "stop_gradient", "False").into());
    }
    Ok(())
}

/// If the library wraps tensors, calls `ask` again with the library's unwrapping on. Some of torch's wrappers, such as
/// `ReadOnlyTensorWrapper`, raise even for `requires_grad`.
#[cold]
fn behind_wrapper<R>(
    x: &Bound<'_, PyAny>,
    facts: &TypeFacts,
    error: PyErr,
    ask: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let py = x.py();
    if is_interrupt(py, &error) || !facts.has(Habit::WrapsTensors) {
        return Err(error);
    }
    let plain = facts.library.map(|library| library.unwrapping(py)).transpose()?.flatten();
    let Some(plain) = plain else { return Err(error) };
    plain.call_method0(intern!(py, "__enter__"))?;
    let asked = ask();
    plain.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    answered(py, asked)?.ok_or(error)
}

/// Fails if `x` has a `mask` that is neither None nor callable, as NumPy's masked arrays have: `__dlpack__` would
/// export the values without the mask.
pub(crate) fn check_mask(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let mask = x.getattr_opt(intern!(x.py(), "mask"))?;
    match mask.filter(|mask| !mask.is_none() && !mask.is_callable()) {
        Some(mask) => Err(Error::new(Kind::Mask, an_object(&mask)?).into()),
        None => Ok(()),
    }
}

/// Explains the producer's exception: if the tensor's layout has no strides, the refusal names the layout.
#[cold]
pub(crate) fn explain(x: &Bound<'_, PyAny>, facts: &TypeFacts, error: PyErr) -> Refused {
    if is_interrupt(x.py(), &error) {
        return error.into();
    }
    match unstrided(x, facts) {
        Err(interrupt) => interrupt.into(),
        Ok(Some(unstrided)) => {
            let refused = PyErr::from(unstrided);
            refused.set_cause(x.py(), Some(error));
            refused.into()
        }
        Ok(None) => Refused::ByProducer(error),
    }
}

/// Explains a null pointer: a wrapper, such as PyTorch's distributed tensors, has no memory of its own.
#[cold]
pub(super) fn explain_null(x: &Bound<'_, PyAny>, facts: &TypeFacts, error: Error) -> Refused {
    if error.kind() != Kind::NullData {
        return error.into();
    }
    let has_local = answered(x.py(), x.hasattr(intern!(x.py(), "to_local")));
    match (has_local, type_name(x)) {
        (Ok(has), Ok(name)) if has == Some(true) || has_bits(facts) => {
            let got = format!("{} of {name}, which has no memory of its own", error.got());
            Error::new(Kind::Wrapper, got).into()
        }
        (Err(interrupt), _) => interrupt.into(),
        _ => error.into(),
    }
}

const fn has_bits(facts: &TypeFacts) -> bool {
    matches!(facts.lazy, Some(Lazy::Bits(_)))
}

/// Fails for torch's sparse and nested tensors.
pub(crate) fn check_layout(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<()> {
    match unstrided(x, facts)? {
        Some(unstrided) => Err(unstrided.into()),
        None => Ok(()),
    }
}

fn unstrided(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<Option<Error>> {
    if !has_bits(facts) {
        return Ok(None);
    }
    let py = x.py();
    let layout = answered(py, x.getattr(intern!(py, "layout")))?;
    let layout = layout.map(|layout| printed(&layout)).transpose()?;
    Ok(match layout {
        Some(layout) if layout.ends_with("jagged") => Some(Error::new(Kind::NestedLayout, layout)),
        Some(layout) if !layout.ends_with("strided") => {
            Some(Error::new(Kind::SparseLayout, layout))
        }
        // A nested tensor whose layout is not jagged reports a strided layout.
        _ => {
            let nested = answered(py, x.getattr_opt(intern!(py, "is_nested")))?.flatten();
            let is_nested = nested.map(|nested| flag::truth(&nested)).transpose()?.flatten();
            is_nested.filter(|is| *is).map(|_| Error::new(Kind::NestedLayout, "a nested tensor"))
        }
    })
}
