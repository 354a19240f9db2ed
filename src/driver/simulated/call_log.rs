//! Runs driver calls, with or without the log and the injected faults. The log keeps the last [`LOGGED`] calls.

use std::collections::VecDeque;

use super::codes;
use super::entry_points::{Call, CallArguments, CallRecord, Outcome};
use super::faults::{Fault, Faults};
use super::{MachineState, Simulated};
use crate::error::Result;
use crate::stream::Thread;

pub const LOGGED: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct CallLog {
    log: VecDeque<CallRecord>,
    pub(super) faults: Faults,
}

/// The error is a `CUresult`.
pub(super) type DriverResult<T> = Result<T, u32>;

impl Simulated {
    /// Runs `body` without the log and the injected faults. Errors and reports show `call`.
    pub(super) fn make<T>(
        &self,
        call: &'static str,
        body: impl FnOnce(&mut MachineState) -> DriverResult<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        state.call = call;
        body(&mut state).map_err(|code| codes::failed(call, code))
    }

    /// Runs `body`, unless an injected fault is due. Logs the call in both cases. `None` if the fault suppresses the
    /// call.
    pub(super) fn called<T>(
        &self,
        call: Call,
        arguments: CallArguments,
        body: impl FnOnce(&mut MachineState) -> DriverResult<T>,
    ) -> Result<Option<T>> {
        self.make(call.name(), |state| {
            let result = match state.calls.faults.due(call) {
                Some(Fault { code: Some(code), .. }) => Err(code),
                Some(Fault { code: None, .. }) => Ok(None),
                None => body(state).map(Some),
            };
            let outcome = match &result {
                Ok(Some(_)) => Outcome::Done,
                Ok(None) => Outcome::Suppressed,
                Err(code) => Outcome::Failed(*code),
            };
            if state.calls.log.len() == LOGGED {
                state.calls.log.pop_front();
            }
            let thread = Thread::current();
            state.calls.log.push_back(CallRecord { call, arguments, thread, outcome });
            result
        })
    }

    /// Like [`Self::called`], but a suppressed call fails.
    pub(super) fn ask<T>(
        &self,
        call: Call,
        arguments: CallArguments,
        body: impl FnOnce(&mut MachineState) -> DriverResult<T>,
    ) -> Result<T> {
        self.called(call, arguments, body)?
            .ok_or_else(|| codes::failed(call.name(), codes::UNKNOWN))
    }

    /// Like [`Self::called`], but a suppressed call succeeds.
    pub(super) fn act(
        &self,
        call: Call,
        arguments: CallArguments,
        body: impl FnOnce(&mut MachineState) -> DriverResult<()>,
    ) -> Result<()> {
        self.called(call, arguments, body).map(drop)
    }

    pub fn calls(&self) -> Vec<CallRecord> {
        self.lock().calls.log.iter().copied().collect()
    }

    pub fn clear_calls(&self) {
        self.lock().calls.log.clear();
    }
}
