//! Questions that the objects of a type answer, asked without looking their names up.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// A question that a type's objects answer: an attribute, or a method without arguments.
#[derive(Debug)]
pub(in crate::py) enum Question {
    /// An attribute of an extension type: its descriptor, and what that has as `tp_descr_get`.
    Attribute(Py<PyAny>, ffi::descrgetfunc),
    /// A method of an extension type: its C function, which takes an object of the type and NULL.
    Method(ffi::PyCFunction),
    /// Any other attribute, by its name.
    NamedAttribute(Py<PyString>),
    /// Any other method.
    NamedMethod(Py<PyString>),
}

impl Question {
    /// A method of `kind`, the type of `x`; `None` where it has none of that name.
    pub(in crate::py) fn method(
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(found) = kind.getattr_opt(name)? else { return Ok(None) };
        if found.get_type().name()? == "method_descriptor" {
            let bound = x.getattr(name)?;
            // SAFETY: `bound` is alive; what is asked of it is asked of a C function's object alone, which keeps the
            // function as long as its type has the method: for good, since an extension type is not changed.
            unsafe {
                let is_c = ffi::PyCFunction_Check(bound.as_ptr()) != 0;
                if is_c && ffi::PyCFunction_GetFlags(bound.as_ptr()) == ffi::METH_NOARGS {
                    let function = ffi::PyCFunction_GetFunction(bound.as_ptr());
                    if let Some(function) = function {
                        return Ok(Some(Self::Method(function)));
                    }
                }
            }
        }
        Ok(Some(Self::NamedMethod(name.clone().unbind())))
    }

    /// An attribute of `kind`; `None` where it has none of that name. What an extension type has under it stays, and
    /// is asked without looking the name up.
    pub(in crate::py) fn attribute(
        kind: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(found) = kind.getattr_opt(name)? else { return Ok(None) };
        let named = found.get_type().name()?;
        let slot = if named == "getset_descriptor" || named == "member_descriptor" {
            // SAFETY: the type of a live object; a slot is NULL or what its name says (`PyType_GetSlot`).
            unsafe {
                let slot = ffi::PyType_GetSlot(found.get_type_ptr(), ffi::Py_tp_descr_get);
                std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(slot)
            }
        } else {
            None
        };
        Ok(Some(match slot {
            Some(slot) => Self::Attribute(found.unbind(), slot),
            None => Self::named(name),
        }))
    }

    /// The attribute of that name, whoever has it.
    pub(in crate::py) fn named(name: &Bound<'_, PyString>) -> Self {
        Self::NamedAttribute(name.clone().unbind())
    }

    /// Whether it is an extension type's own, which nobody replaces.
    pub(in crate::py) const fn is_native(&self) -> bool {
        matches!(self, Self::Attribute(..) | Self::Method(_))
    }

    /// Whether `x`, an object of the type, answers yes.
    #[inline(always)]
    pub(in crate::py) fn ask(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let answer = self.answer(x)?;
        // SAFETY: `True` and `False` live as long as the interpreter.
        let (yes, no) = unsafe { (ffi::Py_True(), ffi::Py_False()) };
        match answer.as_ptr() {
            object if object == no => Ok(false),
            object if object == yes => Ok(true),
            _ => answer.is_truthy(),
        }
    }

    /// What `x`, an object of the type, answers.
    #[inline(always)]
    pub(in crate::py) fn answer<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        match self {
            Self::Attribute(descriptor, get) => {
                // SAFETY: both objects are alive, and `x` shows that this thread is attached; the slot is the
                // descriptor's own, and gives a new reference, or NULL with an exception set.
                unsafe {
                    let kind = x.get_type_ptr().cast();
                    let answer = get(descriptor.as_ptr(), x.as_ptr(), kind);
                    Bound::from_owned_ptr_or_err(py, answer)
                }
            }
            Self::Method(function) => {
                // SAFETY: a function without arguments of the type of `x`, which is alive; as above.
                unsafe {
                    let answer = function(x.as_ptr(), ptr::null_mut());
                    Bound::from_owned_ptr_or_err(py, answer)
                }
            }
            Self::NamedAttribute(name) => x.getattr(name),
            Self::NamedMethod(name) => x.call_method0(name),
        }
    }
}
