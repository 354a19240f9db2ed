//! The driver calls for copies: allocations, frees, copies of blocks, and the host's wait for a stream.

use std::sync::Arc;

use super::Context;
use super::host::HostMemory;
use crate::copy_plan::Block;
use crate::error::Result;
use crate::stream::Alive;

#[derive(Debug, Clone, Copy)]
pub enum CopyRoute<'a> {
    /// Between two addresses that the stream's GPU can access.
    Device,
    Peer {
        from: Context,
        to: Context,
    },
    Host(&'a Arc<HostMemory>),
    /// From this host memory. The block must be a single row.
    FromHost(&'a Arc<HostMemory>),
}

/// One block to copy. `source` and `target` are addresses of the block's first byte.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    pub source: u64,
    pub target: u64,
    pub block: Block,
    pub route: CopyRoute<'a>,
}

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

/// The part of [`Driver`](super::Driver) that makes copies. Every call *may block*.
pub trait Copies {
    /// `cuMemAllocAsync`. Work queued on `stream` from now on may use the memory. Fails for 0 bytes.
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64>;

    /// `cuMemFreeAsync`: frees `pointer` after the work queued on `stream`.
    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()>;

    /// `cuMemAlloc` in the current context. No stream needs to wait before it uses the memory.
    fn allocate_now(&self, bytes: u64) -> Result<u64>;

    /// `cuMemFree`: the host waits for the work that may use the memory, then frees `pointer`.
    fn free_now(&self, pointer: u64) -> Result<()>;

    /// Queues on `stream` the driver call that [`Transfer::call`] chooses.
    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamSynchronize`: the host waits for the work queued on `stream`.
    fn wait_stream(&self, stream: Alive<'_>) -> Result<()>;
}
