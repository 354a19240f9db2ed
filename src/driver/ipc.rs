//! The calls that hand memory and events to another process of the machine, and what is opened of it.
//!
//! CUDA has two ways: handles of the allocations of `cuMemAlloc`, and memory pools that are exported as file
//! descriptors ([Interprocess Communication], [Stream-Ordered Memory Allocator]). Both have the exporter keep the memory until
//! each importer has closed it. Who keeps what, and for how long, is the caller's to say.
//!
//! [Interprocess Communication]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication
//! [Stream-Ordered Memory Allocator]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication-support

use super::codes::{NOT_SUPPORTED, failed};
use super::event::Event;
use crate::device::Context;
use crate::error::Result;
use crate::stream::Alive;

/// What the driver calls memory or an event in another process: bytes that only it reads.
pub type Name = [u8; 64];

/// How the allocation at an address can be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Its first byte, and how many it has.
    pub range: (u64, u64),
    /// Whether [`Ipc::name_memory`] takes it.
    pub is_legacy: bool,
    /// Its memory pool, if it is of one. [`Ipc::export_pool`] tells whether that can be exported.
    pub pool: Option<u64>,
}

/// The part of [`Driver`](super::Driver) that reaches other processes. Each method is one call, made in the current context.
/// A driver that does not say otherwise has none of them.
#[allow(unused_variables, reason = "what refuses a call looks at nothing")]
pub trait Ipc {
    /// `cuDeviceGetUuid`: a GPU's name, the same in each process, whatever its ordinal there.
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        Err(failed("cuDeviceGetUuid", NOT_SUPPORTED))
    }

    /// `cuPointerGetAttributes`: how the memory at `pointer` can be handed on.
    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        Err(failed("cuPointerGetAttributes", NOT_SUPPORTED))
    }

    /// `cuIpcGetMemHandle`, of the first byte of an allocation.
    fn name_memory(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuIpcGetMemHandle", NOT_SUPPORTED))
    }

    /// `cuIpcOpenMemHandle`, of another process's allocation. May block.
    fn open_memory(&self, name: &Name) -> Result<u64> {
        Err(failed("cuIpcOpenMemHandle", NOT_SUPPORTED))
    }

    /// `cuIpcCloseMemHandle`. Its users' work is done. May block.
    fn close_memory(&self, pointer: u64) -> Result<()> {
        Err(failed("cuIpcCloseMemHandle", NOT_SUPPORTED))
    }

    /// `cuEventCreate` with `CU_EVENT_INTERPROCESS`, in `context`, which is current.
    fn create_shared_event(&self, context: Context) -> Result<Event> {
        Err(failed("cuEventCreate", NOT_SUPPORTED))
    }

    /// `cuIpcGetEventHandle`, of an event of this process.
    fn name_event(&self, event: Event) -> Result<Name> {
        Err(failed("cuIpcGetEventHandle", NOT_SUPPORTED))
    }

    /// `cuIpcOpenEventHandle`, in `context`, which is current.
    fn open_event(&self, name: &Name, context: Context) -> Result<Event> {
        Err(failed("cuIpcOpenEventHandle", NOT_SUPPORTED))
    }

    /// `cuEventDestroy`, of an event that was opened.
    fn close_event(&self, event: Event) -> Result<()> {
        Err(failed("cuEventDestroy", NOT_SUPPORTED))
    }

    /// `cuStreamCreate` with `CU_STREAM_NON_BLOCKING`.
    fn create_own_stream(&self) -> Result<u64> {
        Err(failed("cuStreamCreate", NOT_SUPPORTED))
    }

    /// `cuMemPoolCreate`, of memory of a GPU that can be exported as a file descriptor.
    fn create_pool(&self, ordinal: i32) -> Result<u64> {
        Err(failed("cuMemPoolCreate", NOT_SUPPORTED))
    }

    /// `cuMemPoolExportToShareableHandle`: a file descriptor, which is the caller's to close.
    fn export_pool(&self, pool: u64) -> Result<i32> {
        Err(failed("cuMemPoolExportToShareableHandle", NOT_SUPPORTED))
    }

    /// `cuMemPoolImportFromShareableHandle`. The file descriptor stays the caller's.
    fn import_pool(&self, file: i32) -> Result<u64> {
        Err(failed("cuMemPoolImportFromShareableHandle", NOT_SUPPORTED))
    }

    /// `cuMemAllocFromPoolAsync`. [`Copies::free_on`](super::copies::Copies::free_on) gives the memory back. May block.
    fn allocate_from(&self, pool: u64, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        Err(failed("cuMemAllocFromPoolAsync", NOT_SUPPORTED))
    }

    /// `cuMemPoolExportPointer`, of an allocation of a pool.
    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuMemPoolExportPointer", NOT_SUPPORTED))
    }

    /// `cuMemPoolImportPointer`, of a pool that was imported. The importer frees it as its own memory.
    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        Err(failed("cuMemPoolImportPointer", NOT_SUPPORTED))
    }
}
