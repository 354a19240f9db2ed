//! Launches with attributes: clusters of blocks, and cooperative launches. With a driver that lacks `cuLaunchKernelEx`,
//! as before CUDA 11.8, only these launches fail.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_uint, c_void};
use std::ptr;

use super::sys::{
    CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
};
use super::{Cuda, native};
use crate::error::Result;
use crate::stream::Alive;

#[derive(Debug)]
pub struct Launch<'a> {
    /// `CUfunction`.
    pub function: usize,
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory for each block.
    pub shared: u32,
    /// Blocks in a cluster, along x, y and z; `None` for no clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at the same time, so that they may wait for each other.
    pub cooperative: bool,
    /// For each argument, the address of its value.
    pub arguments: &'a mut [*mut c_void],
}

fn attribute(id: CUlaunchAttributeID, numbers: &[u32]) -> CUlaunchAttribute {
    let mut pad: [c_char; 64] = [0; 64];
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes());
    pad.iter_mut().zip(bytes).for_each(|(to, byte)| *to = c_char::from_ne_bytes([byte]));
    CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad } }
}

impl Cuda {
    /// `cuLaunchKernelEx`, in the current context. May block.
    ///
    /// # Safety
    ///
    /// The function belongs to the current context and takes these arguments. The memory that the function accesses is
    /// ready on `stream`.
    pub unsafe fn launch(&self, launch: Launch<'_>, stream: Alive<'_>) -> Result<()> {
        let calls = self.launches.as_ref().map_err(Clone::clone)?;
        let Launch { function, blocks, threads, shared, cluster, cooperative, arguments } = launch;
        let mut attributes = Vec::new();
        if let Some(cluster) = cluster {
            let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes.push(attribute(id, &cluster));
        }
        if cooperative {
            attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &[1]));
        }
        let config = CUlaunchConfig {
            gridDimX: blocks[0],
            gridDimY: blocks[1],
            gridDimZ: blocks[2],
            blockDimX: threads[0],
            blockDimY: threads[1],
            blockDimZ: threads[2],
            sharedMemBytes: shared,
            hStream: native(stream),
            attrs: attributes.as_mut_ptr(),
            numAttrs: c_uint::try_from(attributes.len()).unwrap_or(0),
        };
        let (function, arguments) = (function as CUfunction, arguments.as_mut_ptr());
        // SAFETY: the configuration and its attributes outlive the call; `Alive` proves that the stream is alive; the
        // caller promises the rest.
        unsafe { calls.launch(&raw const config, function, arguments, ptr::null_mut()) }
    }
}
