//! Tensors in the host's own memory, which only copies are made of.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use dlpark::DlpackFlags;
use dlpark::ffi::{DLDevice, DLDeviceType, DLTensor};
use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::capsule;
use super::decode::{self, Header};
use crate::copy::Plan;
use crate::descriptor::Descriptor;
use crate::driver::host::HostMemory;
use crate::error::{Error, Kind, Result};

/// A tensor that was taken out of its capsule.
pub struct HostTensor {
    /// What it is, but for its device, which says nothing.
    pub array: Descriptor,
    /// Whether it may not be written.
    pub readonly: bool,
    _managed: ImportedDlpack,
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTensor").field("array", &self.array).finish_non_exhaustive()
    }
}

impl HostTensor {
    /// Consumes `capsule`. Refuses a tensor that is elsewhere than in memory of the host, whose capsule is consumed
    /// all the same.
    pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let managed = capsule::take(capsule)?;
        let (tensor, header) = match &managed {
            // SAFETY: the structure is initialised (`Managed::from_raw`), and lives as long as `managed`.
            ImportedDlpack::Legacy(managed) => (unsafe { *managed.tensor() }, Header::LEGACY),
            ImportedDlpack::Versioned(managed) => {
                decode::check_version(managed.version())?;
                let header = Header { version: Some(managed.version()), flags: managed.flags() };
                // SAFETY: as above, and of a version that has these fields, checked above.
                (unsafe { *managed.tensor() }, header)
            }
        };
        if tensor.device.device_type != DLDeviceType::CPU {
            let got = format!("({}, {})", tensor.device.device_type.0, tensor.device.device_id);
            return Err(Error::at(Kind::DlDevice, "__dlpack__", got).into());
        }
        let device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 };
        let tensor = DLTensor { device, ..tensor };
        // SAFETY: the tensor's maker vouched for its shape and strides (`Managed::from_raw`), and `managed` keeps them.
        let array = unsafe { decode::descriptor(&tensor, header) }?;
        Ok(Self {
            readonly: header.flags.contains(DlpackFlags::READ_ONLY),
            array,
            _managed: managed,
        })
    }

    /// Its bytes side by side: its own memory where that is so, else a copy, by `plan`.
    pub fn compact(self, plan: &Plan) -> Result<HostMemory> {
        if !self.array.layout().is_contiguous() {
            return self.copied(plan);
        }
        let length = usize::try_from(self.array.nbytes()).unwrap_or(usize::MAX);
        let start = NonNull::new(self.array.ptr() as *mut u8);
        let start = start.ok_or_else(|| Error::new(Kind::NullData, "a NULL pointer"))?;
        // SAFETY: the tensor is contiguous, so its bytes are those from its first element on, and it is kept. Its
        // producer's own reads and writes are the caller's to order, who asks for a copy of an array on the host.
        Ok(unsafe { HostMemory::kept(start, length, Box::new(self)) })
    }

    /// A copy of its bytes, side by side, by `plan`.
    pub fn copied(&self, plan: &Plan) -> Result<HostMemory> {
        let bytes = self.array.nbytes();
        let none = || Error::new(Kind::HostMemory, format!("{bytes} bytes"));
        let memory = usize::try_from(bytes).ok().and_then(HostMemory::new).ok_or_else(none)?;
        plan.take(|block, from, to| {
            let source = self.array.ptr().wrapping_add_signed(from);
            // SAFETY: a block of the plan lies in the array, which `_managed` keeps; as in `compact`.
            let taken = unsafe { memory.take_in(block, source, to.unsigned_abs()) };
            taken.ok_or_else(none)
        })?;
        plan.repeat(|block, from, to| {
            memory.repeat(block, from.unsigned_abs(), to.unsigned_abs()).ok_or_else(none)
        })?;
        Ok(memory)
    }
}
