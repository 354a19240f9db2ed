//! Imports an array: the facts of its type, and each way to import it.

mod bases;
mod by_attributes;
mod by_dict;
pub(crate) mod cai;
pub(crate) mod device;
mod dict_stream;
pub(crate) mod dlpack;
mod dtype;
mod dunder;
pub(crate) mod host;
mod host_wait;
mod interface;
mod lazy;
mod missing_strides;
pub(crate) mod own_view;
mod readiness;
pub(crate) mod refusals;
mod silence;
pub(crate) mod types;
mod wanted;
mod whose_error;

pub(crate) use dunder::dlpack_device;
pub(crate) use wanted::{ImportFor, Wanted};
pub(crate) use whose_error::Refused;
