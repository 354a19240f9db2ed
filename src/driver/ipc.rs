//! The driver calls that share memory and events with other processes of the machine.
//!
//! CUDA has two ways: handles of `cuMemAlloc` allocations, and memory pools exported as file descriptors ([Interprocess
//! Communication], [Stream-Ordered Memory Allocator]). With both, the exporter must keep the memory until each importer
//! has closed it. The callers of these methods see to that.
//!
//! [Interprocess Communication]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication
//! [Stream-Ordered Memory Allocator]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication-support

use super::codes::{NOT_SUPPORTED, failed};
use super::event::Event;
use crate::device::Context;
use crate::error::Result;
use crate::stream::Alive;

/// The driver's name for memory or an event in another process. Only the driver reads these bytes.
pub type Name = [u8; 64];

/// How an allocation can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The address of its first byte, and its length in bytes.
    pub range: (u64, u64),
    /// Whether [`Ipc::name_memory`] accepts the allocation.
    pub is_legacy: bool,
    /// The allocation's memory pool, if it has one. [`Ipc::export_pool`] shows whether the pool can be exported.
    pub pool: Option<u64>,
}

/// The part of [`Driver`](super::Driver) that reaches other processes. Each method stands for the call that it names,
/// made in the current context. By default a driver supports none of them.
#[allow(unused_variables, reason = "what refuses a call looks at nothing")]
pub trait Ipc {
    /// `cuDeviceGetUuid`: a GPU's name, the same in every process, whatever its ordinal there.
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        Err(failed("cuDeviceGetUuid", NOT_SUPPORTED))
    }

    /// `cuPointerGetAttributes`: how the memory at `pointer` can be shared.
    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        Err(failed("cuPointerGetAttributes", NOT_SUPPORTED))
    }

    /// `cuIpcGetMemHandle`, for the first byte of an allocation.
    fn name_memory(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuIpcGetMemHandle", NOT_SUPPORTED))
    }

    /// `cuIpcOpenMemHandle`, for another process's allocation. May block.
    fn open_memory(&self, name: &Name) -> Result<u64> {
        Err(failed("cuIpcOpenMemHandle", NOT_SUPPORTED))
    }

    /// `cuIpcCloseMemHandle`. All work on the memory must be done. May block.
    fn close_memory(&self, pointer: u64) -> Result<()> {
        Err(failed("cuIpcCloseMemHandle", NOT_SUPPORTED))
    }

    /// `cuEventCreate` with `CU_EVENT_INTERPROCESS`, in `context`, which is current.
    fn create_shared_event(&self, context: Context) -> Result<Event> {
        Err(failed("cuEventCreate", NOT_SUPPORTED))
    }

    /// `cuIpcGetEventHandle`, for an event of this process.
    fn name_event(&self, event: Event) -> Result<Name> {
        Err(failed("cuIpcGetEventHandle", NOT_SUPPORTED))
    }

    /// `cuIpcOpenEventHandle`, in `context`, which is current.
    fn open_event(&self, name: &Name, context: Context) -> Result<Event> {
        Err(failed("cuIpcOpenEventHandle", NOT_SUPPORTED))
    }

    /// `cuEventDestroy`, for an event from [`Ipc::open_event`].
    fn close_event(&self, event: Event) -> Result<()> {
        Err(failed("cuEventDestroy", NOT_SUPPORTED))
    }

    /// `cuStreamCreate` with `CU_STREAM_NON_BLOCKING`.
    fn create_own_stream(&self) -> Result<u64> {
        Err(failed("cuStreamCreate", NOT_SUPPORTED))
    }

    /// `cuMemPoolCreate`, for GPU memory that can be exported as a file descriptor.
    fn create_pool(&self, ordinal: i32) -> Result<u64> {
        Err(failed("cuMemPoolCreate", NOT_SUPPORTED))
    }

    /// `cuMemPoolExportToShareableHandle`: a file descriptor, which the caller must close.
    fn export_pool(&self, pool: u64) -> Result<i32> {
        Err(failed("cuMemPoolExportToShareableHandle", NOT_SUPPORTED))
    }

    /// `cuMemPoolImportFromShareableHandle`. The caller keeps the file descriptor.
    fn import_pool(&self, file: i32) -> Result<u64> {
        Err(failed("cuMemPoolImportFromShareableHandle", NOT_SUPPORTED))
    }

    /// `cuMemAllocFromPoolAsync`. [`Copies::free_on`](super::copies::Copies::free_on) gives the memory back. May block.
    fn allocate_from(&self, pool: u64, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        Err(failed("cuMemAllocFromPoolAsync", NOT_SUPPORTED))
    }

    /// `cuMemPoolExportPointer`, for a pool's allocation.
    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuMemPoolExportPointer", NOT_SUPPORTED))
    }

    /// `cuMemPoolImportPointer`, for an imported pool. The importer frees the memory like its own.
    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        Err(failed("cuMemPoolImportPointer", NOT_SUPPORTED))
    }
}
