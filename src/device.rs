//! Device kinds and ordinals: which memory both protocols can name.
//!
//! DLPack names memory by `(device_type, device_id)`; the CUDA Array Interface names no device, the
//! pointer does. Only memory that CUDA can reach goes through: device, pinned host, managed.

use crate::error::{Error, Kind, Result};

/// The kinds of CUDA memory, by their `DLDeviceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// `kDLCUDA`, 2: memory of one device.
    Device,
    /// `kDLCUDAHost`, 3: pinned host memory.
    Host,
    /// `kDLCUDAManaged`, 13: managed memory.
    Managed,
}

impl MemoryKind {
    /// Its `DLDeviceType`.
    pub const fn code(self) -> u32 {
        match self {
            Self::Device => 2,
            Self::Host => 3,
            Self::Managed => 13,
        }
    }
}

/// Where an array's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The ordinal that DLPack shows: 0 for pinned and managed memory, as its header asks.
    pub id: i32,
}

impl Device {
    /// Plain device memory of the device `id`.
    pub const fn cuda(id: i32) -> Self {
        Self { kind: MemoryKind::Device, id }
    }

    /// From DLPack's pair; refuses what CUDA cannot reach.
    pub fn from_dlpack(code: u32, id: i32) -> Result<Self> {
        let kind = match code {
            2 => MemoryKind::Device,
            3 => MemoryKind::Host,
            13 => MemoryKind::Managed,
            1 => return Err(Error::new(Kind::CpuMemory, format!("CPU memory (1, {id})"))),
            other => return Err(Error::new(Kind::DeviceKind, format!("({other}, {id})"))),
        };
        if id < 0 {
            return Err(Error::new(Kind::DeviceOrdinal, id.to_string()));
        }
        Ok(Self { kind, id })
    }
}
