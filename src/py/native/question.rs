//! Questions that the objects of a type answer, asked without looking their names up.

use std::ptr;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// A question that a type's objects answer: an attribute, or a method without arguments.
#[derive(Debug)]
pub(in crate::py) enum Question {
    /// An attribute of an extension type: its descriptor, and what that has as `tp_descr_get`.
    Attribute(Py<PyAny>, ffi::descrgetfunc),
    /// A method of an extension type: its C function, which takes an object of that type, or of one that is derived
    /// from it, and NULL.
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
        let function = c_function(x, kind, &found)?;
        Ok(Some(function.map_or_else(|| Self::NamedMethod(name.clone().unbind()), Self::Method)))
    }

    /// An attribute of `kind`; `None` where it has none of that name. What an extension type has under it stays, and
    /// is asked without looking the name up.
    pub(in crate::py) fn attribute(
        kind: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(found) = kind.getattr_opt(name)? else { return Ok(None) };
        // Both are data descriptors, which no object's own attribute overrides.
        let known = [&raw mut ffi::PyGetSetDescr_Type, &raw mut ffi::PyMemberDescr_Type];
        let slot = if known.contains(&found.get_type_ptr()) { descr_get(&found) } else { None };
        Ok(Some(match slot {
            Some(slot) => Self::Attribute(found.unbind(), slot),
            None => Self::named(name),
        }))
    }

    /// The attribute of that name, of the object or its type.
    pub(in crate::py) fn named(name: &Bound<'_, PyString>) -> Self {
        Self::NamedAttribute(name.clone().unbind())
    }

    /// Whether it is an extension type's own, which cannot be replaced.
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

/// What the type of `descriptor` has as `tp_descr_get`.
fn descr_get(descriptor: &Bound<'_, PyAny>) -> Option<ffi::descrgetfunc> {
    // SAFETY: the type of a live object; a slot is NULL or what its name says (`PyType_GetSlot`).
    unsafe {
        let slot = ffi::PyType_GetSlot(descriptor.get_type_ptr(), ffi::Py_tp_descr_get);
        std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(slot)
    }
}

/// The C function behind `found`, which `kind`, the type of `x`, has under a name, if that is a method without arguments
/// of an extension type that `kind` is or is derived from. Anything else that looks like one, or that `x` has under the
/// same name, is asked by its name.
fn c_function(
    x: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyType>,
    found: &Bound<'_, PyAny>,
) -> PyResult<Option<ffi::PyCFunction>> {
    // By identity: another type of the same name is not it.
    if !std::ptr::eq(found.get_type_ptr(), &raw mut ffi::PyMethodDescr_Type) {
        return Ok(None);
    }
    // A member of CPython's own descriptor: the type that the function is of.
    let owner = found.getattr(intern!(x.py(), "__objclass__"))?.cast_into::<PyType>()?;
    // SAFETY: both are types and alive. It looks at the types alone: no metaclass is asked.
    let is_of = unsafe { ffi::PyType_IsSubtype(kind.as_type_ptr(), owner.as_type_ptr()) != 0 };
    let (true, Some(get)) = (is_of, descr_get(found)) else { return Ok(None) };
    // SAFETY: `found` is a descriptor of a type that `x` is of, checked by identity, and all are alive. What its own slot
    // binds is a new reference, or NULL with an exception; no attribute of `x` is looked up.
    let bound = unsafe {
        let bound = get(found.as_ptr(), x.as_ptr(), kind.as_ptr());
        Bound::from_owned_ptr_or_err(x.py(), bound)?
    };
    // SAFETY: `bound` is alive, and asked only once it is known to be a C function's object that is bound to `x`. The
    // function is code of a module, which stays loaded.
    unsafe {
        let object = bound.as_ptr();
        let is_its = ffi::PyCFunction_CheckExact(object) != 0
            && std::ptr::eq(ffi::PyCFunction_GetSelf(object), x.as_ptr())
            && ffi::PyCFunction_GetFlags(object) == ffi::METH_NOARGS;
        Ok(if is_its { ffi::PyCFunction_GetFunction(object) } else { None })
    }
}
