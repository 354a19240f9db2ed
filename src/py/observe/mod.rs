//! Logging and traces.

mod fields;
pub(crate) mod log;
mod span;
pub(crate) mod trace;

pub(crate) use span::{By, CallSpan, EndOutcome, EndTag, EndedBy, PassedArray};
