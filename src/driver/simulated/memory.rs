//! The simulated device's memory, in blocks.
//!
//! A free does not unmap a block. If this process allocated the block, the free fills it with [`FREED`] when the free
//! runs: the pattern shows work that runs too late.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::history::{Actor, History};
use super::operation::Span;
use super::processes::{Arena, At, memory};
use super::report::{AccessKind, AccessRange};
use super::stream_table::StreamId;
use crate::driver::host::{ALIGNMENT, HostMemory};
use crate::driver::ipc::Allocation;
use crate::driver::{Context, PointerAttributes};

/// Every byte of a new allocation. A block that a stream's pool hands out again is not filled.
pub const FRESH: u8 = 0xCD;
/// A free fills the memory with this byte when the free runs, unless another process allocated the memory.
pub const FREED: u8 = 0xDD;

/// The handle of the default pool of `cuMemAllocAsync`, which cannot be exported.
pub(super) const DEFAULT_POOL: u64 = 0x7000_0000;

#[derive(Debug)]
pub(super) enum IpcExport {
    No,
    Legacy(Arc<Arena>, At),
    Pool(Arc<Arena>, At, u64),
    /// Another process's block, which this process must still close this many times.
    Opened(Arc<Arena>, At, u32),
}

#[derive(Debug)]
pub(super) struct MemoryBlock {
    raw: HostMemory,
    pub(super) length: u64,
    pointer: PointerAttributes,
    label: Arc<str>,
    pub(super) pool: Option<StreamId>,
    pub(super) freed: Option<Arc<Actor>>,
    pub(super) history: History,
    pub(super) export: IpcExport,
}

impl MemoryBlock {
    pub(super) fn touched(&self, start: u64, end: u64, access: AccessKind) -> AccessRange {
        AccessRange { allocation: Some(Arc::clone(&self.label)), bytes: start..end, access }
    }

    pub(super) fn whole(&self) -> AccessRange {
        self.touched(0, self.length, AccessKind::Free)
    }

    fn holds(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length)
    }
}

#[derive(Debug, Default)]
pub(super) struct SimulatedMemory {
    blocks: BTreeMap<u64, MemoryBlock>,
    spare: HashMap<StreamId, Vec<u64>>,
    gone: HashSet<u64>,
}

impl SimulatedMemory {
    pub(super) fn at(&mut self, start: u64) -> Option<&mut MemoryBlock> {
        self.blocks.get_mut(&start)
    }

    pub(super) fn find(&mut self, address: u64) -> Option<(&mut MemoryBlock, u64)> {
        let (start, block) = self.blocks.range_mut(..=address).next_back()?;
        let offset = address.checked_sub(*start)?;
        (offset < block.length).then_some((block, offset))
    }

    /// Returns the attributes of a freed block only if the block belongs to a stream's pool.
    pub(super) fn pointer(&mut self, address: u64) -> Option<PointerAttributes> {
        let (block, _) = self.find(address)?;
        (block.freed.is_none() || block.pool.is_some()).then_some(block.pointer)
    }

    /// Reads freed memory as well. `None` if `span` is not inside one block.
    pub(super) fn load(&mut self, span: Span) -> Option<Vec<u8>> {
        let (block, offset) =
            self.find(span.ptr).filter(|(block, offset)| block.holds(*offset, span.len))?;
        block.raw.read(usize::try_from(offset).ok()?, usize::try_from(span.len).ok()?)
    }

    /// Writes freed memory as well. If the bytes do not lie inside one block, writes nothing and returns `None`.
    pub(super) fn store(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        let length = u64::try_from(bytes.len()).ok()?;
        let (block, offset) =
            self.find(address).filter(|(block, offset)| block.holds(*offset, length))?;
        block.raw.write(usize::try_from(offset).ok()?, bytes)
    }

    /// The size in bytes of all blocks that are not freed. A block whose free is queued counts as freed.
    pub(super) fn in_use(&self) -> u64 {
        self.blocks.values().filter(|block| block.freed.is_none()).map(|block| block.length).sum()
    }

    /// Fills a block that this process allocated with [`FREED`]. Unlocks another process's block, unless this process
    /// has it open.
    pub(super) fn poison(&mut self, start: u64) {
        let Some(block) = self.blocks.get_mut(&start) else { return };
        if let IpcExport::Opened(arena, at, opened) = &block.export {
            if *opened == 0 {
                arena.hold(at.offset, at.length, false);
            }
            return;
        }
        if let Ok(length) = usize::try_from(block.length) {
            let filled = block.raw.fill(0, length, FREED);
            debug_assert!(filled.is_some(), "a block is at least as long as it says");
        }
    }

    pub(super) fn add(
        &mut self,
        length: u64,
        pointer: PointerAttributes,
        label: &str,
        pool: Option<StreamId>,
    ) -> Option<u64> {
        let bytes = usize::try_from(length).ok()?.checked_next_multiple_of(ALIGNMENT)?;
        let raw = HostMemory::filled(bytes, FRESH)?;
        Some(self.insert(raw, length, pool, pointer, label, IpcExport::No))
    }

    pub(super) fn add_shared(
        &mut self,
        length: u64,
        pointer: PointerAttributes,
        label: &str,
        export: IpcExport,
    ) -> Option<u64> {
        let (IpcExport::Legacy(arena, at) | IpcExport::Pool(arena, at, _)) = &export else {
            return None;
        };
        let raw = memory(arena, *at)?;
        raw.fill(0, usize::try_from(at.length).ok()?, FRESH)?;
        Some(self.insert(raw, length, None, pointer, label, export))
    }

    /// Opens another process's block, and returns the block's address. Call [`Self::close`] once for each open.
    pub(super) fn open(
        &mut self,
        raw: HostMemory,
        arena: Arc<Arena>,
        at: At,
        pointer: PointerAttributes,
    ) -> Option<u64> {
        let address = raw.address();
        if let Some(MemoryBlock { export: IpcExport::Opened(_, known, opened), .. }) =
            self.blocks.get_mut(&address)
            && *known == at
            && *opened > 0
        {
            *opened = opened.checked_add(1)?;
            return Some(address);
        }
        arena.hold(at.offset, at.length, true);
        let export = IpcExport::Opened(arena, at, 1);
        Some(self.insert(raw, at.length, None, pointer, "opened", export))
    }

    /// Returns whether this was the last close. `None` if no open block of another process starts at `start`.
    pub(super) fn close(&mut self, start: u64) -> Option<bool> {
        match &mut self.blocks.get_mut(&start)?.export {
            IpcExport::Opened(_, _, opened) => {
                *opened = opened.checked_sub(1)?;
                Some(*opened == 0)
            }
            _ => None,
        }
    }

    pub(super) fn held_elsewhere(&mut self, start: u64) -> Option<AccessRange> {
        let block = self.blocks.get(&start)?;
        let (IpcExport::Legacy(arena, at) | IpcExport::Pool(arena, at, _)) = &block.export else {
            return None;
        };
        arena.is_held(at.offset, at.length).then(|| block.whole())
    }

    pub(super) fn allocation(&mut self, address: u64) -> Option<Allocation> {
        let (block, offset) = self.find(address)?;
        if block.freed.is_some() {
            return None;
        }
        Some(Allocation {
            range: (address - offset, block.length),
            is_legacy: matches!(block.export, IpcExport::Legacy(..)),
            pool: match block.export {
                IpcExport::Pool(_, _, pool) => Some(pool),
                _ => block.pool.map(|_| DEFAULT_POOL),
            },
        })
    }

    fn insert(
        &mut self,
        raw: HostMemory,
        length: u64,
        pool: Option<StreamId>,
        pointer: PointerAttributes,
        label: &str,
        export: IpcExport,
    ) -> u64 {
        let address = raw.address();
        let label = if label.is_empty() {
            format!("block#{}", self.blocks.len() + 1)
        } else {
            label.to_owned()
        };
        let label = Arc::from(label);
        let history = History::default();
        let block = MemoryBlock { raw, length, pointer, label, pool, freed: None, history, export };
        self.blocks.insert(address, block);
        address
    }

    pub(super) fn take_down(&mut self, context: Context) {
        self.blocks.retain(|start, block| {
            let stays = block.pointer.context != Some(context);
            if !stays {
                self.gone.insert(*start);
            }
            stays
        });
    }

    pub(super) fn is_gone(&self, start: u64) -> bool {
        !self.blocks.contains_key(&start) && self.gone.contains(&start)
    }

    pub(super) fn spare(&mut self, pool: StreamId, start: u64) {
        self.spare.entry(pool).or_default().push(start);
    }

    /// Takes, of the pool's freed blocks with exactly this length, the one freed last, even if its free is still
    /// queued.
    pub(super) fn reuse(&mut self, pool: StreamId, length: u64, label: &str) -> Option<u64> {
        let spare = self.spare.get_mut(&pool)?;
        let blocks = &mut self.blocks;
        let at = spare
            .iter()
            .rposition(|start| blocks.get(start).is_some_and(|block| block.length == length))?;
        let start = spare.remove(at);
        let block = blocks.get_mut(&start)?;
        block.freed = None;
        if !label.is_empty() {
            block.label = Arc::from(label);
        }
        Some(start)
    }
}
