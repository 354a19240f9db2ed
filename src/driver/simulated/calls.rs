//! The driver calls that are made: a log of them, and faults to be made by the nth.
//!
//! A call can be made to fail with a code of the driver, or to report success and do nothing. The
//! second is how a test proves that a wait is needed. Refused: names that are no entry point here, a
//! zeroth call, a failure with the code of success, and success without effect for a call whose
//! result its caller goes on to use. The log keeps the last [`LOGGED`] calls.

use std::collections::VecDeque;
use std::fmt;

use super::codes;
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
            const fn is_effect_only(self) -> bool {
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

impl Call {
    /// The call of that name.
    pub fn named(name: &str) -> Result<Self, FaultError> {
        Self::ALL
            .iter()
            .copied()
            .find(|call| call.name() == name)
            .ok_or_else(|| FaultError::UnknownCall(name.to_owned()))
    }
}

/// Why a fault was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultError {
    /// Not the name of an entry point that the simulated device has.
    UnknownCall(String),
    /// Calls are counted from 1.
    ZerothCall,
    /// 0 is `CUDA_SUCCESS`.
    SuccessCode,
    /// The caller uses the call's result, so it cannot succeed without one.
    ResultNeeded(Call),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCall(name) => {
                write!(f, "call: got {name:?}; allowed: ")?;
                list(f, Call::ALL.iter().copied())
            }
            Self::ZerothCall => {
                f.write_str("nth: got 0; allowed: 1 for the next call, 2 for the one after, ...")
            }
            Self::SuccessCode => {
                f.write_str("code: got 0, which is CUDA_SUCCESS; allowed: the code of an error")
            }
            Self::ResultNeeded(call) => {
                write!(f, "call: got {:?}, whose result the caller uses; allowed: ", call.name())?;
                list(f, Call::ALL.iter().copied().filter(|call| call.is_effect_only()))
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, calls: impl Iterator<Item = Call>) -> fmt::Result {
    for (at, call) in calls.enumerate() {
        write!(f, "{}{}", if at == 0 { "" } else { ", " }, call.name())?;
    }
    Ok(())
}

impl std::error::Error for FaultError {}

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

/// What shall become of a later call: it fails with the code, or (`None`) does nothing.
#[derive(Debug)]
struct Fault {
    call: Call,
    left: u32,
    code: Option<u32>,
}

/// How many calls the log keeps: those that were made last. A program that runs for long does not
/// grow by what it calls.
pub const LOGGED: usize = 1 << 16;

/// The log and the faults that are still to come.
#[derive(Debug, Default)]
pub(super) struct Calls {
    log: VecDeque<CallRecord>,
    faults: Vec<Fault>,
}

impl Calls {
    /// Counts this call against every fault for it; the first that is due is taken.
    fn due(&mut self, call: Call) -> Option<Fault> {
        let mut due = None;
        for (at, fault) in self.faults.iter_mut().enumerate() {
            if fault.call == call {
                fault.left = fault.left.saturating_sub(1);
                if fault.left == 0 && due.is_none() {
                    due = Some(at);
                }
            }
        }
        due.map(|at| self.faults.remove(at))
    }
}

impl State {
    /// Makes the call that `body` carries out, unless a fault is due; `None` where it is suppressed.
    pub(super) fn called<T>(
        &mut self,
        call: Call,
        arguments: Arguments,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let result = match self.calls.due(call) {
            Some(Fault { code: Some(code), .. }) => Err(codes::failed(call.name(), code)),
            Some(Fault { code: None, .. }) => Ok(None),
            None => body(self).map(Some),
        };
        let outcome = match &result {
            Ok(Some(_)) => Outcome::Done,
            Ok(None) => Outcome::Suppressed,
            Err(error) => Outcome::Failed(codes::of(error)),
        };
        if self.calls.log.len() == LOGGED {
            self.calls.log.pop_front();
        }
        self.calls.log.push_back(CallRecord {
            call,
            arguments,
            thread: Thread::current(),
            outcome,
        });
        result
    }

    /// The same for a call whose result is used, which is never suppressed.
    pub(super) fn called_for<T>(
        &mut self,
        call: Call,
        arguments: Arguments,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.called(call, arguments, body)?
            .ok_or_else(|| codes::failed(call.name(), codes::UNKNOWN))
    }
}

impl Simulated {
    /// Makes the `nth` next call (from 1) of the entry point `call` fail with `code`, without effect.
    pub fn fail(&self, call: &str, nth: u32, code: u32) -> Result<(), FaultError> {
        if code == 0 {
            return Err(FaultError::SuccessCode);
        }
        self.add_fault(call, nth, Some(code))
    }

    /// Makes the `nth` next call (from 1) of the entry point `call` report success and do nothing.
    pub fn suppress(&self, call: &str, nth: u32) -> Result<(), FaultError> {
        self.add_fault(call, nth, None)
    }

    fn add_fault(&self, call: &str, nth: u32, code: Option<u32>) -> Result<(), FaultError> {
        let call = Call::named(call)?;
        if nth == 0 {
            return Err(FaultError::ZerothCall);
        }
        if code.is_none() && !call.is_effect_only() {
            return Err(FaultError::ResultNeeded(call));
        }
        self.lock().calls.faults.push(Fault { call, left: nth, code });
        Ok(())
    }

    /// Takes back the faults that have not come yet; returns how many there were.
    pub fn clear_faults(&self) -> usize {
        std::mem::take(&mut self.lock().calls.faults).len()
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
