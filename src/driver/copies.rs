//! The driver calls for copies: allocations, frees, copies of blocks, and the host's wait for a stream.

use std::sync::Arc;

use super::Context;
use super::host::HostMemory;
use crate::copy_plan::Block;
use crate::error::Result;
use crate::stream::Alive;

/// The kinds of memory that a block is copied from and to.
#[derive(Debug, Clone, Copy)]
pub enum CopyRoute<'a> {
    /// Between addresses that the stream's device reaches.
    Device,
    /// From the memory of one device to that of another.
    Peer {
        /// The context of the source memory; the primary context of its device if the driver names none.
        from: Context,
        /// The context in which the target was allocated.
        to: Context,
    },
    /// Into this host memory.
    Host(&'a Arc<HostMemory>),
    /// From this host memory. The block must be a single row. If the memory is pageable, the driver has read the row
    /// when the call returns.
    FromHost(&'a Arc<HostMemory>),
}

/// One block to copy.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// The address of the block's first byte in the source.
    pub source: u64,
    /// The address to which the block's first byte is copied.
    pub target: u64,
    /// The block's size, and its pitches in the source and the target.
    pub block: Block,
    /// The kinds of memory of the source and the target.
    pub route: CopyRoute<'a>,
}

/// The driver call that carries out a [`Transfer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyCall {
    /// `cuMemcpyAsync`.
    Linear,
    /// `cuMemcpyDtoHAsync`.
    ToHost,
    /// `cuMemcpyHtoDAsync`.
    FromHost,
    /// `cuMemcpyPeerAsync`.
    Peer,
    /// `cuMemcpy2DAsync`.
    Rows,
    /// `cuMemcpy3DAsync`.
    Planes,
    /// `cuMemcpy3DPeerAsync`, also for the rows of a single plane: CUDA has no `cuMemcpy2DPeerAsync`.
    PeerPlanes,
}

impl Transfer<'_> {
    /// The driver call for this transfer.
    pub const fn call(&self) -> CopyCall {
        match (self.block.rows, self.block.planes, self.route) {
            (1, 1, CopyRoute::Device) => CopyCall::Linear,
            (1, 1, CopyRoute::Host(_)) => CopyCall::ToHost,
            (1, 1, CopyRoute::FromHost(_)) => CopyCall::FromHost,
            (1, 1, CopyRoute::Peer { .. }) => CopyCall::Peer,
            (_, _, CopyRoute::Peer { .. }) => CopyCall::PeerPlanes,
            (_, 1, _) => CopyCall::Rows,
            _ => CopyCall::Planes,
        }
    }
}

/// The part of [`Driver`](super::Driver) that makes copies. Every call *may block*. A call that would spoil a capture
/// of another stream runs in the relaxed mode of `cuThreadExchangeStreamCaptureMode`.
pub trait Copies {
    /// `cuMemAllocAsync`: `bytes` bytes on the device of `stream`. Work queued on `stream` from now on may use them.
    /// Fails for 0 bytes.
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64>;

    /// `cuMemFreeAsync`: frees `pointer` after the work queued on `stream`.
    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()>;

    /// `cuMemAlloc` in the current context, for a device without memory pools, on which
    /// [`allocate`](Copies::allocate) returns `CUDA_ERROR_NOT_SUPPORTED`. Every stream may use the memory from now
    /// on.
    fn allocate_now(&self, bytes: u64) -> Result<u64>;

    /// `cuMemFree`: the host waits for the work that may use the memory, then frees `pointer`.
    fn free_now(&self, pointer: u64) -> Result<()>;

    /// Queues on `stream` the driver call that [`Transfer::call`] chooses.
    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamSynchronize`: the host waits for the work queued on `stream`.
    fn wait_stream(&self, stream: Alive<'_>) -> Result<()>;
}
