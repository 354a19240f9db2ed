//! The driver calls that share memory and events with other processes of the machine.
//!
//! The bridge shares memory in two ways: by the handle of a `cuMemAlloc` allocation ([Interprocess Communication]), or
//! by a memory pool that is exported as a file descriptor ([Stream-Ordered Memory Allocator]). In both ways the
//! exporter must keep the memory until each importer has closed or freed it. The callers of these methods see to that.
//!
//! [Interprocess Communication]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication
//! [Stream-Ordered Memory Allocator]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication-support

use super::codes::{NOT_SUPPORTED, failed};
use super::event::Event;
use crate::device::Context;
use crate::error::Result;
use crate::stream::Alive;

/// The bytes by which another process opens memory or an event. Only the driver knows what they mean.
pub type Name = [u8; 64];

/// How an allocation can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The address of its first byte, and its length in bytes.
    pub range: (u64, u64),
    /// Whether [`Ipc::name_memory`] accepts the allocation.
    pub is_legacy: bool,
    /// The allocation's memory pool, if it has one. [`Ipc::export_pool`] fails if the pool cannot be exported.
    pub pool: Option<u64>,
}

/// The part of [`Driver`](super::Driver) that reaches other processes. Each method stands for the call that it names.
/// Except for [`Ipc::uuid`], callers make the GPU's primary context current first. By default a driver supports none of
/// the calls.
#[allow(unused_variables, reason = "what refuses a call looks at nothing")]
pub trait Ipc {
    /// `cuDeviceGetUuid`: the GPU's UUID. It is the same in every process, while the ordinal may differ.
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        Err(failed("cuDeviceGetUuid", NOT_SUPPORTED))
    }

    /// `cuPointerGetAttributes`: the allocation that contains the address `pointer`, and how it can be shared.
    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        Err(failed("cuPointerGetAttributes", NOT_SUPPORTED))
    }

    /// `cuIpcGetMemHandle`. `pointer` is the address of the allocation's first byte.
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

    /// `cuIpcGetEventHandle`, for an event from [`Ipc::create_shared_event`].
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

    /// `cuStreamCreate` with `CU_STREAM_NON_BLOCKING`: the handle of a new stream, for
    /// [`OwnStream`](super::own_stream::OwnStream).
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

    /// `cuMemPoolExportPointer`. `pointer` is the address of the first byte of an allocation from a pool.
    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuMemPoolExportPointer", NOT_SUPPORTED))
    }

    /// `cuMemPoolImportPointer`, for an imported pool. The importer frees the memory by
    /// [`Copies::free_on`](super::copies::Copies::free_on).
    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        Err(failed("cuMemPoolImportPointer", NOT_SUPPORTED))
    }
}
