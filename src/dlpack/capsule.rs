//! DLPack capsules. [`read`] reads a capsule without consuming it, and [`take`] consumes it. A capsule that a check
//! refuses stays as it was.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::python::ImportedDlpack;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use super::decode::{self, Header};
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

const LEGACY: &CStr = name(&ALIGNED.0.0);
const VERSIONED: &CStr = name(&ALIGNED.1.0);
const ALIGNED: &(Aligned<9>, Aligned<19>) =
    &(Aligned(*b"dltensor\0"), Aligned(*b"dltensor_versioned\0"));
const USED: [&CStr; 2] = [c"used_dltensor", c"used_dltensor_versioned"];

/// Keeps a name away from the end of its page: near that end, the AVX2 `strcmp` of glibc 2.36 is slow.
#[repr(align(256))]
struct Aligned<const N: usize>([u8; N]);

const fn name(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Legacy,
    Versioned(DlpackFlags),
}

/// What [`read`] found, without consuming the capsule.
#[derive(Debug)]
pub struct Held {
    pub form: Form,
    pub array: Descriptor,
    /// The structure's `manager_ctx`.
    pub context: usize,
}

pub fn read(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    with_critical_section(capsule, || read_locked(capsule))
}

/// The name is checked first: asking for the pointer under a wrong name would raise an exception, which is slow.
#[inline]
fn pointer(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> Option<NonNull<c_void>> {
    let is_named = capsule.is_valid_checked(Some(name));
    if is_named { capsule.pointer_checked(Some(name)).ok() } else { None }
}

/// Calls `check` with the capsule's tensor, whatever device the tensor is on. Does not consume the capsule.
pub(super) fn check<R>(
    capsule: &Bound<'_, PyCapsule>,
    check: impl FnOnce(&DLTensor, Header) -> Result<R>,
) -> Result<R> {
    with_critical_section(capsule, || {
        if let Some(pointer) = pointer(capsule, VERSIONED) {
            let managed = pointer.cast::<DLManagedTensorVersioned>().as_ptr();
            // SAFETY: until it is consumed, a capsule named `dltensor_versioned` keeps a structure that begins with the
            // version.
            decode::check_version(unsafe { (*managed).version })?;
            // SAFETY: the major version is 1, so the structure has these fields.
            let managed = unsafe { &*managed };
            let header = Header { version: Some(managed.version), flags: managed.flags };
            return check(&managed.dl_tensor, header);
        }
        if let Some(pointer) = pointer(capsule, LEGACY) {
            // SAFETY: until it is consumed, a capsule named `dltensor` keeps a `DLManagedTensor` (Python specification
            // of DLPack).
            let managed = unsafe { pointer.cast::<DLManagedTensor>().as_ref() };
            return check(&managed.dl_tensor, Header::LEGACY);
        }
        Err(used("one that was consumed meanwhile"))
    })
}

fn read_locked(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    if let Some(pointer) = pointer(capsule, VERSIONED) {
        let managed = pointer.cast::<DLManagedTensorVersioned>().as_ptr();
        // SAFETY: until it is consumed, a capsule named `dltensor_versioned` keeps a `DLManagedTensorVersioned` (Python
        // specification of DLPack). The caller holds the capsule and its lock.
        let (array, flags) = unsafe { decode::versioned(managed) }?;
        // SAFETY: the capsule keeps the structure, and `decode::versioned` refuses other major versions.
        let context = unsafe { (*managed).manager_ctx }.addr();
        return Ok(Held { form: Form::Versioned(flags), array, context });
    }
    if let Some(pointer) = pointer(capsule, LEGACY) {
        let managed = pointer.cast::<DLManagedTensor>().as_ptr();
        // SAFETY: until it is consumed, a capsule named `dltensor` keeps a `DLManagedTensor` (Python specification of
        // DLPack).
        let array = unsafe { decode::legacy(managed) }?;
        // SAFETY: the capsule keeps the structure.
        let context = unsafe { (*managed).manager_ctx }.addr();
        return Ok(Held { form: Form::Legacy, array, context });
    }
    if let Some(name) = USED.into_iter().find(|name| capsule.is_valid_checked(Some(name))) {
        return Err(used(&format!("a consumed one, named {name:?}")));
    }
    Err(Error::new(Kind::CapsuleName, "a PyCapsule of another name"))
}

pub trait InCapsule: Sized {
    /// The capsule's name until it is consumed.
    const NAME: &CStr;

    /// # Safety
    ///
    /// `managed` is an initialised structure.
    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl InCapsule for DLManagedTensor {
    const NAME: &CStr = LEGACY;

    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: the caller promises that `managed` is an initialised structure.
        unsafe { (*managed).deleter }
    }
}

impl InCapsule for DLManagedTensorVersioned {
    const NAME: &CStr = VERSIONED;

    unsafe fn deleter(managed: *mut Self) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: the caller promises that `managed` is an initialised structure.
        unsafe { (*managed).deleter }
    }
}

pub fn new<'py, M>(py: Python<'py>, managed: Managed<M>) -> PyResult<Bound<'py, PyAny>>
where
    M: InCapsule + ManagedTensorBase,
    Managed<M>: IntoPyObject<'py, Output = Bound<'py, PyAny>, Error = PyErr>,
{
    let capsule = managed.into_pyobject(py)?;
    // SAFETY: the capsule was just made, and this destructor expects exactly such a capsule. The call cannot fail.
    unsafe { ffi::PyCapsule_SetDestructor(capsule.as_ptr(), Some(delete::<M>)) };
    Ok(capsule)
}

/// The destructor of capsules from [`new`]. If other code has renamed the capsule, that code owns the tensor.
unsafe extern "C" fn delete<M: InCapsule>(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython calls a destructor with its own capsule. `PyCapsule_IsValid` compares names and sets no
    // exception. `PyCapsule_GetPointer` sets none for a valid capsule of that name, even while an exception is
    // pending.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) != 1 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>();
        // SAFETY: [`new`] stored an initialised structure. The capsule still has its first name, so it owns the tensor.
        if let Some(deleter) = M::deleter(managed) {
            deleter(managed);
        }
    }
}

/// Consumes `capsule`, which [`read`] or `check` has accepted. Fails if other code has consumed the capsule.
pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<ImportedDlpack> {
    with_critical_section(capsule, || {
        let legacy = taken(capsule, [LEGACY, USED[0]]).map(ImportedDlpack::Legacy);
        legacy.or_else(|| taken(capsule, [VERSIONED, USED[1]]).map(ImportedDlpack::Versioned))
    })
    .ok_or_else(|| used("one that was consumed meanwhile").into())
}

/// `None` if the capsule is not named `name`. `M` must be the structure that a capsule named `name` holds.
fn taken<M: ManagedTensorBase>(
    capsule: &Bound<'_, PyCapsule>,
    [name, used]: [&'static CStr; 2],
) -> Option<Managed<M>> {
    let pointer = pointer(capsule, name)?;
    // SAFETY: the capsule is alive, and valid as the line above shows, so neither call fails. The new name is static,
    // so it outlives the capsule. Some exporters' destructors delete the tensor even under the consumed name, so the
    // capsule keeps no destructor.
    unsafe {
        ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
        ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None);
    }
    // SAFETY: a capsule named `name` holds an `M`, which the bridge owns after it has renamed the capsule (Python
    // specification of DLPack).
    unsafe { Managed::from_raw(pointer.as_ptr().cast()) }.ok()
}

#[cold]
fn used(got: &str) -> Error {
    Error::new(Kind::CapsuleUsed, got)
}
