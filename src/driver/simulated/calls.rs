//! How the driver calls are made, and a log of them, which keeps the last [`LOGGED`].

use std::collections::VecDeque;

use super::call::{Arguments, Call, CallRecord, Outcome};
use super::codes;
use super::faults::{Fault, Faults};
use super::{Simulated, State};
use crate::error::Result;
use crate::stream::Thread;

/// How many calls the log keeps: those that were made last. A program that runs for long does not
/// grow by what it calls.
pub const LOGGED: usize = 1 << 16;

/// The log and the faults that are still to come.
#[derive(Debug, Default)]
pub(super) struct Calls {
    log: VecDeque<CallRecord>,
    pub(super) faults: Faults,
}

/// What a call comes to: an answer, or the code of CUDA's that it fails with. The call's name is added where it
/// is made.
pub(super) type DriverResult<T> = Result<T, u32>;

impl Simulated {
    /// Makes a call that is neither logged nor made to fail.
    pub(super) fn make<T>(
        &self,
        call: &'static str,
        body: impl FnOnce(&mut State) -> DriverResult<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        state.call = call;
        body(&mut state).map_err(|code| codes::failed(call, code))
    }

    /// Makes the call that `body` carries out, unless a fault is due; `None` where it is suppressed.
    pub(super) fn called<T>(
        &self,
        call: Call,
        arguments: Arguments,
        body: impl FnOnce(&mut State) -> DriverResult<T>,
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

    /// The same for a call whose result is used, which is never suppressed.
    pub(super) fn ask<T>(
        &self,
        call: Call,
        arguments: Arguments,
        body: impl FnOnce(&mut State) -> DriverResult<T>,
    ) -> Result<T> {
        self.called(call, arguments, body)?
            .ok_or_else(|| codes::failed(call.name(), codes::UNKNOWN))
    }

    /// The same for a call that answers nothing.
    pub(super) fn act(
        &self,
        call: Call,
        arguments: Arguments,
        body: impl FnOnce(&mut State) -> DriverResult<()>,
    ) -> Result<()> {
        self.called(call, arguments, body).map(drop)
    }

    /// The last [`LOGGED`] driver calls of all threads, in their order.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.lock().calls.log.iter().copied().collect()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.lock().calls.log.clear();
    }
}
