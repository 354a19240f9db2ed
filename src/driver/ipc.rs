//! The driver calls that share memory and events with other processes of the machine.
//!
//! The bridge shares memory in two ways: by the handle of a `cuMemAlloc` allocation ([Interprocess Communication]), or
//! by a memory pool that is exported as a file descriptor ([Stream-Ordered Memory Allocator][pools]). The exporting
//! process must keep the memory until each importing process has closed or freed it. No method here checks this rule.
//!
//! [Interprocess Communication]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication
//! [pools]: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#interprocess-communication-support

use super::codes::{NOT_SUPPORTED, failed};
use super::event::Event;
use crate::device::Context;
use crate::error::Result;
use crate::stream::Alive;

/// The bytes by which another process opens memory or an event.
pub type Name = [u8; 64];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The address of the first byte, and the length in bytes.
    pub range: (u64, u64),
    pub is_legacy: bool,
    pub pool: Option<u64>,
}

/// The part of [`Driver`](super::Driver) that reaches other processes. Each default method fails with
/// `CUDA_ERROR_NOT_SUPPORTED`. Except for [`Ipc::uuid`], the GPU's primary context must be current.
#[allow(unused_variables, reason = "what refuses a call looks at nothing")]
pub trait Ipc {
    /// A GPU's UUID is the same in every process; its ordinal may differ.
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        Err(failed("cuDeviceGetUuid", NOT_SUPPORTED))
    }

    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        Err(failed("cuPointerGetAttributes", NOT_SUPPORTED))
    }

    /// `pointer` must be the address of the allocation's first byte.
    fn name_memory(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuIpcGetMemHandle", NOT_SUPPORTED))
    }

    /// Returns the memory's address in this process. May block.
    fn open_memory(&self, name: &Name) -> Result<u64> {
        Err(failed("cuIpcOpenMemHandle", NOT_SUPPORTED))
    }

    /// All work of this process on the memory must be done before the call. May block.
    fn close_memory(&self, pointer: u64) -> Result<()> {
        Err(failed("cuIpcCloseMemHandle", NOT_SUPPORTED))
    }

    fn create_shared_event(&self, context: Context) -> Result<Event> {
        Err(failed("cuEventCreate", NOT_SUPPORTED))
    }

    fn name_event(&self, event: Event) -> Result<Name> {
        Err(failed("cuIpcGetEventHandle", NOT_SUPPORTED))
    }

    fn open_event(&self, name: &Name, context: Context) -> Result<Event> {
        Err(failed("cuIpcOpenEventHandle", NOT_SUPPORTED))
    }

    fn close_event(&self, event: Event) -> Result<()> {
        Err(failed("cuEventDestroy", NOT_SUPPORTED))
    }

    /// Makes a non-blocking stream in the current context.
    fn create_own_stream(&self) -> Result<u64> {
        Err(failed("cuStreamCreate", NOT_SUPPORTED))
    }

    fn create_pool(&self, ordinal: i32) -> Result<u64> {
        Err(failed("cuMemPoolCreate", NOT_SUPPORTED))
    }

    /// Returns a file descriptor, which the caller must close.
    fn export_pool(&self, pool: u64) -> Result<i32> {
        Err(failed("cuMemPoolExportToShareableHandle", NOT_SUPPORTED))
    }

    /// The caller must still close `file`.
    fn import_pool(&self, file: i32) -> Result<u64> {
        Err(failed("cuMemPoolImportFromShareableHandle", NOT_SUPPORTED))
    }

    /// Free the memory by [`Copies::free_on`](super::copies::Copies::free_on). May block.
    fn allocate_from(&self, pool: u64, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        Err(failed("cuMemAllocFromPoolAsync", NOT_SUPPORTED))
    }

    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        Err(failed("cuMemPoolExportPointer", NOT_SUPPORTED))
    }

    /// `pool` must be an imported pool. Free the memory by [`Copies::free_on`](super::copies::Copies::free_on).
    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        Err(failed("cuMemPoolImportPointer", NOT_SUPPORTED))
    }
}
