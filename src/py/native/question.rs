//! Reads attributes of a type's objects and calls their methods. Many attributes and methods that C code defines need
//! no name lookup.

use std::ptr;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// How to read one attribute, or call one method without arguments, on the objects of a type.
#[derive(Debug)]
pub(in crate::py) enum ObjectQuestion {
    /// An attribute that C code defines: its descriptor, and the descriptor type's `tp_descr_get`.
    Attribute(Py<PyAny>, ffi::descrgetfunc),
    /// The C function of an extension type's method without arguments.
    Method(ffi::PyCFunction),
    NamedAttribute(Py<PyString>),
    NamedMethod(Py<PyString>),
}

impl ObjectQuestion {
    pub(in crate::py) fn method(
        x: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(found) = kind.getattr_opt(name)? else { return Ok(None) };
        let function = c_function(x, kind, &found)?;
        Ok(Some(function.map_or_else(|| Self::NamedMethod(name.clone().unbind()), Self::Method)))
    }

    /// `None` if `kind` has no attribute `name`.
    pub(in crate::py) fn attribute(
        kind: &Bound<'_, PyType>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(found) = kind.getattr_opt(name)? else { return Ok(None) };
        // Member and getset descriptors are data descriptors, which come before the object's own attributes.
        let is_known = if std::ptr::eq(found.get_type_ptr(), &raw mut ffi::PyMemberDescr_Type) {
            is_of_c(&found)?
        } else {
            std::ptr::eq(found.get_type_ptr(), &raw mut ffi::PyGetSetDescr_Type)
        };
        let slot = if is_known && is_plain(kind) { descr_get(&found) } else { None };
        Ok(Some(match slot {
            Some(slot) => Self::Attribute(found.unbind(), slot),
            None => Self::named(name),
        }))
    }

    pub(in crate::py) fn named(name: &Bound<'_, PyString>) -> Self {
        Self::NamedAttribute(name.clone().unbind())
    }

    pub(in crate::py) const fn is_native(&self) -> bool {
        matches!(self, Self::Attribute(..) | Self::Method(_))
    }

    /// `x` must be an object of the question's type.
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

    /// `x` must be an object of the question's type.
    #[inline(always)]
    pub(in crate::py) fn answer<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        match self {
            Self::Attribute(descriptor, get) => {
                // SAFETY: both objects are alive, and `x` shows that this thread is attached. The slot is that of the
                // descriptor's type. It returns a new reference, or NULL with an exception set.
                unsafe {
                    let kind = x.get_type_ptr().cast();
                    let answer = get(descriptor.as_ptr(), x.as_ptr(), kind);
                    Bound::from_owned_ptr_or_err(py, answer)
                }
            }
            Self::Method(function) => {
                // SAFETY: the function takes no arguments and belongs to the type of `x`, or to one of its bases. `x`
                // is alive. The function returns a new reference, or NULL with an exception set.
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

/// Whether the type's objects look up attributes as those of `object` do, without `__getattr__` or `__getattribute__`.
fn is_plain(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: both are live types. The call only reads a slot.
    unsafe {
        let usual = ffi::PyType_GetSlot(&raw mut ffi::PyBaseObject_Type, ffi::Py_tp_getattro);
        std::ptr::eq(ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_getattro), usual)
    }
}

/// Whether C code defines the member descriptor, and not the `__slots__` of a Python class.
fn is_of_c(member: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = member.py();
    let owner = member.getattr(intern!(py, "__objclass__"))?.cast_into::<PyType>()?;
    // SAFETY: the type is alive. The call only reads its flags.
    let flags = unsafe { ffi::PyType_GetFlags(owner.as_type_ptr()) };
    let is_made_at_run_time = flags & ffi::Py_TPFLAGS_HEAPTYPE != 0;
    Ok(!is_made_at_run_time || !owner.getattr(intern!(py, "__dict__"))?.contains("__slots__")?)
}

fn descr_get(descriptor: &Bound<'_, PyAny>) -> Option<ffi::descrgetfunc> {
    // SAFETY: the descriptor is alive, and so is its type. `PyType_GetSlot` returns NULL or a pointer to a function
    // with this slot's signature, `descrgetfunc`.
    unsafe {
        let slot = ffi::PyType_GetSlot(descriptor.get_type_ptr(), ffi::Py_tp_descr_get);
        std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(slot)
    }
}

/// The C function behind `found`, an attribute of `kind`; `None` unless `found` is an extension type's method without
/// arguments, and `kind` looks up attributes as `object` does.
fn c_function(
    x: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyType>,
    found: &Bound<'_, PyAny>,
) -> PyResult<Option<ffi::PyCFunction>> {
    let is_method = std::ptr::eq(found.get_type_ptr(), &raw mut ffi::PyMethodDescr_Type);
    if !is_method || !is_plain(kind) {
        return Ok(None);
    }
    let owner = found.getattr(intern!(x.py(), "__objclass__"))?.cast_into::<PyType>()?;
    // SAFETY: both are live types. The call only reads the types, and calls no metaclass.
    let is_of = unsafe { ffi::PyType_IsSubtype(kind.as_type_ptr(), owner.as_type_ptr()) != 0 };
    let (true, Some(get)) = (is_of, descr_get(found)) else { return Ok(None) };
    // SAFETY: `found` is a method descriptor: its type was compared by identity. `kind`, the type of `x`, is the type
    // that the method belongs to, or derives from it, as checked above. `found`, `x` and `kind` are alive. The slot
    // returns a new reference, or NULL with an exception set, and does not look up attributes of `x`.
    let bound = unsafe {
        let bound = get(found.as_ptr(), x.as_ptr(), kind.as_ptr());
        Bound::from_owned_ptr_or_err(x.py(), bound)?
    };
    // SAFETY: `bound` is alive. Its function is read only if it is an exact C function object. The function belongs to
    // an extension module, which stays loaded.
    unsafe {
        let object = bound.as_ptr();
        let is_its = ffi::PyCFunction_CheckExact(object) != 0
            && std::ptr::eq(ffi::PyCFunction_GetSelf(object), x.as_ptr())
            && ffi::PyCFunction_GetFlags(object) == ffi::METH_NOARGS;
        Ok(if is_its { ffi::PyCFunction_GetFunction(object) } else { None })
    }
}
