//! Logging and traces.

mod fields;
mod span;
pub(crate) mod to_logging;
pub(crate) mod trace;

pub(crate) use span::{By, CallSpan, EndOutcome, EndTag, EndedBy, PassedArray};
