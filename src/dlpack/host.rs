//! Tensors in host memory, and compact copies of them by the CPU.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dlpark::ffi::{DLDevice, DLDeviceType, DLTensor};
use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::capsule::{self, Held};
use super::decode::{self, Header};
use crate::buffer;
use crate::copy_plan::CopyPlan;
use crate::descriptor::Descriptor;
use crate::driver::host::HostMemory;
use crate::error::{Error, Kind, Result};

#[derive(Debug, Clone)]
pub struct HostTensor {
    /// The descriptor's device is a placeholder.
    pub array: Descriptor,
    /// Whether `array.readonly()` is known: a legacy structure cannot say that its tensor is read-only.
    pub says_readonly: bool,
    _memory: Arc<dyn fmt::Debug + Send + Sync>,
}

struct Managed {
    _tensor: ImportedDlpack,
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed").finish_non_exhaustive()
    }
}

impl HostTensor {
    /// A capsule that is refused stays as it was.
    pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        match capsule::read(capsule) {
            Ok(Held { array, .. }) => {
                let device = array.device();
                let got = format!("({}, {})", device.kind.code(), device.id);
                Err(Error::at(Kind::DlDevice, "__dlpack__", got).into())
            }
            Err(error) if error.kind() == Kind::CpuMemory => {
                // SAFETY: a capsule of DLPack's holds a tensor with valid shape and strides (Python specification).
                capsule::check(capsule, |tensor, header| unsafe { described(tensor, header) })?;
                Ok(Self::of(capsule::take(capsule)?)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub fn of(managed: ImportedDlpack) -> Result<Self> {
        let (tensor, header) = match &managed {
            // SAFETY: the structure is initialised (`Managed::from_raw`), and lives as long as `managed`.
            ImportedDlpack::Legacy(managed) => (unsafe { *managed.tensor() }, Header::LEGACY),
            ImportedDlpack::Versioned(managed) => {
                decode::check_version(managed.version())?;
                let header = Header { version: Some(managed.version()), flags: managed.flags() };
                // SAFETY: the structure is initialised (`Managed::from_raw`), and `check_version` has accepted its
                // version.
                (unsafe { *managed.tensor() }, header)
            }
        };
        // SAFETY: the code that made `managed` promised valid shape and strides while `managed` exists
        // (`Managed::from_raw`).
        let array = unsafe { described(&tensor, header) }?;
        let says_readonly = header.version.is_some();
        Ok(Self { array, says_readonly, _memory: Arc::new(Managed { _tensor: managed }) })
    }

    /// The elements in C order: the tensor's own memory if C-contiguous and `is_pageable`, else a copy in pageable
    /// memory. `None` if there are no elements.
    pub fn compact(&self, is_pageable: bool) -> Result<Option<Arc<HostMemory>>> {
        let Some(plan) = buffer::plan(&self.array)? else { return Ok(None) };
        if !is_pageable || !self.array.layout().is_contiguous() {
            return self.copied(&plan).map(|copy| Some(Arc::new(copy)));
        }
        let length = usize::try_from(self.array.nbytes()).unwrap_or(usize::MAX);
        let start = NonNull::new(self.array.ptr() as *mut u8);
        let start = start.ok_or_else(|| Error::new(Kind::NullData, "a NULL pointer"))?;
        // SAFETY: the tensor is contiguous, so its bytes begin at its first element, and the clone keeps them alive.
        // The Python caller asked for a copy on the GPU, and must keep other code from accessing the host array until
        // that call returns.
        let memory = unsafe { HostMemory::kept(start, length, Box::new(self.clone())) };
        Ok(Some(Arc::new(memory)))
    }

    pub fn copy(&self) -> Result<Self> {
        let memory = match buffer::plan(&self.array)? {
            Some(plan) => Some(self.copied(&plan)?),
            None => None,
        };
        let address = memory.as_ref().map_or(0, HostMemory::address);
        let array = buffer::described(&self.array, address, self.array.device())?;
        Ok(Self { array, says_readonly: true, _memory: Arc::new(memory) })
    }

    fn copied(&self, plan: &CopyPlan) -> Result<HostMemory> {
        let bytes = self.array.nbytes();
        let none = || Error::new(Kind::HostMemory, format!("{bytes} bytes"));
        let memory = usize::try_from(bytes).ok().and_then(HostMemory::new).ok_or_else(none)?;
        plan.take(|block, from, to| {
            let source = self.array.ptr().wrapping_add_signed(from);
            // SAFETY: each block of the plan lies inside the array, whose memory `_memory` keeps alive. The Python
            // caller asked for a copy, and must keep other code from writing to the array meanwhile.
            let taken = unsafe { memory.take_in(block, source, to.unsigned_abs()) };
            taken.ok_or_else(none)
        })?;
        plan.repeat(|block, from, to| {
            memory.repeat(block, from.unsigned_abs(), to.unsigned_abs()).ok_or_else(none)
        })?;
        Ok(memory)
    }
}

/// Fails if the tensor's device is not the CPU, or if the tensor is marked as a copy.
///
/// # Safety
///
/// The contract of [`decode::descriptor`].
unsafe fn described(tensor: &DLTensor, header: Header) -> Result<Descriptor> {
    if tensor.device.device_type != DLDeviceType::CPU {
        let got = format!("({}, {})", tensor.device.device_type.0, tensor.device.device_id);
        return Err(Error::at(Kind::DlDevice, "__dlpack__", got));
    }
    decode::check_own(header.flags)?;
    let device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 };
    // SAFETY: the caller promises that shape and strides are as `descriptor` requires.
    unsafe { decode::descriptor(&DLTensor { device, ..*tensor }, header) }
}
