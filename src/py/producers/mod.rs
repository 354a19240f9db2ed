//! Taking an array in: what its type is known to do, and the ways that it can come.

pub(crate) mod cai;
pub(crate) mod dlpack;
mod guards;
pub(crate) mod habits;
mod ndarray;
mod silence;
pub(crate) mod types;
