//! Memory and events shared with other processes. Each process has its own simulated device.
//!
//! A wait for another process's record is queued work, which runs only once that process has reached the record or has
//! ended. If this process needs the wait, it asks for the record, and [`Simulated::run_needed`] in the other process
//! runs the work up to the record. As in the real driver, memory and events cannot be opened by the process that made
//! them.

use std::sync::Arc;

use super::call_log::DriverResult;
use super::clock::Clock;
use super::codes;
use super::entry_points::{Call, CallArguments};
use super::events::EventPoint;
use super::memory::{DEFAULT_POOL, IpcExport};
use super::processes::{Arena, At, SharedEvent, memory, take};
use super::report::{Report, ReportKind, Side};
use super::{MachineState, Simulated};
use crate::device::MemoryKind;
use crate::driver::ipc::{Allocation, Ipc, Name};
use crate::driver::{Context, Event, PointerAttributes};
use crate::error::Result;
use crate::stream::Alive;

const OTHERS: u64 = 0x7100_0000;
const STEP: u64 = 0x10;

#[derive(Debug, Default)]
pub(super) struct Processes {
    own: Option<Arc<Arena>>,
    others: Vec<Arc<Arena>>,
    pools: u64,
    pub(super) is_shared: bool,
}

impl Processes {
    pub(super) fn own(&mut self) -> DriverResult<&Arc<Arena>> {
        if self.own.is_none() {
            self.own = Arena::new();
        }
        self.own.as_ref().ok_or(codes::NOT_SUPPORTED)
    }

    /// The file of another process that contains `at`. Fails for this process's own file.
    fn other(&mut self, at: At) -> DriverResult<&Arc<Arena>> {
        if self.own.as_ref().is_some_and(|own| own.number() == at.file) {
            return Err(codes::INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", at.process, at.descriptor);
        let index = self.opened(Some(at.file), &path)?;
        Ok(&self.others[index])
    }

    fn opened(&mut self, number: Option<u64>, path: &str) -> DriverResult<usize> {
        let known = |number| self.others.iter().position(|other| other.number() == number);
        if let Some(index) = number.and_then(known) {
            return Ok(index);
        }
        let arena = Arena::open(path).ok_or(codes::INVALID_VALUE)?;
        if number.is_some_and(|number| number != arena.number()) {
            return Err(codes::INVALID_VALUE);
        }
        Ok(known(arena.number()).unwrap_or_else(|| {
            self.others.push(arena);
            self.others.len() - 1
        }))
    }
}

impl MachineState {
    fn open(&mut self, at: At) -> DriverResult<u64> {
        let context = self.contexts.needed()?;
        let ordinal = self.contexts.ordinal(context)?;
        let arena = Arc::clone(self.processes.other(at)?);
        let raw = memory(&arena, at).ok_or(codes::INVALID_VALUE)?;
        let pointer =
            PointerAttributes { ordinal, kind: MemoryKind::Device, context: Some(context) };
        self.memory.open(raw, arena, at, pointer).ok_or(codes::INVALID_VALUE)
    }

    /// Carries out a free. Reports an invalid free if another process has the block open.
    pub(super) fn poison(&mut self, start: u64) {
        if let Some(whole) = self.memory.held_elsewhere(start) {
            let place = "another process".into();
            let second =
                Side { operation: self.call.into(), place, sequence: 0, touched: Some(whole) };
            let why = "another process has it open";
            self.reports.push(|| Report::new(ReportKind::InvalidFree, None, second, why));
        }
        self.memory.poison(start);
    }

    /// The points of this process's records that other processes wait for.
    fn needed(&mut self) -> Vec<Clock> {
        let all = self.events.shared().filter(|(slot, mine, _)| *mine > 0 && slot.is_needed());
        all.filter_map(|(_, _, recorded)| match recorded {
            EventPoint::Point(clock) => Some(clock.clone()),
            EventPoint::Never | EventPoint::Captured(..) => None,
        })
        .collect()
    }
}

impl Simulated {
    /// Lets other processes open the memory that later calls of `cuMemAlloc` allocate.
    pub fn share_memory(&self) -> Result<()> {
        self.make("cuMemAlloc", |state| {
            state.processes.own()?;
            state.processes.is_shared = true;
            Ok(())
        })
    }

    /// Runs queued work up to each point that another process waits for, except work that itself waits for a process.
    pub fn run_needed(&self) {
        let needed = self.lock().needed();
        for point in &needed {
            self.run_until_blocked(point);
        }
    }
}

impl Ipc for Simulated {
    fn uuid(&self, ordinal: i32) -> Result<[u8; 16]> {
        self.ask(Call::DeviceGetUuid, CallArguments::default(), |state| {
            let devices = i32::try_from(state.contexts.devices()).unwrap_or(i32::MAX);
            if !(0..devices).contains(&ordinal) {
                return Err(codes::INVALID_DEVICE);
            }
            let mut uuid = *b"simulated GPU  \0";
            uuid[15] = u8::try_from(ordinal).unwrap_or(u8::MAX);
            Ok(uuid)
        })
    }

    fn allocation(&self, pointer: u64) -> Result<Allocation> {
        self.ask(Call::PointerGetAttributes, CallArguments::default(), |state| {
            state.memory.allocation(pointer).ok_or(codes::INVALID_VALUE)
        })
    }

    fn name_memory(&self, pointer: u64) -> Result<Name> {
        self.ask(Call::IpcGetMemHandle, CallArguments::default(), |state| {
            match state.memory.at(pointer).map(|block| &block.export) {
                Some(IpcExport::Legacy(_, at)) => Ok(at.name()),
                _ => Err(codes::INVALID_VALUE),
            }
        })
    }

    fn open_memory(&self, name: &Name) -> Result<u64> {
        self.ask(Call::IpcOpenMemHandle, CallArguments::default(), |state| state.open(At::of(name)))
    }

    fn close_memory(&self, pointer: u64) -> Result<()> {
        self.act(Call::IpcCloseMemHandle, CallArguments::default(), |state| {
            if state.memory.close(pointer).ok_or(codes::INVALID_VALUE)? {
                state.free_now(pointer);
            }
            Ok(())
        })
    }

    fn create_shared_event(&self, context: Context) -> Result<Event> {
        self.ask(Call::EventCreate, CallArguments::context(context), |state| {
            let life = state.contexts.life(context)?;
            let slot = SharedEvent::new(state.processes.own()?).ok_or(codes::OUT_OF_MEMORY)?;
            state.events.create_shared(context, life, slot)
        })
    }

    fn name_event(&self, event: Event) -> Result<Name> {
        self.ask(Call::IpcGetEventHandle, CallArguments::event(event), |state| {
            state.events.slot(event)?.map(|slot| slot.at.name()).ok_or(codes::INVALID_HANDLE)
        })
    }

    fn open_event(&self, name: &Name, context: Context) -> Result<Event> {
        self.ask(Call::IpcOpenEventHandle, CallArguments::context(context), |state| {
            let (at, life) = (At::of(name), state.contexts.life(context)?);
            let slot =
                SharedEvent::open(state.processes.other(at)?, at).ok_or(codes::INVALID_VALUE)?;
            state.events.create_shared(context, life, slot)
        })
    }

    fn close_event(&self, event: Event) -> Result<()> {
        self.act(Call::EventDestroy, CallArguments::event(event), |state| {
            state.events.destroy(event)
        })
    }

    fn create_own_stream(&self) -> Result<u64> {
        let context = self
            .ask(Call::StreamCreate, CallArguments::default(), |state| state.contexts.needed())?;
        self.create_stream_in(context, false)
    }

    fn create_pool(&self, ordinal: i32) -> Result<u64> {
        self.ask(Call::MemPoolCreate, CallArguments::default(), |state| {
            state.contexts.primary(ordinal)?;
            state.processes.own()?;
            state.processes.pools += 1;
            Ok(DEFAULT_POOL + STEP * state.processes.pools)
        })
    }

    fn export_pool(&self, pool: u64) -> Result<i32> {
        self.ask(Call::MemPoolExportToShareableHandle, CallArguments::default(), |state| {
            if pool == DEFAULT_POOL || pool >= OTHERS {
                return Err(codes::INVALID_VALUE);
            }
            state.processes.own()?.exported().ok_or(codes::OUT_OF_MEMORY)
        })
    }

    fn import_pool(&self, file: i32) -> Result<u64> {
        self.ask(Call::MemPoolImportFromShareableHandle, CallArguments::default(), |state| {
            let index = state.processes.opened(None, &format!("/proc/self/fd/{file}"))?;
            Ok(OTHERS + STEP * u64::try_from(index).map_err(|_| codes::OUT_OF_MEMORY)?)
        })
    }

    fn allocate_from(&self, pool: u64, bytes: u64, stream: Alive<'_>) -> Result<u64> {
        let stream = stream.named_here();
        self.ask(Call::MemAllocFromPoolAsync, CallArguments::stream(stream), |state| {
            let id = state.native(stream)?;
            state.refuse_capturing(id)?;
            let context = state.streams.get(id).context;
            let ordinal = state.contexts.ordinal(context)?;
            let arena = Arc::clone(state.processes.own()?);
            let at = take(&arena, bytes).ok_or(codes::OUT_OF_MEMORY)?;
            let pointer =
                PointerAttributes { ordinal, kind: MemoryKind::Device, context: Some(context) };
            let export = IpcExport::Pool(arena, at, pool);
            state.memory.add_shared(bytes, pointer, "", export).ok_or(codes::OUT_OF_MEMORY)
        })
    }

    fn name_pointer(&self, pointer: u64) -> Result<Name> {
        self.ask(Call::MemPoolExportPointer, CallArguments::default(), |state| {
            match state.memory.at(pointer).map(|block| &block.export) {
                Some(IpcExport::Pool(_, at, _)) => Ok(at.name()),
                _ => Err(codes::INVALID_VALUE),
            }
        })
    }

    fn import_pointer(&self, pool: u64, name: &Name) -> Result<u64> {
        self.ask(Call::MemPoolImportPointer, CallArguments::default(), |state| {
            let at = At::of(name);
            let index = pool.checked_sub(OTHERS).map(|offset| offset / STEP);
            let arena =
                index.and_then(|index| state.processes.others.get(usize::try_from(index).ok()?));
            match arena {
                Some(arena) if arena.number() == at.file => state.open(at),
                _ => Err(codes::INVALID_VALUE),
            }
        })
    }
}
