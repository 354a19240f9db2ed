//! DLPack capsules. The bridge recognises a capsule by its name. [`read`] reads a capsule without consuming it, and
//! [`take`] consumes it.
//!
//! The bridge reads and checks a capsule before it consumes it. A capsule that fails these checks stays as it was. If
//! other code consumes the capsule between [`read`] and [`take`], [`take`] fails. In builds without the global lock,
//! [`read`], `check` and [`take`] each hold the capsule's own lock, since each takes several steps.
//!
//! [`take`] removes the capsule's destructor, because some exporters' destructors delete the tensor even under the
//! consumed name. The destructor of a capsule from [`new`] deletes the tensor only under the capsule's original name. A
//! consumer that renames such a capsule, to any name, owns the tensor.
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

/// A name that starts at least 256 bytes before the end of its page. The C library compares a name slowly if it starts
/// within 128 bytes of that end (glibc's `strcmp` for AVX2, 2.36).
#[repr(align(256))]
struct Aligned<const N: usize>([u8; N]);

const fn name(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The kind of structure in a capsule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `DLManagedTensor`, which has no flags.
    Legacy,
    /// `DLManagedTensorVersioned`, with the flags in its `flags` field.
    Versioned(DlpackFlags),
}

/// What [`read`] finds in a capsule. The tensor stays in the capsule.
#[derive(Debug)]
pub struct Held {
    /// Which structure the capsule holds: the legacy or the versioned one.
    pub form: Form,
    /// The array that the structure describes.
    pub array: Descriptor,
    /// The address in the structure's `manager_ctx`.
    pub context: usize,
}

/// Reads `capsule` without changing it.
pub fn read(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    with_critical_section(capsule, || read_locked(capsule))
}

/// The pointer in the capsule, if the capsule is named `name`. The name is checked first: asking for the pointer under
/// a wrong name would raise an exception, which is slow.
#[inline]
fn pointer(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> Option<NonNull<c_void>> {
    let is_named = capsule.is_valid_checked(Some(name));
    if is_named { capsule.pointer_checked(Some(name)).ok() } else { None }
}

/// Calls `check` with the tensor in `capsule`, and with its version and flags. Does not consume the capsule. Fails for
/// a tensor of another major version than 1, and for a capsule of another name, such as a consumed one. Unlike
/// [`read`], this accepts a tensor on any device.
pub(super) fn check<R>(
    capsule: &Bound<'_, PyCapsule>,
    check: impl FnOnce(&DLTensor, Header) -> Result<R>,
) -> Result<R> {
    with_critical_section(capsule, || {
        if let Some(pointer) = pointer(capsule, VERSIONED) {
            let managed = pointer.cast::<DLManagedTensorVersioned>().as_ptr();
            // SAFETY: as in `read_locked`. Every version of the structure begins with the version field.
            decode::check_version(unsafe { (*managed).version })?;
            // SAFETY: the major version is 1, so the structure has these fields.
            let managed = unsafe { &*managed };
            let header = Header { version: Some(managed.version), flags: managed.flags };
            return check(&managed.dl_tensor, header);
        }
        if let Some(pointer) = pointer(capsule, LEGACY) {
            // SAFETY: as in `read_locked`.
            let managed = unsafe { pointer.cast::<DLManagedTensor>().as_ref() };
            return check(&managed.dl_tensor, Header::LEGACY);
        }
        Err(used("one that was consumed meanwhile"))
    })
}

fn read_locked(capsule: &Bound<'_, PyCapsule>) -> Result<Held> {
    if let Some(pointer) = pointer(capsule, VERSIONED) {
        let managed = pointer.cast::<DLManagedTensorVersioned>().as_ptr();
        // SAFETY: a capsule of this name holds a `DLManagedTensorVersioned` (Python specification of DLPack). Until it
        // is consumed, the structure lives as long as the capsule, and the caller holds the capsule and its lock.
        let (array, flags) = unsafe { decode::versioned(managed) }?;
        // SAFETY: as above. The line above refuses other major versions.
        let context = unsafe { (*managed).manager_ctx }.addr();
        return Ok(Held { form: Form::Versioned(flags), array, context });
    }
    if let Some(pointer) = pointer(capsule, LEGACY) {
        let managed = pointer.cast::<DLManagedTensor>().as_ptr();
        // SAFETY: a capsule of the older name holds a `DLManagedTensor`; the rest as above.
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

/// A structure that [`new`] can put in a capsule.
pub trait InCapsule: Sized {
    /// The capsule's name until it is consumed.
    const NAME: &CStr;

    /// The structure's deleter.
    ///
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

/// Makes a capsule that owns `managed` until the capsule is consumed. If this fails, `managed` is deleted.
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

/// The destructor of capsules from [`new`]. If the capsule has another name by now, the tensor belongs to other code
/// and is not deleted.
unsafe extern "C" fn delete<M: InCapsule>(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython calls a destructor with its own capsule. `PyCapsule_IsValid` compares names and sets no
    // exception. `PyCapsule_GetPointer` sets none for a valid capsule of that name, even while an exception is
    // pending.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) != 1 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>();
        // SAFETY: [`new`] stored an initialised structure. The capsule still has its first name, so nobody has taken
        // the tensor and the capsule must delete it.
        if let Some(deleter) = M::deleter(managed) {
            deleter(managed);
        }
    }
}

/// Consumes `capsule`, which [`read`] or `check` has accepted. The result owns the tensor, and deletes it when the
/// result is dropped. Fails if other code has consumed the capsule.
pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<ImportedDlpack> {
    with_critical_section(capsule, || {
        let legacy = taken(capsule, [LEGACY, USED[0]]).map(ImportedDlpack::Legacy);
        legacy.or_else(|| taken(capsule, [VERSIONED, USED[1]]).map(ImportedDlpack::Versioned))
    })
    .ok_or_else(|| used("one that was consumed meanwhile").into())
}

/// Takes the tensor out of the capsule, if the capsule is named `name`, and renames the capsule to `used`. The caller
/// chooses `M` to be the structure that capsules named `name` hold.
fn taken<M: ManagedTensorBase>(
    capsule: &Bound<'_, PyCapsule>,
    [name, used]: [&'static CStr; 2],
) -> Option<Managed<M>> {
    let pointer = pointer(capsule, name)?;
    // SAFETY: the capsule is alive, and valid as the line above shows, so neither call fails. The new name is static,
    // so it outlives the capsule. From now on the capsule has no destructor.
    unsafe {
        ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
        ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None);
    }
    // SAFETY: [`take`] asks for the structure that a capsule of this name holds (Python specification of DLPack). The
    // bridge has renamed the capsule, so the bridge owns the structure.
    unsafe { Managed::from_raw(pointer.as_ptr().cast()) }.ok()
}

#[cold]
fn used(got: &str) -> Error {
    Error::new(Kind::CapsuleUsed, got)
}
