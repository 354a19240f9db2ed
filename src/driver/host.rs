//! Blocks of host memory, used by address: for copies from and to the host, and as the simulated device's memory.
//!
//! Other code can write to the bytes by their address. So this module never makes a Rust reference to the bytes.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::fmt::Debug;
use std::ptr::NonNull;

use crate::copy_plan::Block;

/// The least alignment that `cuMemAlloc` gives, and that DLPack asks for (`dlpack.h`, `DLTensor::data`).
pub const ALIGNMENT: usize = 256;

/// The block stays at its address until this value is dropped.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    length: usize,
    owner: HostOwner,
}

#[derive(Debug)]
enum HostOwner {
    Here(Layout),
    Other { _owner: Box<dyn Debug + Send + Sync> },
}

// SAFETY: the block is tied to no thread. This value, or its owner, which is `Send`, owns the block.
unsafe impl Send for HostMemory {}

// SAFETY: the methods change no field and make no reference into the block. They copy and fill by raw pointers, and
// users of the memory must order accesses to the same bytes, as on a device.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// A block of uninitialised bytes; of one byte if `length` is 0. `None` if the allocation fails.
    pub fn new(length: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).ok()?;
        // SAFETY: the line above makes the layout's size at least 1, as `alloc` requires.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, length: layout.size(), owner: HostOwner::Here(layout) })
    }

    /// The `length` bytes at `start`, which belong to `owner`.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped at `start` until `owner` is dropped. While a method of this value accesses the bytes,
    /// other code of the process accesses them only by raw copies, not through Rust references.
    pub unsafe fn kept(
        start: NonNull<u8>,
        length: usize,
        owner: Box<dyn Debug + Send + Sync>,
    ) -> Self {
        Self { start, length, owner: HostOwner::Other { _owner: owner } }
    }

    pub fn filled(length: usize, pattern: u8) -> Option<Self> {
        let memory = Self::new(length)?;
        memory.fill(0, memory.length, pattern)?;
        Some(memory)
    }

    pub fn address(&self) -> u64 {
        // A `usize` has 64 bits on every platform that CUDA runs on.
        self.start.as_ptr().expose_provenance() as u64
    }

    /// `None` if the bytes reach past the end of the block. The bytes must be initialised.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let from = self.at(offset, length)?;
        let mut bytes = vec![0; length];
        // SAFETY: `at` checked that the bytes lie inside the block. The callers read a `filled` block, another owner's,
        // or a block from `new` after a whole array was copied into it. `bytes` is new and just as long, so the two
        // cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Some(bytes)
    }

    /// If `bytes` reach past the end, writes nothing and returns `None`.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked that the bytes lie inside the block. No reference into the block exists, so `bytes`
        // cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(())
    }

    /// Copies the rows of `block` from the address `source` to `offset`. Stops with `None` at a row that does not fit.
    ///
    /// # Safety
    ///
    /// The rows of `block` at `source` are mapped and hold values.
    pub unsafe fn take_in(&self, block: Block, source: u64, offset: u64) -> Option<()> {
        let width = usize::try_from(block.width).ok()?;
        for (from, to) in block.offsets() {
            let to = self.at(usize::try_from(offset.checked_add(to)?).ok()?, width)?;
            let from = source.wrapping_add(from) as *const u8;
            // SAFETY: the caller promises that the rows at `source` are mapped and hold values. `at` checked that
            // `width` bytes from `to` on lie inside the block, to which no reference exists. `copy` allows overlap.
            unsafe { std::ptr::copy(from, to, width) };
        }
        Some(())
    }

    /// Copies the rows of `block` inside this memory. Stops with `None` at a row that does not fit.
    pub fn repeat(&self, block: Block, source: u64, target: u64) -> Option<()> {
        let width = usize::try_from(block.width).ok()?;
        let at =
            |start: u64, row: u64| self.at(usize::try_from(start.checked_add(row)?).ok()?, width);
        for (from, to) in block.offsets() {
            let (from, to) = (at(source, from)?, at(target, to)?);
            // SAFETY: `at` checked that `width` bytes from both offsets lie inside the block, to which no reference
            // exists. `copy` allows overlap, and uninitialised bytes.
            unsafe { std::ptr::copy(from, to, width) };
        }
        Some(())
    }

    pub(super) fn fill(&self, offset: usize, length: usize, pattern: u8) -> Option<()> {
        let to = self.at(offset, length)?;
        // SAFETY: `at` checked that the `length` bytes lie inside the block.
        unsafe { std::ptr::write_bytes(to, pattern, length) };
        Some(())
    }

    fn at(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| self.start.as_ptr().wrapping_add(offset))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let HostOwner::Here(layout) = self.owner {
            // SAFETY: `new` allocated `start` with this layout, and only this drop frees it.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}
