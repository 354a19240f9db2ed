//! DLPack capsules: told apart by their name, read without being consumed, then consumed.
//!
//! A capsule that is refused stays as it was: it is read and checked first, and renamed only when
//! nothing of ours can fail any more. Should somebody else consume it in between, [`take`] refuses. Builds
//! without a global lock need the capsule's own for that: both are several steps.
#![allow(unsafe_code)]

use std::ffi::CStr;

use dlpark::DlpackFlags;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use super::decode;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED: [&CStr; 2] = [c"used_dltensor", c"used_dltensor_versioned"];

/// Which structure a capsule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `DLManagedTensor`, which has no flags.
    Legacy,
    /// `DLManagedTensorVersioned`, with its flags.
    Versioned(DlpackFlags),
}

/// Reads `capsule` and leaves it as it is.
pub fn read(capsule: &Bound<'_, PyCapsule>) -> Result<(Form, Descriptor)> {
    with_critical_section(capsule, || read_locked(capsule))
}

fn read_locked(capsule: &Bound<'_, PyCapsule>) -> Result<(Form, Descriptor)> {
    if let Ok(pointer) = capsule.pointer_checked(Some(VERSIONED)) {
        // SAFETY: a capsule of this name holds a `DLManagedTensorVersioned` that lives as long as the
        // capsule does (Python specification of DLPack), and the capsule is held.
        let (array, flags) =
            unsafe { decode::versioned(pointer.as_ptr().cast::<DLManagedTensorVersioned>()) }?;
        return Ok((Form::Versioned(flags), array));
    }
    if let Ok(pointer) = capsule.pointer_checked(Some(LEGACY)) {
        // SAFETY: as above, with the structure of the older name.
        let array = unsafe { decode::legacy(pointer.as_ptr().cast::<DLManagedTensor>()) }?;
        return Ok((Form::Legacy, array));
    }
    if let Some(name) = USED.into_iter().find(|name| capsule.is_valid_checked(Some(name))) {
        return Err(used(&format!("a consumed one, named {name:?}")));
    }
    Err(Error::new(Kind::CapsuleName, "a PyCapsule of another name"))
}

/// The address of the tensor in `capsule`, which [`read`] has accepted; 0 if it was consumed meanwhile.
pub fn address(capsule: &Bound<'_, PyCapsule>) -> usize {
    let named = [VERSIONED, LEGACY].map(|name| capsule.pointer_checked(Some(name)).ok());
    named.into_iter().flatten().next().map_or(0, |pointer| pointer.as_ptr().addr())
}

/// Consumes `capsule`, which [`read`] has accepted: from here on its tensor is ours to delete.
pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<ImportedDlpack> {
    with_critical_section(capsule, || {
        dlpark::python::from_dlpack(capsule.as_any().as_borrowed(), None, None)
    })
    .map_err(|_| used("one that was consumed meanwhile").into())
}

#[cold]
fn used(got: &str) -> Error {
    Error::new(Kind::CapsuleUsed, got)
}
