//! Host memory by its address: the memory of copies for the CPU, our own or another owner's, and the memory of
//! the simulated device.
//!
//! Addresses are handed out, so their holders may write at any time, as a device does. So no reference to
//! the bytes is ever made; they are only copied.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::fmt::Debug;
use std::ptr::NonNull;

use crate::copy::Block;

/// The alignment of our own: that of `cuMemAlloc`, which DLPack asks for as well
/// (`dlpack.h`, `DLTensor::data`).
pub const ALIGNMENT: usize = 256;

/// One block of memory. It stays where it is until it is dropped.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

/// Who frees a block.
#[derive(Debug)]
enum Owner {
    Here(Layout),
    Other { _owner: Box<dyn Debug + Send + Sync> },
}

// SAFETY: the block is this value's alone or its owner's, which is `Send`; it is not tied to a thread,
// and is read and written only by copies below.
unsafe impl Send for HostMemory {}

// SAFETY: as above; no reference into the block exists. Copies that run at the same time on the same
// bytes are its users' to order, as those of a device are.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `length` bytes, which hold whatever they do; `None` where there is no memory left.
    pub fn new(length: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout's size is at least 1, by the line above.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, length: layout.size(), owner: Owner::Here(layout) })
    }

    /// `length` bytes of another owner, from `start` on.
    ///
    /// # Safety
    ///
    /// They stay there until `owner` is dropped, and every other read and write of them is ordered after the
    /// copies that are made here.
    pub unsafe fn kept(
        start: NonNull<u8>,
        length: usize,
        owner: Box<dyn Debug + Send + Sync>,
    ) -> Self {
        Self { start, length, owner: Owner::Other { _owner: owner } }
    }

    /// The same, each byte of it `pattern`.
    pub fn filled(length: usize, pattern: u8) -> Option<Self> {
        let memory = Self::new(length)?;
        memory.fill(0, memory.length, pattern)?;
        Some(memory)
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        // A `usize` has 64 bits on every platform that CUDA runs on.
        self.start.as_ptr().expose_provenance() as u64
    }

    /// `length` bytes from `offset` on, which were written before: those of a `filled` block, or of another owner's that
    /// has its values. `None` past the end.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let from = self.at(offset, length)?;
        let mut bytes = vec![0; length];
        // SAFETY: `at` checked that `length` bytes from `from` on lie inside the block, which is
        // mapped as long as `self` is; only blocks that were `filled`, and others' arrays, are read; `bytes` is fresh and
        // as long.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Some(bytes)
    }

    /// Writes `bytes` from `offset` on; `None`, with nothing written, past the end.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked that `bytes.len()` bytes from `to` on lie inside the block, which is
        // mapped as long as `self` is; no reference into the block exists, so `bytes` is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(())
    }

    /// Copies `block` from `source` on to `offset` on; `None` where that runs past the end.
    ///
    /// # Safety
    ///
    /// The rows of `block`, from `source` on, are mapped and hold values.
    pub unsafe fn take_in(&self, block: Block, source: u64, offset: u64) -> Option<()> {
        let width = usize::try_from(block.width).ok()?;
        for (from, to) in block.offsets() {
            let to = self.at(usize::try_from(offset.checked_add(to)?).ok()?, width)?;
            let from = source.wrapping_add(from) as *const u8;
            // SAFETY: the caller vouches for the source; `at` checked that `width` bytes from `to` on lie inside the
            // block, to which there is no reference.
            unsafe { std::ptr::copy(from, to, width) };
        }
        Some(())
    }

    /// Copies `block` from `source` on to `target` on, both counted from the first byte; `None` where that runs past
    /// the end.
    pub fn repeat(&self, block: Block, source: u64, target: u64) -> Option<()> {
        let width = usize::try_from(block.width).ok()?;
        let at =
            |start: u64, row: u64| self.at(usize::try_from(start.checked_add(row)?).ok()?, width);
        for (from, to) in block.offsets() {
            let (from, to) = (at(source, from)?, at(target, to)?);
            // SAFETY: `at` checked that `width` bytes from both on lie inside the block, to which there is no reference.
            unsafe { std::ptr::copy(from, to, width) };
        }
        Some(())
    }

    /// Sets `length` bytes from `offset` on to `pattern`; `None`, with nothing written, past the end.
    pub(super) fn fill(&self, offset: usize, length: usize, pattern: u8) -> Option<()> {
        let to = self.at(offset, length)?;
        // SAFETY: `at` checked that `length` bytes from `to` on lie inside the block.
        unsafe { std::ptr::write_bytes(to, pattern, length) };
        Some(())
    }

    /// The address of the byte at `offset`, if `length` bytes from there on lie inside the block.
    fn at(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| self.start.as_ptr().wrapping_add(offset))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Owner::Here(layout) = self.owner {
            // SAFETY: `start` came from `alloc` with this very layout, in `new`, and is freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}
