//! What the bridge reports: records of Python's `logging`, and traces.

mod fields;
pub(crate) mod log;
mod told;
pub(crate) mod trace;

pub(crate) use told::{Began, Came, End, Passage};
