//! A CUDA device that needs no GPU and reports a program's mistakes.
//!
//! [`Simulated`] implements [`Driver`]. Host memory stands in for device memory, so a program can read the values
//! through the pointers. Two things show a missing wait:
//!
//! - Queued work runs late, in the least helpful legal order, so the values can be wrong.
//! - Declared accesses are checked for races by vector clocks over stream order, events, host waits and the legacy
//!   default stream. A [`Report`] of a race names both accesses.
//!
//! If no other process takes part, the same calls in the same order always give the same reports. The threads of the
//! host count as one, in the order of their calls.
//!
//! Queuing work on a destroyed stream, which can crash a real driver, gives a report and an error here.
//! `tests/gpu/test_driver_twins.py` compares the two drivers.

mod access;
mod allocate;
mod call_log;
mod capture;
mod clock;
mod contexts;
mod copies;
mod entry_points;
mod events;
mod faults;
mod graph;
mod history;
mod ipc;
mod machine;
mod memory;
mod operation;
mod processes;
mod report;
mod schedule;
mod stream_table;
mod streams;
mod work;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub use super::codes;
pub use call_log::LOGGED;
pub use capture::CaptureMode;
pub use entry_points::{Call, CallArguments, CallRecord, Outcome};
pub use faults::FaultError;
pub use graph::Graph;
pub use machine::{Machine, Task};
pub use memory::{FREED, FRESH};
pub use operation::{Action, Span};
pub use report::{AccessKind, AccessRange, REPORTED, Report, ReportKind, Side};

use super::fork::{self, Process};
use super::{Context, Driver, Event, PointerAttributes};
use crate::capture::CaptureStatus;
use crate::error::Result;
use crate::stream::Alive;

#[derive(Debug)]
struct MachineState {
    contexts: contexts::Contexts,
    streams: stream_table::StreamTable,
    events: events::EventTable,
    captures: capture::Captures,
    graphs: Vec<graph::Executable>,
    memory: memory::SimulatedMemory,
    processes: ipc::Processes,
    schedule: schedule::Schedule,
    /// The work that the host is ordered after. Work that the host launches later is ordered after it as well.
    host: clock::Clock,
    learned: usize,
    calls: call_log::CallLog,
    call: &'static str,
    reports: report::Reports,
    sequence: u64,
}

pub struct Simulated {
    state: Mutex<MachineState>,
    idle: Condvar,
    /// In a forked child, `state` may stay locked for ever, so only this process may use the device.
    process: Process,
}

impl Simulated {
    pub fn new(devices: u32) -> Arc<Self> {
        let state = MachineState {
            contexts: contexts::Contexts::new(devices),
            streams: stream_table::StreamTable::default(),
            events: events::EventTable::default(),
            captures: capture::Captures::default(),
            graphs: Vec::new(),
            memory: memory::SimulatedMemory::default(),
            processes: ipc::Processes::default(),
            schedule: schedule::Schedule::default(),
            host: clock::Clock::default(),
            learned: 0,
            calls: call_log::CallLog::default(),
            call: "",
            reports: report::Reports::default(),
            sequence: 0,
        };
        fork::watch();
        let process = Process::current();
        Arc::new(Self { state: Mutex::new(state), idle: Condvar::new(), process })
    }

    pub fn process(&self) -> Process {
        self.process
    }

    fn check_life(&self, call: entry_points::Call, event: Event) -> Result<()> {
        self.make(call.name(), |state| {
            if state.contexts.life(event.context)? == event.life {
                Ok(())
            } else {
                Err(codes::CONTEXT_IS_DESTROYED)
            }
        })
    }

    /// Drop no queued work while you hold the lock: the drop may call the simulated device, which takes the lock again.
    fn lock(&self) -> MutexGuard<'_, MachineState> {
        // If a thread has panicked while it held the lock, use the state as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Simulated")
            .field("devices", &state.contexts.devices())
            .field("pending", &state.schedule.pending())
            .field("reports", &state.reports.found())
            .finish_non_exhaustive()
    }
}

impl Driver for Simulated {
    fn pointer(&self, pointer: u64) -> Result<Option<PointerAttributes>> {
        self.ask(Call::PointerGetAttributes, CallArguments::default(), |state| {
            Ok(state.memory.pointer(pointer))
        })
    }

    fn primary_context(&self, ordinal: i32) -> Result<Context> {
        let call = Call::PrimaryCtxRetain;
        if self.lock().contexts.is_retained(ordinal) {
            return self.make(call.name(), |state| state.contexts.primary(ordinal));
        }
        self.ask(call, CallArguments::default(), |state| {
            let context = state.contexts.primary(ordinal)?;
            state.contexts.retain(ordinal);
            Ok(context)
        })
    }

    fn current_context(&self) -> Result<Option<Context>> {
        self.ask(Call::CtxGetCurrent, CallArguments::default(), |state| {
            Ok(state.contexts.current())
        })
    }

    fn current_ordinal(&self) -> Result<i32> {
        self.ask(Call::CtxGetDevice, CallArguments::default(), |state| {
            let context = state.contexts.needed()?;
            state.contexts.ordinal(context)
        })
    }

    fn push_context(&self, context: Context) -> Result<()> {
        let arguments = CallArguments::context(context);
        self.act(Call::CtxPushCurrent, arguments, |state| state.contexts.push(context))
    }

    fn pop_context(&self) -> Result<()> {
        self.act(Call::CtxPopCurrent, CallArguments::default(), |state| state.contexts.pop())
    }

    fn life(&self, context: Context) -> Result<u64> {
        let arguments = CallArguments::context(context);
        self.ask(Call::CtxGetId, arguments, |state| state.contexts.life(context))
    }

    fn take_event(&self, context: Context) -> Result<Event> {
        let spared = self.make(Call::EventCreate.name(), |state| state.spared_event(context))?;
        spared.map_or_else(|| self.create_event(), Ok)
    }

    fn spare_event(&self, event: Event) {
        self.lock().spare_event(event);
    }

    fn is_reached(&self, event: Event) -> Result<bool> {
        self.check_life(Call::EventQuery, event)?;
        self.relaxed(|| self.query_event(event))
    }

    fn wait_until(&self, event: Event) -> Result<()> {
        self.check_life(Call::EventSynchronize, event)?;
        self.relaxed(|| self.synchronize_event(event))
    }

    fn capture_status(&self, stream: Alive<'_>) -> Result<CaptureStatus> {
        let stream = stream.named_here();
        let asked = match self.is_capturing(stream) {
            Err(error) if codes::of(&error) == codes::STREAM_CAPTURE_IMPLICIT => {
                return Ok(CaptureStatus::Beside);
            }
            asked => asked?,
        };
        if asked {
            self.capture_number(stream).map(CaptureStatus::Inside)
        } else {
            Ok(CaptureStatus::Outside)
        }
    }

    fn is_blocking(&self, stream: Alive<'_>) -> Result<bool> {
        let stream = stream.named_here();
        self.ask(Call::StreamGetFlags, CallArguments::stream(stream), |state| {
            let id = state.not_capturing(stream)?;
            Ok(state.streams.get(id).ordering == stream_table::LegacyOrdering::Blocking)
        })
    }

    fn stream_context(&self, stream: Alive<'_>) -> Result<Context> {
        let stream = stream.named_here();
        self.ask(Call::StreamGetCtx, CallArguments::stream(stream), |state| {
            let id = state.native(stream)?;
            Ok(state.streams.get(id).context)
        })
    }

    fn stream_number(&self, stream: Alive<'_>) -> Result<u64> {
        let stream = stream.named_here();
        self.ask(Call::StreamGetId, CallArguments::stream(stream), |state| {
            state.not_capturing(stream).map(stream_table::StreamId::number)
        })
    }

    fn record_event(&self, event: Event, stream: Alive<'_>) -> Result<()> {
        self.record_on(event, stream.named_here())
    }

    fn wait_event(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        self.wait_on(stream.named_here(), event)
    }

    fn wait_external(&self, stream: Alive<'_>, event: Event) -> Result<()> {
        self.wait_external_on(stream.named_here(), event)
    }

    fn synchronize_context(&self) -> Result<()> {
        self.synchronize_current()
    }
}
