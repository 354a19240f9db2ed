//! What a type, or its objects, say beside the protocols: gradients, bits that negate and conjugate, and whatever an
//! object has that its type has not.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::py::interpreter::answered;
use crate::py::native::Question;
use crate::py::text::attribute;

/// The properties of a tensor that autograd follows, or whose memory does not hold its values.
#[derive(Debug)]
pub(super) enum Lazy {
    Bits(Bits),
    /// Those of others, whose memory holds the values. An object may have either though its type has neither.
    Others {
        requires_grad: Option<Question>,
        /// The same as Paddle has it, where False is yes.
        stop_gradient: Option<Question>,
    },
}

/// Those of a tensor that has all three, as torch's.
#[derive(Debug)]
pub(super) struct Bits {
    pub(super) requires_grad: Question,
    pub(super) is_neg: Question,
    pub(super) is_conj: Question,
}

impl Lazy {
    /// Those of `kind`, the type of `x`; `None` where its objects have none.
    pub(super) fn of(
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
        more: More,
    ) -> PyResult<Option<Self>> {
        let py = x.py();
        let requires_grad = Question::attribute(kind, intern!(py, "requires_grad"))?;
        let stop_gradient = Question::attribute(kind, intern!(py, "stop_gradient"))?;
        let is_neg = Question::method(x, kind, intern!(py, "is_neg"))?;
        let is_conj = Question::method(x, kind, intern!(py, "is_conj"))?;
        Ok(match (requires_grad, stop_gradient, is_neg, is_conj) {
            (Some(requires_grad), None, Some(is_neg), Some(is_conj)) => {
                Some(Self::Bits(Bits { requires_grad, is_neg, is_conj }))
            }
            (None, None, ..) if more == More::Nothing => None,
            (requires_grad, stop_gradient, ..) => {
                Some(Self::Others { requires_grad, stop_gradient })
            }
        })
    }
}

/// Where objects of a type that nothing is known of have attributes that their type has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Nothing,
    /// In their own dicts.
    InDict,
    /// By code of theirs, which takes asking.
    ByCode,
}

impl More {
    pub(super) fn of_type(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        if !has_more(kind)? {
            return Ok(Self::Nothing);
        }
        let in_dict = kind.getattr(intern!(py, "__dictoffset__"))?.is_truthy()?;
        let plain = kind.getattr_opt(intern!(py, "__getattr__"))?.is_none();
        Ok(if in_dict && plain { Self::InDict } else { Self::ByCode })
    }

    /// What `x`, an object of such a type, has that its type has not.
    pub(super) fn of<'py>(self, x: &Bound<'py, PyAny>) -> PyResult<Own<'py>> {
        Ok(match self {
            Self::Nothing => Own::Nothing,
            // To ask for what is not there would cost an exception.
            Self::InDict => {
                let own = answered(x.py(), x.getattr(intern!(x.py(), "__dict__")))?;
                own.and_then(|own| own.cast_into().ok()).map_or(Own::Nothing, Own::InDict)
            }
            Self::ByCode => Own::ByCode,
        })
    }
}

/// Whether objects may have attributes that their type has not.
pub(super) fn has_more(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = kind.py();
    if kind.getattr(intern!(py, "__dictoffset__"))?.is_truthy()?
        || kind.getattr_opt(intern!(py, "__getattr__"))?.is_some()
    {
        return Ok(true);
    }
    let finds = kind.getattr(intern!(py, "__getattribute__"))?;
    let made_by = finds.getattr_opt(intern!(py, "__objclass__"))?;
    let module = made_by.map(|by| attribute(&by, intern!(py, "__module__"))).transpose()?.flatten();
    Ok(module.as_deref() != Some("builtins"))
}

/// What an object has that its type has not.
pub(super) enum Own<'py> {
    Nothing,
    InDict(Bound<'py, PyDict>),
    ByCode,
}

impl<'py> Own<'py> {
    /// What `x`, the object, has under that name.
    pub(super) fn get(
        &self,
        x: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Nothing => Ok(None),
            Self::InDict(own) => own.get_item(name),
            Self::ByCode => Ok(answered(x.py(), x.getattr_opt(name))?.flatten()),
        }
    }
}
