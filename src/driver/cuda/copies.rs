//! Copies by CUDA's driver. With a driver that lacks an entry point of `CopyCalls`, such as `cuMemAllocAsync` before
//! CUDA 11.2, only `allocate_now` and `free_now` of the methods of [`Copies`] work.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

use super::calls::CopyCalls;
use super::sys::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUcontext, CUdeviceptr, CUmemorytype,
};
use super::{Cuda, native};
use crate::driver::copies::{Copies, CopyCall, CopyRoute, Transfer};
use crate::error::{Error, Kind, Result};
use crate::stream::Alive;

/// Whether `CUDA_MEMCPY3D_PEER_v1` and `CUDA_MEMCPY3D_v2` have the same size and the same field offsets.
macro_rules! same_layout {
    ($($field:ident, $plain:ident;)+) => {
        size_of::<CUDA_MEMCPY3D_PEER_v1>() == size_of::<CUDA_MEMCPY3D_v2>()
            $(&& offset_of!(CUDA_MEMCPY3D_PEER_v1, $field) == offset_of!(CUDA_MEMCPY3D_v2, $plain))+
    };
}

// The two contexts lie where `CUDA_MEMCPY3D_v2` has reserved pointers, which must be NULL.
const _: () = assert!(same_layout! {
    srcXInBytes, srcXInBytes; srcY, srcY; srcZ, srcZ; srcLOD, srcLOD; srcMemoryType, srcMemoryType;
    srcHost, srcHost; srcDevice, srcDevice; srcArray, srcArray; srcContext, reserved0;
    srcPitch, srcPitch; srcHeight, srcHeight;
    dstXInBytes, dstXInBytes; dstY, dstY; dstZ, dstZ; dstLOD, dstLOD; dstMemoryType, dstMemoryType;
    dstHost, dstHost; dstDevice, dstDevice; dstArray, dstArray; dstContext, reserved1;
    dstPitch, dstPitch; dstHeight, dstHeight;
    WidthInBytes, WidthInBytes; Height, Height; Depth, Depth;
});

/// The address is in `host` if `kind` is `CU_MEMORYTYPE_HOST`, else in `device`. `context` is NULL except for
/// [`CopyRoute::Peer`].
#[derive(Clone, Copy)]
struct CopySide {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    context: CUcontext,
}

impl CopySide {
    fn both(transfer: &Transfer<'_>) -> [Self; 2] {
        // With `CU_MEMORYTYPE_UNIFIED` the driver finds the kind of memory by the address.
        let unified = |device| Self {
            kind: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            host: ptr::null_mut(),
            device,
            context: ptr::null_mut(),
        };
        let (source, target) = (unified(transfer.source), unified(transfer.target));
        match transfer.route {
            CopyRoute::Device => [source, target],
            CopyRoute::Peer { from, to } => {
                let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                [
                    Self { kind, context: from.0.get() as CUcontext, ..source },
                    Self { kind, context: to.0.get() as CUcontext, ..target },
                ]
            }
            CopyRoute::Host(_) => {
                let (kind, host) =
                    (CUmemorytype::CU_MEMORYTYPE_HOST, transfer.target as *mut c_void);
                [source, Self { kind, host, device: 0, ..target }]
            }
            CopyRoute::FromHost(_) => {
                let (kind, host) =
                    (CUmemorytype::CU_MEMORYTYPE_HOST, transfer.source as *mut c_void);
                [Self { kind, host, device: 0, ..source }, target]
            }
        }
    }
}

fn size(count: u64) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(Kind::ExtentOverflow, count.to_string()))
}

/// The structure for `cuMemcpy3DPeerAsync`. The other copy calls take their values from the fields of this structure.
fn planes(transfer: &Transfer<'_>) -> Result<CUDA_MEMCPY3D_PEER_v1> {
    let ([source, target], block) = (CopySide::both(transfer), transfer.block);
    Ok(CUDA_MEMCPY3D_PEER_v1 {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: source.kind,
        srcHost: source.host,
        srcDevice: source.device,
        srcArray: ptr::null_mut(),
        srcContext: source.context,
        srcPitch: size(block.source.row)?,
        srcHeight: size(block.source.plane)?,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: target.kind,
        dstHost: target.host,
        dstDevice: target.device,
        dstArray: ptr::null_mut(),
        dstContext: target.context,
        dstPitch: size(block.target.row)?,
        dstHeight: size(block.target.plane)?,
        WidthInBytes: size(block.width)?,
        Height: size(block.rows)?,
        Depth: size(block.planes)?,
    })
}

/// `of` must have a single plane.
fn rows(of: &CUDA_MEMCPY3D_PEER_v1) -> CUDA_MEMCPY2D_v2 {
    CUDA_MEMCPY2D_v2 {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: of.srcMemoryType,
        srcHost: of.srcHost,
        srcDevice: of.srcDevice,
        srcArray: ptr::null_mut(),
        srcPitch: of.srcPitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: of.dstMemoryType,
        dstHost: of.dstHost,
        dstDevice: of.dstDevice,
        dstArray: ptr::null_mut(),
        dstPitch: of.dstPitch,
        WidthInBytes: of.WidthInBytes,
        Height: of.Height,
    }
}

impl Cuda {
    fn copies(&self) -> Result<&CopyCalls> {
        self.copies.as_ref().map_err(Clone::clone)
    }
}

impl Copies for Cuda {
    fn allocate(&self, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        let calls = self.copies()?;
        let mut pointer: CUdeviceptr = 0;
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: `pointer` outlives the call; `Alive` proves that the stream is alive.
        unsafe { calls.allocate(&raw mut pointer, size(bytes)?, native(stream)) }?;
        Ok(pointer)
    }

    fn free_on(&self, pointer: u64, stream: Alive<'_>) -> Result<()> {
        let (calls, _relaxed) = (self.copies()?, self.calls.relaxed()?);
        // SAFETY: the callers free memory once, and have just checked that the context is not destroyed. Before CUDA 12
        // the check does not notice a reset, so the process must not reset the context. `Alive` proves that the stream
        // is alive.
        unsafe { calls.free_on(pointer, native(stream)) }
    }

    fn allocate_now(&self, bytes: u64) -> Result<u64> {
        let (mut pointer, _relaxed): (CUdeviceptr, _) = (0, self.calls.relaxed()?);
        // SAFETY: `pointer` outlives the call.
        unsafe { self.calls.allocate(&raw mut pointer, size(bytes)?) }?;
        Ok(pointer)
    }

    fn free_now(&self, pointer: u64) -> Result<()> {
        let _relaxed = self.calls.relaxed()?;
        // SAFETY: `Buffer::free` frees memory from `allocate_now` once, and has just checked that the memory's context
        // is not destroyed.
        unsafe { self.calls.free(pointer) }
    }

    fn copy(&self, transfer: Transfer<'_>, stream: Alive<'_>) -> Result<()> {
        let (calls, stream, at) = (self.copies()?, native(stream), planes(&transfer)?);
        let for_host = matches!(transfer.route, CopyRoute::Host(_) | CopyRoute::FromHost(_));
        // If the host memory is pageable, the driver can make the host wait for the stream. Outside the relaxed mode,
        // that wait could invalidate captures of other streams.
        let _relaxed = for_host.then(|| self.calls.relaxed()).transpose()?;
        // SAFETY: the driver reads the structures before the call returns. The assertion above shows that `at` with
        // NULL contexts is also a `CUDA_MEMCPY3D_v2`. `Alive` proves that the stream is alive. The callers in the
        // module `buffer` keep the source until the copy is done, and the target has room for the copy.
        unsafe {
            match transfer.call() {
                CopyCall::Linear => {
                    calls.linear(at.dstDevice, at.srcDevice, at.WidthInBytes, stream)
                }
                CopyCall::ToHost => {
                    calls.to_host(at.dstHost, at.srcDevice, at.WidthInBytes, stream)
                }
                CopyCall::FromHost => {
                    calls.to_device(at.dstDevice, at.srcHost, at.WidthInBytes, stream)
                }
                CopyCall::Peer => calls.peer(
                    at.dstDevice,
                    at.dstContext,
                    at.srcDevice,
                    at.srcContext,
                    at.WidthInBytes,
                    stream,
                ),
                CopyCall::Rows => calls.rows(&rows(&at), stream),
                CopyCall::Planes => calls.planes((&raw const at).cast(), stream),
                CopyCall::PeerPlanes => calls.peer_planes(&raw const at, stream),
            }
        }
    }

    fn wait_stream(&self, stream: Alive<'_>) -> Result<()> {
        let (calls, _relaxed) = (self.copies()?, self.calls.relaxed()?);
        // SAFETY: `Alive` proves that the stream is alive.
        unsafe { calls.stream_synchronize(native(stream)) }
    }
}
