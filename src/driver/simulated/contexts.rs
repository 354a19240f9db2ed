//! Devices, their contexts, and each thread's stack of current contexts.
//!
//! A thread that has set no context uses the primary context of device 0, as after `cudaSetDevice(0)`.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::call_log::DriverResult;
use super::codes;
use super::report::ReportKind;
use super::{MachineState, Simulated};
use crate::driver::{Context, Event};
use crate::error::Result;
use crate::stream::Thread;

/// Contexts look like pointers, and have the same addresses in every run.
const FIRST: usize = 0x4000_0000;
const STEP: usize = 0x100;

const SET_DEVICE: &str = "cudaSetDevice";

/// Each device's first context is its primary one.
#[derive(Debug)]
pub(super) struct Contexts {
    ordinals: Vec<i32>,
    resets: Vec<u64>,
    devices: usize,
    retained: Vec<i32>,
    stacks: HashMap<Thread, Vec<Context>>,
}

fn numbered(index: usize) -> Option<Context> {
    index.checked_mul(STEP)?.checked_add(FIRST).and_then(NonZeroUsize::new).map(Context)
}

fn index(context: Context) -> Option<usize> {
    let offset = context.0.get().checked_sub(FIRST)?;
    (offset % STEP == 0).then_some(offset / STEP)
}

impl Contexts {
    pub(super) fn new(devices: u32) -> Self {
        let ordinals: Vec<i32> = (0..i32::try_from(devices).unwrap_or(i32::MAX)).collect();
        let (devices, resets) = (ordinals.len(), vec![0; ordinals.len()]);
        Self { devices, ordinals, resets, retained: Vec::new(), stacks: HashMap::new() }
    }

    pub(super) fn devices(&self) -> usize {
        self.devices
    }

    pub(super) fn primary(&self, ordinal: i32) -> DriverResult<Context> {
        usize::try_from(ordinal)
            .ok()
            .filter(|index| *index < self.devices)
            .and_then(numbered)
            .ok_or(codes::INVALID_DEVICE)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Context> + use<> {
        (0..self.ordinals.len()).filter_map(numbered)
    }

    pub(super) fn ordinal(&self, context: Context) -> DriverResult<i32> {
        index(context)
            .and_then(|index| self.ordinals.get(index))
            .copied()
            .ok_or(codes::INVALID_CONTEXT)
    }

    /// The number that `cuCtxGetId` returns. A reset of the context changes the number.
    pub(super) fn life(&self, context: Context) -> DriverResult<u64> {
        self.ordinal(context)?;
        let resets = index(context).and_then(|index| self.resets.get(index)).copied();
        Ok((context.0.get() as u64) << 16 | resets.unwrap_or(0))
    }

    pub(super) fn is_retained(&self, ordinal: i32) -> bool {
        self.retained.contains(&ordinal)
    }

    pub(super) fn retain(&mut self, ordinal: i32) {
        self.retained.push(ordinal);
    }

    pub(super) fn describe(&self, context: Context) -> String {
        match index(context).and_then(|index| Some((index, *self.ordinals.get(index)?))) {
            Some((index, ordinal)) if index < self.devices => format!("device {ordinal}"),
            Some((index, ordinal)) => {
                format!("device {ordinal}, context#{}", index - self.devices + 1)
            }
            None => "an unknown context".to_owned(),
        }
    }

    fn stack(&mut self) -> &mut Vec<Context> {
        let first = if self.devices == 0 { None } else { numbered(0) };
        self.stacks.entry(Thread::current()).or_insert_with(|| first.into_iter().collect())
    }

    pub(super) fn current(&mut self) -> Option<Context> {
        self.stack().last().copied()
    }

    pub(super) fn needed(&mut self) -> DriverResult<Context> {
        self.current().ok_or(codes::INVALID_CONTEXT)
    }

    pub(super) fn push(&mut self, context: Context) -> DriverResult<()> {
        self.ordinal(context)?;
        self.stack().push(context);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> DriverResult<()> {
        self.stack().pop().map(|_| ()).ok_or(codes::INVALID_CONTEXT)
    }

    fn replace(&mut self, context: Option<Context>) {
        let stack = self.stack();
        stack.pop();
        stack.extend(context);
    }

    fn create(&mut self, ordinal: i32) -> DriverResult<Context> {
        self.primary(ordinal)?;
        let context = numbered(self.ordinals.len()).ok_or(codes::OUT_OF_MEMORY)?;
        self.ordinals.push(ordinal);
        self.resets.push(0);
        Ok(context)
    }
}

impl MachineState {
    /// Fails with a report if the event's context was reset after the event was made. A real driver can crash.
    pub(super) fn refuse_dead(&mut self, event: Event) -> DriverResult<()> {
        if self.contexts.life(event.context)? == event.life {
            return Ok(());
        }
        let place = self.contexts.describe(event.context);
        let why = "its context was reset; a real driver dies of this (SIGSEGV)";
        self.report_stream(ReportKind::DeadEvent, format!("an event of {place}").into(), why);
        Err(codes::INVALID_HANDLE)
    }
}

impl Simulated {
    pub fn set_device(&self, ordinal: i32) -> Result<()> {
        self.make(SET_DEVICE, |state| {
            let context = state.contexts.primary(ordinal)?;
            state.contexts.replace(Some(context));
            Ok(())
        })
    }

    pub fn device(&self) -> Option<i32> {
        let mut state = self.lock();
        let context = state.contexts.current()?;
        state.contexts.ordinal(context).ok()
    }

    /// Runs all queued work, then destroys the streams, events and memory of the device's primary context. The next
    /// primary context has the same address.
    pub fn reset_device(&self, ordinal: i32) -> Result<()> {
        self.run_all()?;
        let reset = "cuDevicePrimaryCtxReset";
        let context = self.make(reset, |state| state.contexts.primary(ordinal))?;
        let mut state = self.lock();
        if let Some(resets) = index(context).and_then(|at| state.contexts.resets.get_mut(at)) {
            *resets += 1;
        }
        state.contexts.retained.retain(|known| *known != ordinal);
        let captures = state.leave_captures_in(context);
        state.streams.take_down(context);
        state.memory.take_down(context);
        drop(state);
        drop(captures);
        Ok(())
    }

    pub fn on_device<R>(&self, ordinal: i32, call: impl FnOnce() -> Result<R>) -> Result<R> {
        self.make(SET_DEVICE, |state| {
            let context = state.contexts.primary(ordinal)?;
            state.contexts.push(context)
        })?;
        let result = call();
        self.make(SET_DEVICE, |state| state.contexts.pop())?;
        result
    }

    /// `cuCtxSetCurrent(NULL)`: the next context on the thread's stack, if any, becomes current.
    pub fn unset_device(&self) {
        self.lock().contexts.replace(None);
    }

    /// The new context does not become current.
    pub fn create_context(&self, ordinal: i32) -> Result<Context> {
        self.make("cuCtxCreate", |state| state.contexts.create(ordinal))
    }
}
