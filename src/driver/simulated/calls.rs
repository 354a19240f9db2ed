//! The driver calls that are made, and a log of them, which keeps the last [`LOGGED`].

use std::collections::VecDeque;

use super::codes;
use super::faults::{Fault, Faults};
use super::{Simulated, State};
use crate::driver::{Context, Event};
use crate::error::Result;
use crate::stream::{Stream, Thread};

macro_rules! calls {
    ($($name:ident = $entry:literal, $result:ident;)+) => {
        /// An entry point of the driver that is logged and can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Call {
            $(#[doc = concat!("`", $entry, "`.")] $name,)+
        }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The entry point's name, such as `cuEventRecord`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $entry,)+ }
            }

            /// Whether its caller gets nothing from it but success or failure.
            pub(super) const fn is_effect_only(self) -> bool {
                match self { $(Self::$name => calls!(@ $result),)+ }
            }
        }
    };
    (@ nothing) => { true };
    (@ value) => { false };
}

calls! {
    PointerGetAttributes = "cuPointerGetAttributes", value;
    PrimaryCtxRetain = "cuDevicePrimaryCtxRetain", value;
    CtxGetCurrent = "cuCtxGetCurrent", value;
    CtxGetDevice = "cuCtxGetDevice", value;
    CtxGetId = "cuCtxGetId", value;
    CtxPushCurrent = "cuCtxPushCurrent", nothing;
    CtxPopCurrent = "cuCtxPopCurrent", nothing;
    CtxSynchronize = "cuCtxSynchronize", nothing;
    EventCreate = "cuEventCreate", value;
    EventRecord = "cuEventRecord", nothing;
    EventQuery = "cuEventQuery", value;
    EventSynchronize = "cuEventSynchronize", nothing;
    StreamWaitEvent = "cuStreamWaitEvent", nothing;
    StreamSynchronize = "cuStreamSynchronize", nothing;
    StreamGetFlags = "cuStreamGetFlags", value;
    StreamGetCtx = "cuStreamGetCtx", value;
    StreamIsCapturing = "cuStreamIsCapturing", value;
    MemAllocAsync = "cuMemAllocAsync", value;
    MemFreeAsync = "cuMemFreeAsync", nothing;
    MemcpyAsync = "cuMemcpyAsync", nothing;
    MemcpyDtoHAsync = "cuMemcpyDtoHAsync", nothing;
    MemcpyPeerAsync = "cuMemcpyPeerAsync", nothing;
    Memcpy2DAsync = "cuMemcpy2DAsync", nothing;
    Memcpy3DAsync = "cuMemcpy3DAsync", nothing;
    Memcpy3DPeerAsync = "cuMemcpy3DPeerAsync", nothing;
    StreamGetCaptureInfo = "cuStreamGetCaptureInfo", value;
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did what it does. A host sync is logged before it blocks.
    Done,
    /// It reported success and did nothing, as [`Simulated::suppress`] asked.
    Suppressed,
    /// It failed with this code.
    Failed(u32),
}

/// What a call was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The stream.
    pub stream: Option<Stream>,
    /// The event.
    pub event: Option<Event>,
    /// The context.
    pub context: Option<Context>,
}

impl Arguments {
    pub(super) fn stream(stream: Stream) -> Self {
        Self { stream: Some(stream), ..Self::default() }
    }

    pub(super) fn stream_and_event(stream: Stream, event: Event) -> Self {
        Self { stream: Some(stream), event: Some(event), context: None }
    }

    pub(super) fn event(event: Event) -> Self {
        Self { event: Some(event), ..Self::default() }
    }

    pub(super) fn context(context: Context) -> Self {
        Self { context: Some(context), ..Self::default() }
    }
}

/// One call of the driver, as the log keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    /// The entry point.
    pub call: Call,
    /// What it was given.
    pub arguments: Arguments,
    /// The thread that called.
    pub thread: Thread,
    /// How it ended.
    pub outcome: Outcome,
}

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

    /// The driver calls so far, by whomever, in their order: the last [`LOGGED`] of them.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.lock().calls.log.iter().copied().collect()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.lock().calls.log.clear();
    }
}
