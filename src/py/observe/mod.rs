//! What the bridge reports: records of Python's `logging`, and traces.

mod fields;
pub(crate) mod log;
mod span;
pub(crate) mod trace;

pub(crate) use span::{By, CallSpan, End, HandOver, Outcome};
