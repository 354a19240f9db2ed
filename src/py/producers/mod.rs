//! Taking an array in: what its type is known to do, and the ways that it can come.

pub(crate) mod cai;
pub(crate) mod dlpack;
pub(crate) mod fields;
mod guards;
mod ndarray;
mod silence;
pub(crate) mod types;
