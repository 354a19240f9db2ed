//! What is told of the bridge's doings: records of Python's `logging`, and traces.

mod fields;
pub(crate) mod log;
mod span;
pub(crate) mod trace;

pub(crate) use span::{CallSpan, End, HandOver, Outcome};
