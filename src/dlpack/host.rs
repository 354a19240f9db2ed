//! Tensors in the host's own memory: read as those of a GPU are, and copied by the host itself.
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
use crate::copy::Plan;
use crate::descriptor::Descriptor;
use crate::driver::host::HostMemory;
use crate::error::{Error, Kind, Result};

/// An array in the host's memory, and what keeps that.
#[derive(Debug, Clone)]
pub struct HostTensor {
    /// What it is, but for its device, which says nothing.
    pub array: Descriptor,
    /// Whether it says if it may be written: a legacy tensor has no flag for that.
    pub says_readonly: bool,
    _memory: Arc<dyn fmt::Debug + Send + Sync>,
}

/// A managed tensor, for as long as its memory is used.
struct Managed {
    _tensor: ImportedDlpack,
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed").finish_non_exhaustive()
    }
}

impl HostTensor {
    /// Consumes `capsule`, unless its tensor is refused by what it says of its version and device.
    pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        match capsule::read(capsule) {
            Ok(Held { array, .. }) => {
                let device = array.device();
                let got = format!("({}, {})", device.kind.code(), device.id);
                Err(Error::at(Kind::DlDevice, "__dlpack__", got).into())
            }
            Err(error) if error.kind() == Kind::CpuMemory => Ok(Self::of(capsule::take(capsule)?)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a tensor that is owned. Refuses one that is elsewhere than in memory of the host, and a copy.
    pub fn of(managed: ImportedDlpack) -> Result<Self> {
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
            return Err(Error::at(Kind::DlDevice, "__dlpack__", got));
        }
        decode::check_own(header.flags)?;
        let device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 };
        let tensor = DLTensor { device, ..tensor };
        // SAFETY: the tensor's maker vouched for its shape and strides (`Managed::from_raw`), and `managed` keeps them.
        let array = unsafe { decode::descriptor(&tensor, header) }?;
        let says_readonly = header.version.is_some();
        Ok(Self { array, says_readonly, _memory: Arc::new(Managed { _tensor: managed }) })
    }

    /// Its bytes side by side: its own memory where that is so, else a copy; `None` of no bytes.
    pub fn compact(&self) -> Result<Option<Arc<HostMemory>>> {
        let Some(plan) = buffer::plan(&self.array)? else { return Ok(None) };
        if !self.array.layout().is_contiguous() {
            return self.copied(&plan).map(|copy| Some(Arc::new(copy)));
        }
        let length = usize::try_from(self.array.nbytes()).unwrap_or(usize::MAX);
        let start = NonNull::new(self.array.ptr() as *mut u8);
        let start = start.ok_or_else(|| Error::new(Kind::NullData, "a NULL pointer"))?;
        // SAFETY: the tensor is contiguous, so its bytes are those from its first element on, and it is kept. Its
        // producer's own reads and writes are the caller's to order, who asks for a copy of an array on the host.
        let memory = unsafe { HostMemory::kept(start, length, Box::new(self.clone())) };
        Ok(Some(Arc::new(memory)))
    }

    /// A copy in memory of its own, C-contiguous, which may be written.
    pub fn copy(&self) -> Result<Self> {
        let memory = match buffer::plan(&self.array)? {
            Some(plan) => Some(self.copied(&plan)?),
            None => None,
        };
        let address = memory.as_ref().map_or(0, HostMemory::address);
        let array = buffer::described(&self.array, address, self.array.device())?;
        Ok(Self { array, says_readonly: true, _memory: Arc::new(memory) })
    }

    /// A copy of its bytes, side by side, by `plan`.
    fn copied(&self, plan: &Plan) -> Result<HostMemory> {
        let bytes = self.array.nbytes();
        let none = || Error::new(Kind::HostMemory, format!("{bytes} bytes"));
        let memory = usize::try_from(bytes).ok().and_then(HostMemory::new).ok_or_else(none)?;
        plan.take(|block, from, to| {
            let source = self.array.ptr().wrapping_add_signed(from);
            // SAFETY: a block of the plan lies in the array, which `_memory` keeps; as in `compact`.
            let taken = unsafe { memory.take_in(block, source, to.unsigned_abs()) };
            taken.ok_or_else(none)
        })?;
        plan.repeat(|block, from, to| {
            memory.repeat(block, from.unsigned_abs(), to.unsigned_abs()).ok_or_else(none)
        })?;
        Ok(memory)
    }
}
