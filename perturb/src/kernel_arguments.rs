//! The addresses that a kernel is given: the words of its arguments that may be addresses in known memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::driver;
use crate::memory::Memory;

/// The size of a `CUtensorMap` in bytes. Its address is a multiple of half of this size.
const DESCRIPTOR: usize = 128;

/// A kernel of the program.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The offset and the size of each parameter in bytes; `None` if the driver cannot tell.
    parameters: Option<Vec<(usize, usize)>>,
    /// The hash of the kernel's name.
    pub(crate) name: u64,
    /// Whether the kernel may wait for other kernels, by its name.
    pub(crate) waits: bool,
}

/// The address of the array that a descriptor describes (`CUtensorMap`), by the hash of the descriptor's bytes.
#[derive(Debug)]
pub(crate) struct Descriptors(BTreeMap<u64, u64>);

impl Descriptors {
    pub(crate) const NEW: Self = Self(BTreeMap::new());

    /// Notes that the descriptor at the address `descriptor` describes the array at `address`.
    ///
    /// # Safety
    /// The driver has just written the descriptor.
    pub(crate) unsafe fn note(&mut self, descriptor: u64, address: u64) {
        // SAFETY: the caller guarantees a descriptor at this address.
        let hash = unsafe { hash_of(descriptor as *const u8) };
        self.0.insert(hash, address);
    }
}

impl Kernel {
    /// The kernel with this handle and this name.
    pub(crate) fn of(function: u64, name: &[u8]) -> Self {
        Self { parameters: parameters(function), name: hash(name), waits: waits(name) }
    }

    /// Whether the driver can tell the kernel's parameters.
    pub(crate) const fn has_parameters(&self) -> bool {
        self.parameters.is_some()
    }

    /// Passes each word of the kernel's arguments that may be an address in known memory to `take`, after its
    /// place: the parameter, and the byte in it. For a known descriptor of an array it passes the array's
    /// address.
    ///
    /// # Safety
    /// The driver accepts these arguments for this kernel.
    pub(crate) unsafe fn addresses(
        &self,
        memory: &Memory,
        descriptors: &Descriptors,
        arguments: u64,
        extra: u64,
        mut take: impl FnMut(u64, u64),
    ) {
        for (index, (offset, size)) in self.parameters.iter().flatten().enumerate() {
            // SAFETY: the caller gives an address for each parameter. Otherwise it gives
            // `CU_LAUNCH_PARAM_BUFFER_POINTER` and then the address of a buffer, in which each parameter has
            // its offset.
            let from = unsafe {
                if arguments != 0 {
                    (arguments as *const *const u8).add(index).read()
                } else if extra != 0 {
                    (extra as *const *const u8).add(1).read().add(*offset)
                } else {
                    return;
                }
            };
            if from.is_null() {
                continue;
            }
            let most = if descriptors.0.is_empty() { 0 } else { *size };
            for at in (0..most.saturating_sub(DESCRIPTOR - 1)).step_by(DESCRIPTOR / 2) {
                // SAFETY: the driver gave the parameter's size.
                let hash = unsafe { hash_of(from.add(at)) };
                if let Some(address) = descriptors.0.get(&hash) {
                    take((index as u64) << 32 | at as u64, *address);
                }
            }
            for at in (0..size.saturating_sub(7)).step_by(8) {
                // SAFETY: the driver gave the parameter's size.
                let word = unsafe { from.add(at).cast::<u64>().read_unaligned() };
                if memory.may_have(word) {
                    take((index as u64) << 32 | at as u64, word);
                }
            }
        }
    }
}

/// The offset and the size of each of a kernel's parameters; None if the driver cannot tell.
fn parameters(function: u64) -> Option<Vec<(usize, usize)>> {
    const MOST: usize = 4096;
    let mut found = Vec::new();
    let (mut offset, mut size) = (0, 0);
    for index in 0..MOST {
        // SAFETY: the results are locals; the program is about to launch the function.
        let code = unsafe {
            match driver::cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size) {
                0 => 0,
                other => {
                    let to = (&raw mut offset, &raw mut size);
                    match driver::cuKernelGetParamInfo(function, index, to.0, to.1) {
                        0 => 0,
                        _ => other,
                    }
                }
            }
        };
        match code {
            0 => found.push((offset, size)),
            driver::NOT_FOUND => return None,
            _ => break,
        }
    }
    Some(found)
}

/// A hash of a name (FNV-1a).
pub(crate) fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The hash of a descriptor's bytes.
///
/// # Safety
/// The pointer is to as many bytes as a descriptor has.
unsafe fn hash_of(descriptor: *const u8) -> u64 {
    // SAFETY: the caller guarantees as many bytes as a descriptor has.
    hash(unsafe { core::slice::from_raw_parts(descriptor, DESCRIPTOR) })
}

/// Whether the name is one of NCCL's or NVSHMEM's, whose kernels may wait for other kernels, also in other
/// processes.
fn waits(name: &[u8]) -> bool {
    [&b"nccl"[..], b"nvshmem"].iter().any(|one| name.windows(one.len()).any(|part| part == *one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_whether_a_kernel_waits_and_has_a_hash() {
        assert!(waits(b"_Z8ncclDevKernel") && !waits(b"_Z3addPfPKf"));
        assert_ne!(hash(b"fill"), hash(b"copy"));
    }
}
