//! The calls that make copies: memory in the order of a stream, blocks copied, and the host's wait.

use std::sync::Arc;

use super::Context;
use super::host::HostMemory;
use crate::copy::Block;
use crate::error::Result;
use crate::stream::Alive;

/// Where a block is copied from and to.
#[derive(Debug, Clone, Copy)]
pub enum Route<'a> {
    /// Between addresses that the stream's device reaches.
    Device,
    /// From the memory of one device to that of another.
    Peer {
        /// The context of the source's device.
        from: Context,
        /// The context of the target's device.
        to: Context,
    },
    /// Into memory of the host, from its first byte on.
    Host(&'a Arc<HostMemory>),
    /// From pageable memory of the host, which the driver has read when the call returns. One run of bytes.
    FromHost(&'a Arc<HostMemory>),
}

/// One block to be copied.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// The address of its first byte.
    pub source: u64,
    /// The address that the first byte goes to.
    pub target: u64,
    /// Its rows.
    pub block: Block,
    /// Between which memories.
    pub route: Route<'a>,
}

/// Which call of the driver carries a [`Transfer`] out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
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
    /// `cuMemcpy3DPeerAsync`, which copies rows as well: there is no call for them alone.
    PeerPlanes,
}

impl Transfer<'_> {
    /// The call that carries it out.
    pub const fn entry(&self) -> Entry {
        match (self.block.rows, self.block.planes, self.route) {
            (1, 1, Route::Device) => Entry::Linear,
            (1, 1, Route::Host(_)) => Entry::ToHost,
            (1, 1, Route::FromHost(_)) => Entry::FromHost,
            (1, 1, Route::Peer { .. }) => Entry::Peer,
            (_, _, Route::Peer { .. }) => Entry::PeerPlanes,
            (_, 1, _) => Entry::Rows,
            _ => Entry::Planes,
        }
    }
}

/// The part of [`Driver`](super::Driver) that makes copies. All of it *may block*. What a capture of another
/// stream would not survive is called in the relaxed mode of `cuThreadExchangeStreamCaptureMode`.
pub trait Copies {
    /// `cuMemAllocAsync`: `bytes` bytes, at least one, on the device of `stream`, usable there from
    /// here on.
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64>;

    /// `cuMemFreeAsync`: gives `pointer` back once what is queued on `stream` is done.
    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()>;

    /// `cuMemAlloc`: the same in the current context, for a device without memory pools, which refuses
    /// [`allocate`](Copies::allocate) by `CUDA_ERROR_NOT_SUPPORTED`. Every stream may use it from here on.
    fn allocate_now(&self, bytes: u64) -> Result<u64>;

    /// `cuMemFree`: the host waits for all work of the current context, and gives `pointer` back.
    fn free_now(&self, pointer: u64) -> Result<()>;

    /// The call that [`Transfer::entry`] names, queued on `stream`.
    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()>;

    /// `cuStreamSynchronize`: the host waits for what is queued on `stream`.
    fn wait_stream(&self, stream: Alive<'_>) -> Result<()>;
}
