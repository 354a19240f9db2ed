//! Where memory is, and where streams are: two things that differ.
//!
//! DLPack names memory by `(device_type, device_id)`, a [`Device`]; the CUDA Array Interface names no
//! device, the pointer does. Only memory that CUDA can reach goes through: device, pinned host, managed.
//! Streams live in a context of one GPU, a [`Place`]. Managed and pinned memory is worked on from the
//! streams of any GPU, so neither is ever made from the other's number alone: a place comes from what the
//! driver knows of a pointer, from the GPU that device memory is on, or from whom the stream belongs to.

use std::num::NonZeroUsize;

use crate::error::{Error, Kind, Result};

/// The kinds of CUDA memory, by their `DLDeviceType`.
///
/// # Examples
///
/// ```
/// assert_eq!(cai_bridge::MemoryKind::Managed.code(), 13);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
///
/// # Examples
///
/// ```
/// use cai_bridge::{Device, MemoryKind};
///
/// assert_eq!(Device::cuda(1), Device::new(MemoryKind::Device, 1));
/// assert_eq!(Device::from_dlpack(13, 0)?.kind, MemoryKind::Managed);
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Device {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The ordinal that DLPack shows: 0 for pinned and managed memory, as its header asks.
    pub id: i32,
}

impl Device {
    /// Memory of a kind, by the ordinal that DLPack shows.
    pub const fn new(kind: MemoryKind, id: i32) -> Self {
        Self { kind, id }
    }

    /// Plain device memory of the device `id`.
    pub const fn cuda(id: i32) -> Self {
        Self { kind: MemoryKind::Device, id }
    }

    /// From DLPack's pair; refuses what CUDA cannot reach.
    #[inline(always)]
    pub fn from_dlpack(code: u32, id: i32) -> Result<Self> {
        let kind = match code {
            2 => MemoryKind::Device,
            3 => MemoryKind::Host,
            13 => MemoryKind::Managed,
            1 => return Err(Error::new(Kind::CpuMemory, format!("CPU memory (1, {id})"))),
            other => return Err(Error::new(Kind::DeviceKind, format!("({other}, {id})"))),
        };
        let device = Self { kind, id };
        device.check()?;
        Ok(device)
    }

    /// Refuses a negative number.
    #[inline(always)]
    pub(crate) fn check(self) -> Result<()> {
        if self.id < 0 {
            return Err(Error::new(Kind::DeviceOrdinal, self.id.to_string()));
        }
        Ok(())
    }
}

/// A context of the driver, `CUcontext`.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
///
/// let context = NonZeroUsize::new(0x5500).map(cai_bridge::Context);
/// assert!(context.is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Context(pub NonZeroUsize);

/// What the driver knows of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// The GPU whose context owns it.
    pub ordinal: i32,
    /// Device, pinned or managed.
    pub kind: MemoryKind,
    /// The context that owns it; managed and stream-ordered memory may name none.
    pub context: Option<Context>,
}

/// Where streams live: a context of a GPU.
///
/// # Examples
///
/// ```
/// use cai_bridge::Place;
///
/// assert_eq!(Place::gpu(1), Place::new(1, None)); // the primary context
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Place {
    /// The ordinal of the GPU.
    pub ordinal: i32,
    /// The context; `None` for the GPU's primary one.
    pub context: Option<Context>,
}

impl Place {
    /// The primary context of a GPU.
    pub const fn gpu(ordinal: i32) -> Self {
        Self { ordinal, context: None }
    }

    /// A context of a GPU; `None` for the primary one.
    pub const fn new(ordinal: i32, context: Option<Context>) -> Self {
        Self { ordinal, context }
    }

    /// The context that owns memory of which the driver knows that.
    #[doc(hidden)]
    pub const fn owning(found: Pointer) -> Self {
        Self { ordinal: found.ordinal, context: found.context }
    }
}
