//! The functions that users call: each reads from top to bottom like its docs.

mod of_any;
mod of_cai;
mod of_dlpack;

pub(crate) use of_any::{_convert, to_dlpack};
pub(crate) use of_cai::from_cai;
pub(crate) use of_dlpack::to_cai;
