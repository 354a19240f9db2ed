//! Injected faults: driver calls that are made to fail with a driver's code, or to report success and do nothing. The
//! second kind lets a test prove that a wait is needed.

use std::fmt;

use super::Simulated;
use super::entry_points::Call;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultError {
    UnknownCall(String),
    ZerothCall,
    SuccessCode,
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

/// The entry point that shares the longest substring with `name`, if the substring is longer than half of the entry
/// point's name.
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

/// With a `code` the call fails. Without a `code` the call reports success and does nothing.
#[derive(Debug)]
pub(super) struct Fault {
    call: Call,
    nth: u32,
    left: u32,
    pub(super) code: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Counts the call for each fault of its entry point. Returns the oldest fault that is due.
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
    pub fn named(name: &str) -> Result<Self, FaultError> {
        let mut all = Self::ALL.iter().copied();
        all.find(|call| call.name() == name).ok_or_else(|| FaultError::UnknownCall(name.to_owned()))
    }
}

impl Simulated {
    /// Makes the `nth` next call (from 1) of this entry point fail with `code`, without an effect. If an older fault is
    /// due at that call, this fault is due at the call after it.
    pub fn fail(&self, call: &str, nth: u32, code: u32) -> Result<(), FaultError> {
        if code == 0 {
            return Err(FaultError::SuccessCode);
        }
        self.add_fault(call, nth, Some(code))
    }

    /// Like [`Self::fail`], but the call reports success and does nothing.
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

    pub(crate) fn take_unused(&self) -> Option<String> {
        let faults = &mut self.lock().calls.faults.0;
        let unused: Vec<Fault> = faults.extract_if(.., |fault| fault.code.is_none()).collect();
        unused.first().map(|Fault { call, nth, left, .. }| {
            let made = nth - left;
            let name = call.name();
            format!("the call number {nth} of {name}, which suppress leaves out, did not come: {made} were made since")
        })
    }

    /// Returns the number of faults that had not happened.
    pub fn clear_faults(&self) -> usize {
        std::mem::take(&mut self.lock().calls.faults.0).len()
    }
}
