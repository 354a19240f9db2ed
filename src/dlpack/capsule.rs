//! DLPack capsules: told apart by their name, read without being consumed, then consumed.
//!
//! A capsule that is refused stays as it was: it is read and checked first, and renamed only when
//! nothing of ours can fail any more. If it is consumed in between, [`take`] refuses. Builds
//! without a global lock need the capsule's own for that: both are several steps.
//!
//! A consumed capsule loses its destructor, because some exporters' destructors delete the tensor under either name. The
//! destructor of a capsule that [`new`] makes deletes the tensor only under the name it was made with: a consumer that
//! renames the capsule, to any name, owns the tensor.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::python::ImportedDlpack;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use super::decode;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

const LEGACY: &CStr = name(&ALIGNED.0.0);
const VERSIONED: &CStr = name(&ALIGNED.1.0);
const ALIGNED: &(Aligned<9>, Aligned<19>) =
    &(Aligned(*b"dltensor\0"), Aligned(*b"dltensor_versioned\0"));
const USED: [&CStr; 2] = [c"used_dltensor", c"used_dltensor_versioned"];

/// A name that lies in one cache line: the C library compares one that lies over the end of a page four times as slowly.
#[repr(align(32))]
struct Aligned<const N: usize>([u8; N]);

const fn name(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Which structure a capsule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `DLManagedTensor`, which has no flags.
    Legacy,
    /// `DLManagedTensorVersioned`, with its flags.
    Versioned(DlpackFlags),
}

/// What a capsule holds.
#[derive(Debug)]
pub struct Held {
    /// Its structure.
    pub form: Form,
    /// Its array.
    pub array: Descriptor,
    /// The address that its `manager_ctx` holds.
    pub context: usize,
}

/// Reads `capsule` and leaves it as it is.
pub fn read(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    with_critical_section(capsule, || read_locked(capsule))
}

/// What a capsule of that name holds. To ask one of another name for it would make an exception, which takes longer than
/// all else.
#[inline]
fn pointer(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> Option<NonNull<c_void>> {
    let is_named = capsule.is_valid_checked(Some(name));
    if is_named { capsule.pointer_checked(Some(name)).ok() } else { None }
}

fn read_locked(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    if let Some(pointer) = pointer(capsule, VERSIONED) {
        let managed = pointer.cast::<DLManagedTensorVersioned>().as_ptr();
        // SAFETY: a capsule of this name holds a `DLManagedTensorVersioned` that lives as long as the
        // capsule does (Python specification of DLPack), and the capsule is held.
        let (array, flags) = unsafe { decode::versioned(managed) }?;
        // SAFETY: as above; of another major version it is refused by the line above.
        let context = unsafe { (*managed).manager_ctx }.addr();
        return Ok(Held { form: Form::Versioned(flags), array, context });
    }
    if let Some(pointer) = pointer(capsule, LEGACY) {
        let managed = pointer.cast::<DLManagedTensor>().as_ptr();
        // SAFETY: as above, with the structure of the older name.
        let array = unsafe { decode::legacy(managed) }?;
        // SAFETY: as above.
        let context = unsafe { (*managed).manager_ctx }.addr();
        return Ok(Held { form: Form::Legacy, array, context });
    }
    if let Some(name) = USED.into_iter().find(|name| capsule.is_valid_checked(Some(name))) {
        return Err(used(&format!("a consumed one, named {name:?}")));
    }
    Err(Error::new(Kind::CapsuleName, "a PyCapsule of another name"))
}

/// A managed tensor that a capsule of ours holds.
pub trait InCapsule: Sized {
    /// The capsule's name until it is consumed.
    const NAME: &CStr;

    /// Its deleter.
    ///
    /// # Safety
    ///
    /// `managed` is an initialised structure.
    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl InCapsule for DLManagedTensor {
    const NAME: &CStr = LEGACY;

    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: the caller's own argument.
        unsafe { (*managed).deleter }
    }
}

impl InCapsule for DLManagedTensorVersioned {
    const NAME: &CStr = VERSIONED;

    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: the caller's own argument.
        unsafe { (*managed).deleter }
    }
}

/// A capsule that holds `managed`.
pub fn new<'py, M>(py: Python<'py>, managed: Managed<M>) -> PyResult<Bound<'py, PyAny>>
where
    M: InCapsule + ManagedTensorBase,
    Managed<M>: IntoPyObject<'py, Output = Bound<'py, PyAny>, Error = PyErr>,
{
    let capsule = managed.into_pyobject(py)?;
    // SAFETY: a capsule that was just made, whose destructor takes it and nothing else. It cannot fail for one.
    unsafe { ffi::PyCapsule_SetDestructor(capsule.as_ptr(), Some(delete::<M>)) };
    Ok(capsule)
}

/// The destructor of those capsules. With any other name than its own, none included, the tensor is another's.
unsafe extern "C" fn delete<M: InCapsule>(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython calls a destructor with its own capsule. `PyCapsule_IsValid` sets no exception and compares the
    // names; `PyCapsule_GetPointer` of a valid capsule of that name sets none either, whatever exception is pending.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) != 1 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>();
        // SAFETY: [`new`] put a structure there, which was not taken out under this name: it is the capsule's to delete.
        if let Some(deleter) = M::deleter(managed) {
            deleter(managed);
        }
    }
}

/// Consumes `capsule`, which [`read`] has accepted: from here on its tensor is ours to delete.
pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<ImportedDlpack> {
    with_critical_section(capsule, || {
        let legacy = taken(capsule, [LEGACY, USED[0]]).map(ImportedDlpack::Legacy);
        legacy.or_else(|| taken(capsule, [VERSIONED, USED[1]]).map(ImportedDlpack::Versioned))
    })
    .ok_or_else(|| used("one that was consumed meanwhile").into())
}

/// The tensor of a capsule of that name, which gets the other one. It has the structure of the name.
fn taken<M: ManagedTensorBase>(
    capsule: &Bound<'_, PyCapsule>,
    [name, used]: [&'static CStr; 2],
) -> Option<Managed<M>> {
    let pointer = pointer(capsule, name)?;
    // SAFETY: a live capsule, which is valid by the line above, so that neither fails. Without a destructor it is an
    // object like any other.
    unsafe {
        ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
        ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None);
    }
    // SAFETY: a capsule of this name holds such a structure, as in `read_locked`, and who renames it owns that.
    unsafe { Managed::from_raw(pointer.as_ptr().cast()) }.ok()
}

#[cold]
fn used(got: &str) -> Error {
    Error::new(Kind::CapsuleUsed, got)
}
