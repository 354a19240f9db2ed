//! Faults: calls of the driver that are made to fail.
//!
//! A call can be made to fail with a code of the driver, or to report success and do nothing. The
//! second is how a test proves that a wait is needed. Refused: names that are no entry point here, a
//! zeroth call, a failure with the code of success, and success without effect for a call whose
//! result its caller goes on to use.

use std::fmt;

use super::Simulated;
use super::call::Call;

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
                write!(f, "call: got {name:?}")?;
                if let Some(near) = near(name) {
                    write!(f, ", perhaps for {}", near.name())?;
                }
                f.write_str("; allowed: ")?;
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

/// The call whose name has most in common with `name`: half of it at least.
fn near(name: &str) -> Option<Call> {
    let common = |call: &Call| {
        let parts = (0..name.len()).flat_map(|from| (from..=name.len()).map(move |to| from..to));
        let found = |part: &str| !part.is_empty() && call.name().contains(part);
        parts.filter(|part| name.get(part.clone()).is_some_and(found)).map(|part| part.len()).max()
    };
    let calls = Call::ALL.iter().copied().filter_map(|call| Some((common(&call)?, call)));
    let (most, call) = calls.max_by_key(|(most, _)| *most)?;
    (2 * most > call.name().len()).then_some(call)
}

fn list(f: &mut fmt::Formatter<'_>, calls: impl Iterator<Item = Call>) -> fmt::Result {
    for (at, call) in calls.enumerate() {
        write!(f, "{}{}", if at == 0 { "" } else { ", " }, call.name())?;
    }
    Ok(())
}

impl std::error::Error for FaultError {}

/// What shall become of a later call: it fails with the code, or (`None`) does nothing.
#[derive(Debug)]
pub(super) struct Fault {
    call: Call,
    nth: u32,
    left: u32,
    pub(super) code: Option<u32>,
}

/// The faults that are still to come.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Counts this call against every fault for it; the first that is due is taken.
    pub(super) fn due(&mut self, call: Call) -> Option<Fault> {
        let mut due = None;
        for (at, fault) in self.0.iter_mut().enumerate() {
            if fault.call == call {
                fault.left = fault.left.saturating_sub(1);
                if fault.left == 0 && due.is_none() {
                    due = Some(at);
                }
            }
        }
        due.map(|at| self.0.remove(at))
    }
}

impl Call {
    /// The call of that name.
    pub fn named(name: &str) -> Result<Self, FaultError> {
        let mut all = Self::ALL.iter().copied();
        all.find(|call| call.name() == name).ok_or_else(|| FaultError::UnknownCall(name.to_owned()))
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
        self.lock().calls.faults.0.push(Fault { call, nth, left: nth, code });
        Ok(())
    }

    /// Takes back the calls that were to do nothing and have not come; says so of the first.
    pub(crate) fn take_unused(&self) -> Option<String> {
        let faults = &mut self.lock().calls.faults.0;
        let unused: Vec<Fault> = faults.extract_if(.., |fault| fault.code.is_none()).collect();
        unused.first().map(|Fault { call, nth, left, .. }| {
            let made = nth - left;
            let name = call.name();
            format!("the call number {nth} of {name}, which suppress leaves out, did not come: {made} were made since")
        })
    }

    /// Takes back the faults that have not come yet; returns how many there were.
    pub fn clear_faults(&self) -> usize {
        std::mem::take(&mut self.lock().calls.faults.0).len()
    }
}
