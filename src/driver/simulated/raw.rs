//! Raw host memory that stands in for a device's: the only unsafe code of the simulated device.
//!
//! Addresses are handed out, so whoever holds one may write at any time without asking; hence no
//! reference to the bytes is ever made, they are only copied. Inside the simulated device all
//! copies happen under its one lock.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// The alignment of every allocation, that of `cuMemAlloc`.
pub(super) const ALIGNMENT: usize = 256;

/// One block of memory. It stays where it is, mapped, until it is dropped.
#[derive(Debug)]
pub(super) struct Raw {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is owned by this value alone, is not tied to a thread, and is read and written
// only by copies through `&self` and `&mut self` below.
unsafe impl Send for Raw {}

impl Raw {
    /// `length` bytes (at least 1), each of them `pattern`; `None` where there is no memory left.
    pub(super) fn new(length: usize, pattern: u8) -> Option<Self> {
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout's size is at least 1, by the line above.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        let mut raw = Self { start, layout };
        raw.fill(0, length, pattern)?;
        Some(raw)
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> u64 {
        // A `usize` has 64 bits on every platform that CUDA runs on.
        self.start.as_ptr().expose_provenance() as u64
    }

    /// `length` bytes from `offset` on; `None` past the end.
    pub(super) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let from = self.at(offset, length)?;
        let mut bytes = vec![0; length];
        // SAFETY: `at` checked that `length` bytes from `from` on lie inside the block, which is
        // mapped and initialised as long as `self` is; `bytes` is fresh and as long.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Some(bytes)
    }

    /// Writes `bytes` from `offset` on; `None`, with nothing written, past the end.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked that `bytes.len()` bytes from `to` on lie inside the block, which is
        // mapped as long as `self` is; no reference into the block exists, so `bytes` is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(())
    }

    /// Sets `length` bytes from `offset` on to `pattern`; `None`, with nothing written, past the end.
    pub(super) fn fill(&mut self, offset: usize, length: usize, pattern: u8) -> Option<()> {
        let to = self.at(offset, length)?;
        // SAFETY: `at` checked that `length` bytes from `to` on lie inside the block.
        unsafe { std::ptr::write_bytes(to, pattern, length) };
        Some(())
    }

    /// The address of the byte at `offset`, if `length` bytes from there on lie inside the block.
    fn at(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.layout.size()).then(|| self.start.as_ptr().wrapping_add(offset))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc` with this very layout, in `new`, and is freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
