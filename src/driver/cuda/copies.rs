//! Copies on CUDA's own driver.
//!
//! The calls are looked up on first use: a driver that has no stream-ordered memory (before CUDA 11.2)
//! does all else.
#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::calls::{CUcontext, CUstream, Code, Relaxed, calls};
use super::{Cuda, native};
use crate::copy::Pitch;
use crate::driver::copies::{Copies, Entry, Route, Transfer};
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

/// `CUdeviceptr`.
type Address = u64;

calls! { Table:
    allocate = "cuMemAllocAsync": fn(*mut Address, usize, CUstream);
    free_on = "cuMemFreeAsync": fn(Address, CUstream);
    linear = "cuMemcpyAsync": fn(Address, Address, usize, CUstream);
    to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, Address, usize, CUstream);
    peer = "cuMemcpyPeerAsync": fn(Address, CUcontext, Address, CUcontext, usize, CUstream);
    rows = "cuMemcpy2DAsync_v2": fn(*const Rows, CUstream);
    planes = "cuMemcpy3DAsync_v2": fn(*const Planes, CUstream);
    peer_planes = "cuMemcpy3DPeerAsync": fn(*const Planes, CUstream);
    stream_synchronize = "cuStreamSynchronize": fn(CUstream);
}

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug)]
struct RowSide {
    x: usize,
    y: usize,
    memory_type: c_uint,
    host: *mut c_void,
    device: Address,
    array: *mut c_void,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Rows {
    source: RowSide,
    target: RowSide,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D` and of `CUDA_MEMCPY3D_PEER`, which differ in the context alone: the
/// first has a reserved pointer in its place, which has to be NULL.
#[repr(C)]
#[derive(Debug)]
struct PlaneSide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory_type: c_uint,
    host: *mut c_void,
    device: Address,
    array: *mut c_void,
    context: CUcontext,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Planes {
    source: PlaneSide,
    target: PlaneSide,
    width: usize,
    height: usize,
    depth: usize,
}

/// An address with its `CUmemorytype`: host memory is named by a pointer of its own.
#[derive(Debug, Clone, Copy)]
struct Place {
    memory_type: c_uint,
    host: *mut c_void,
    device: Address,
    context: CUcontext,
}

impl Place {
    /// The places that `transfer` copies from and to.
    fn both(transfer: &Transfer<'_>) -> [Self; 2] {
        /// `CU_MEMORYTYPE_HOST`, `_DEVICE` and `_UNIFIED`: an address of pinned or managed memory is
        /// no device's, so without a peer the driver tells by the address.
        const HOST: c_uint = 1;
        const DEVICE: c_uint = 2;
        const UNIFIED: c_uint = 4;
        let device = |memory_type, device, context| Self {
            memory_type,
            host: ptr::null_mut(),
            device,
            context,
        };
        match transfer.route {
            Route::Device => [
                device(UNIFIED, transfer.source, ptr::null_mut()),
                device(UNIFIED, transfer.target, ptr::null_mut()),
            ],
            Route::Peer { from, to } => [
                device(DEVICE, transfer.source, from.0.get() as CUcontext),
                device(DEVICE, transfer.target, to.0.get() as CUcontext),
            ],
            Route::Host(_) => [
                device(UNIFIED, transfer.source, ptr::null_mut()),
                Self {
                    memory_type: HOST,
                    host: transfer.target as *mut c_void,
                    device: 0,
                    context: ptr::null_mut(),
                },
            ],
        }
    }

    fn rows(self, pitch: Pitch) -> Result<RowSide> {
        Ok(RowSide {
            x: 0,
            y: 0,
            memory_type: self.memory_type,
            host: self.host,
            device: self.device,
            array: ptr::null_mut(),
            pitch: size(pitch.row)?,
        })
    }

    fn planes(self, pitch: Pitch) -> Result<PlaneSide> {
        Ok(PlaneSide {
            x: 0,
            y: 0,
            z: 0,
            level: 0,
            memory_type: self.memory_type,
            host: self.host,
            device: self.device,
            array: ptr::null_mut(),
            context: self.context,
            pitch: size(pitch.row)?,
            height: size(pitch.plane)?,
        })
    }
}

/// A count of bytes or rows as C has it.
fn size(count: u64) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(Kind::ExtentOverflow, count.to_string()))
}

impl Cuda {
    fn table(&self) -> Result<&'static Table> {
        static TABLE: OnceLock<Result<Table>> = OnceLock::new();
        TABLE.get_or_init(|| Table::load(self.library)).as_ref().map_err(Clone::clone)
    }
}

impl Copies for Cuda {
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        let (table, bytes) = (self.table()?, size(bytes)?);
        let mut pointer: Address = 0;
        let relaxed = Relaxed::enter(&self.calls)?;
        // SAFETY: `pointer` outlives the call; for the stream as for `record_event`.
        let code = unsafe { (table.allocate)(&raw mut pointer, bytes, native(stream)) };
        drop(relaxed);
        self.calls.check("cuMemAllocAsync", code)?;
        Ok(pointer)
    }

    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()> {
        let (table, relaxed) = (self.table()?, Relaxed::enter(&self.calls)?);
        // SAFETY: the pointer is one of `allocate`'s, and whoever owns it gives it up here; for the
        // stream as for `record_event`.
        let code = unsafe { (table.free_on)(pointer, native(stream)) };
        drop(relaxed);
        self.calls.check("cuMemFreeAsync", code)
    }

    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()> {
        let (table, stream, block) = (self.table()?, native(stream), transfer.block);
        let [source, target] = Place::both(&transfer);
        let (width, height, depth) = (size(block.width)?, size(block.rows)?, size(block.planes)?);
        let rows = Rows {
            source: source.rows(block.source)?,
            target: target.rows(block.target)?,
            width,
            height,
        };
        let planes = Planes {
            source: source.planes(block.source)?,
            target: target.planes(block.target)?,
            width,
            height,
            depth,
        };
        // SAFETY: the bytes that the block reads are the array's, whose owner is held until the
        // copy is ordered before its end; those that it writes are of memory that was allocated for
        // it, with room for the plan's compact copy. The structures are laid out as the driver's
        // header has them, fully initialised, and are read before the call returns. The contexts are
        // as for `push_context`, the stream as for `record_event`.
        let (name, code) = unsafe {
            match transfer.entry() {
                Entry::Linear => {
                    ("cuMemcpyAsync", (table.linear)(target.device, source.device, width, stream))
                }
                Entry::ToHost => (
                    "cuMemcpyDtoHAsync",
                    (table.to_host)(target.host, source.device, width, stream),
                ),
                Entry::Peer => (
                    "cuMemcpyPeerAsync",
                    (table.peer)(
                        target.device,
                        target.context,
                        source.device,
                        source.context,
                        width,
                        stream,
                    ),
                ),
                Entry::Rows => ("cuMemcpy2DAsync", (table.rows)(&raw const rows, stream)),
                Entry::Planes => ("cuMemcpy3DAsync", (table.planes)(&raw const planes, stream)),
                Entry::PeerPlanes => {
                    ("cuMemcpy3DPeerAsync", (table.peer_planes)(&raw const planes, stream))
                }
            }
        };
        self.calls.check(name, code)
    }

    fn wait_stream(&self, stream: Alive<'_>) -> Result<()> {
        let relaxed = Relaxed::enter(&self.calls)?;
        // SAFETY: for the stream as for `record_event`.
        let code = unsafe { (self.table()?.stream_synchronize)(native(stream)) };
        drop(relaxed);
        self.calls.check("cuStreamSynchronize", code)
    }
}
