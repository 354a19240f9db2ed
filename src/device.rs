//! A [`Device`] says where memory is; a [`Place`] says where a stream is.
//!
//! Managed and pinned memory is not the memory of one GPU, so its [`Device`] gives no place.

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
    /// The kind's `DLDeviceType`.
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
    /// The ordinal in DLPack. DLPack's header asks for 0 for pinned and managed memory; the crate does not check the 0.
    pub id: i32,
}

impl Device {
    /// Memory of this kind, with DLPack's ordinal `id`, which is not checked here.
    pub const fn new(kind: MemoryKind, id: i32) -> Self {
        Self { kind, id }
    }

    /// Device memory of the device `id`.
    pub const fn cuda(id: i32) -> Self {
        Self { kind: MemoryKind::Device, id }
    }

    /// The device for DLPack's device type `code` and ordinal `id`. Fails for a kind of memory that [`MemoryKind`]
    /// lacks, and for a negative `id`.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerAttributes {
    /// The ordinal of the GPU for which the memory was allocated or registered.
    pub ordinal: i32,
    pub kind: MemoryKind,
    /// The context that owns the memory. Managed and stream-ordered memory can have none.
    pub context: Option<Context>,
}

/// Where a stream is: a context of a GPU.
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
    /// The context; `None` for the GPU's primary context.
    pub context: Option<Context>,
}

impl Place {
    /// The primary context of a GPU.
    pub const fn gpu(ordinal: i32) -> Self {
        Self { ordinal, context: None }
    }

    /// A context of a GPU; `None` means the primary one.
    pub const fn new(ordinal: i32, context: Option<Context>) -> Self {
        Self { ordinal, context }
    }

    /// The context that owns the memory; if the driver named none, the primary context of the memory's GPU.
    #[doc(hidden)]
    pub const fn owning(found: PointerAttributes) -> Self {
        Self { ordinal: found.ordinal, context: found.context }
    }
}
