//! Facts about a tensor that the protocols do not carry: gradients, negative and conjugate bits, and attributes that
//! only the object has.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::py::interpreter::answered;
use crate::py::native::ObjectQuestion;
use crate::py::text::attribute;

/// How to find out whether autograd tracks a tensor and, with [`Bits`], whether the tensor's memory holds its values.
#[derive(Debug)]
pub(super) enum Lazy {
    Bits(Bits),
    /// For other types. A field is `None` if the type lacks the attribute.
    Others {
        requires_grad: Option<ObjectQuestion>,
        /// Paddle's inverse of `requires_grad`: False means that autograd tracks the tensor.
        stop_gradient: Option<ObjectQuestion>,
    },
}

/// For a type that has these three attributes and no `stop_gradient`, such as `torch.Tensor`.
#[derive(Debug)]
pub(super) struct Bits {
    pub(super) requires_grad: ObjectQuestion,
    pub(super) is_neg: ObjectQuestion,
    pub(super) is_conj: ObjectQuestion,
}

impl Lazy {
    /// `None` if objects of the type cannot have `requires_grad` or `stop_gradient`.
    pub(super) fn of(
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
        more: OwnAttributes,
    ) -> PyResult<Option<Self>> {
        let py = x.py();
        let requires_grad = ObjectQuestion::attribute(kind, intern!(py, "requires_grad"))?;
        let stop_gradient = ObjectQuestion::attribute(kind, intern!(py, "stop_gradient"))?;
        let is_neg = ObjectQuestion::method(x, kind, intern!(py, "is_neg"))?;
        let is_conj = ObjectQuestion::method(x, kind, intern!(py, "is_conj"))?;
        Ok(match (requires_grad, stop_gradient, is_neg, is_conj) {
            (Some(requires_grad), None, Some(is_neg), Some(is_conj)) => {
                Some(Self::Bits(Bits { requires_grad, is_neg, is_conj }))
            }
            (None, None, ..) if more == OwnAttributes::Nothing => None,
            (requires_grad, stop_gradient, ..) => {
                Some(Self::Others { requires_grad, stop_gradient })
            }
        })
    }
}

/// Where an object can have attributes that its type lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnAttributes {
    Nothing,
    InDict,
    /// Code such as `__getattr__` can give an object attributes.
    ByCode,
}

impl OwnAttributes {
    pub(super) fn of_type(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        if !has_more(kind)? {
            return Ok(Self::Nothing);
        }
        let in_dict = kind.getattr(intern!(py, "__dictoffset__"))?.is_truthy()?;
        let plain = kind.getattr_opt(intern!(py, "__getattr__"))?.is_none();
        Ok(if in_dict && plain { Self::InDict } else { Self::ByCode })
    }

    pub(super) fn of<'py>(self, x: &Bound<'py, PyAny>) -> PyResult<Own<'py>> {
        Ok(match self {
            Self::Nothing => Own::Nothing,
            // Read the dict, since looking up a missing attribute raises an exception.
            Self::InDict => {
                let own = answered(x.py(), x.getattr(intern!(x.py(), "__dict__")))?;
                own.and_then(|own| own.cast_into().ok()).map_or(Own::Nothing, Own::InDict)
            }
            Self::ByCode => Own::ByCode,
        })
    }
}

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

pub(super) enum Own<'py> {
    Nothing,
    InDict(Bound<'py, PyDict>),
    ByCode,
}

impl<'py> Own<'py> {
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
