//! Allocations and frees.
//!
//! Each stream has a pool, which hands out a freed block of the wanted length again at once, as caching allocators do.
//! Work on another stream that still uses the block races with the new work, unless something orders the two.

use std::collections::HashSet;
use std::sync::Arc;

use super::call_log::DriverResult;
use super::clock::Clock;
use super::codes;
use super::history::{Access, Actor, History};
use super::memory::IpcExport;
use super::operation::Work;
use super::processes::take;
use super::report::{AccessKind, AccessRange, Report, ReportKind, Side};
use super::stream_table::StreamId;
use super::{MachineState, Simulated};
use crate::device::MemoryKind;
use crate::driver::{Context, PointerAttributes};
use crate::error::Result;
use crate::stream::Stream;

const ALLOCATE: &str = "cuMemAlloc";
const FREE: &str = "cuMemFree";
const FREE_ON: &str = "cuMemFreeAsync";

impl MachineState {
    /// The stream of the allocation's pool, if any. Fails if no live allocation starts at `start`.
    fn freeable(&mut self, start: u64, place: Arc<str>) -> DriverResult<Option<StreamId>> {
        if self.memory.is_gone(start) {
            return Err(codes::CONTEXT_IS_DESTROYED);
        }
        let nowhere = AccessRange { allocation: None, bytes: 0..0, access: AccessKind::Free };
        let (first, touched, why) = if let Some(block) = self.memory.at(start) {
            let Some(freed) = &block.freed else { return Ok(block.pool) };
            (Some(freed.side(block.whole())), block.whole(), "it was freed before")
        } else if let Some((block, _)) = self.memory.find(start) {
            (None, block.whole(), "the address is not the allocation's start")
        } else {
            (None, nowhere, "nothing is allocated there")
        };
        let second =
            Side { operation: self.call.into(), place, sequence: 0, touched: Some(touched) };
        self.reports.push(|| Report::new(ReportKind::InvalidFree, first, second, why));
        Err(codes::INVALID_VALUE)
    }

    pub(super) fn free_now(&mut self, start: u64) {
        let who = self.host_access("free");
        self.mark_freed(start, &who, &Clock::default(), None);
        self.poison(start);
    }

    fn free_on(&mut self, start: u64, stream: StreamId) {
        self.advance(stream);
        let (who, clock) = self.enqueue(stream, "free", Work::Poison(start));
        self.mark_freed(start, &who, &clock, Some(stream));
    }

    pub(super) fn free_in_order(&mut self, start: u64, stream: StreamId) -> DriverResult<()> {
        let place = Arc::clone(&self.streams.get(stream).name);
        self.freeable(start, place)?;
        self.refuse_implicit(stream)?;
        self.refuse_capturing(stream)?;
        // This process must close another process's block as often as it has opened the block.
        if self.memory.close(start) == Some(false) {
            return Ok(());
        }
        self.free_on(start, stream);
        Ok(())
    }

    pub(super) fn take_from_pool(
        &mut self,
        pool: StreamId,
        nbytes: u64,
        label: &str,
    ) -> DriverResult<u64> {
        let context = self.streams.get(pool).context;
        let ordinal = self.contexts.ordinal(context)?;
        if nbytes == 0 {
            return Ok(0);
        }
        if let Some(start) = self.memory.reuse(pool, nbytes, label) {
            return Ok(start);
        }
        let pointer =
            PointerAttributes { ordinal, kind: MemoryKind::Device, context: Some(context) };
        self.memory.add(nbytes, pointer, label, Some(pool)).ok_or(codes::OUT_OF_MEMORY)
    }

    pub(super) fn allocate(
        &mut self,
        context: Context,
        nbytes: u64,
        kind: MemoryKind,
        label: &str,
    ) -> DriverResult<u64> {
        let ordinal = self.contexts.ordinal(context)?;
        if nbytes == 0 {
            return Ok(0);
        }
        let context = (kind != MemoryKind::Managed).then_some(context);
        let pointer = PointerAttributes { ordinal, kind, context };
        if self.processes.is_shared && kind == MemoryKind::Device {
            let arena = Arc::clone(self.processes.own()?);
            let at = take(&arena, nbytes).ok_or(codes::OUT_OF_MEMORY)?;
            let export = IpcExport::Legacy(arena, at);
            return self
                .memory
                .add_shared(nbytes, pointer, label, export)
                .ok_or(codes::OUT_OF_MEMORY);
        }
        self.memory.add(nbytes, pointer, label, None).ok_or(codes::OUT_OF_MEMORY)
    }

    fn mark_freed(&mut self, start: u64, who: &Arc<Actor>, clock: &Clock, pool: Option<StreamId>) {
        let Some(block) = self.memory.at(start) else { return };
        let access = Access::new(who, block.whole());
        let races = block.history.admit(access, clock, &self.host, &mut HashSet::new());
        block.freed = Some(Arc::clone(who));
        if block.pool.is_none() {
            // Forget earlier accesses: any later access is a use after free, however it is ordered.
            block.history = History::default();
        } else if let Some(pool) = pool {
            block.pool = Some(pool);
            self.memory.spare(pool, start);
        }
        self.report_races(races);
    }
}

impl Simulated {
    /// The memory is aligned to 256 bytes and filled with [`FRESH`](super::FRESH). 0 bytes give the pointer 0.
    pub fn alloc(&self, ordinal: i32, nbytes: u64, kind: MemoryKind, label: &str) -> Result<u64> {
        let context = self.make(ALLOCATE, |state| state.contexts.primary(ordinal))?;
        self.alloc_in(context, nbytes, kind, label)
    }

    pub fn alloc_in(
        &self,
        context: Context,
        nbytes: u64,
        kind: MemoryKind,
        label: &str,
    ) -> Result<u64> {
        self.make(ALLOCATE, |state| state.allocate(context, nbytes, kind, label))
    }

    /// If the stream's pool has a freed block of this length, returns that block, even if queued work still uses it.
    pub fn alloc_from_pool(&self, stream: Stream, nbytes: u64, label: &str) -> Result<u64> {
        self.make(ALLOCATE, |state| {
            let pool = state.stream(stream)?;
            state.take_from_pool(pool, nbytes, label)
        })
    }

    /// Memory counts as free from the call that frees it, even if the free is still queued.
    pub fn bytes_in_use(&self) -> u64 {
        self.lock().memory.in_use()
    }

    pub fn device_of(&self, ptr: u64) -> Option<i32> {
        self.lock().memory.pointer(ptr).map(|pointer| pointer.ordinal)
    }

    /// Frees in the order of the stream `on`. Without `on`, frees memory from a stream's pool in that stream's order,
    /// and other memory at once.
    pub fn free(&self, ptr: u64, on: Option<Stream>) -> Result<()> {
        if ptr == 0 {
            return Ok(());
        }
        match on {
            None => self.make(FREE, |state| {
                match state.freeable(ptr, "host".into())? {
                    Some(pool) => state.free_on(ptr, pool),
                    None => state.free_now(ptr),
                }
                Ok(())
            }),
            Some(stream) => self.make(FREE_ON, |state| {
                let id = state.stream(stream)?;
                state.free_in_order(ptr, id)
            }),
        }
    }
}
