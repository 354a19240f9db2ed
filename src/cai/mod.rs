//! The CUDA Array Interface, versions 0 to 3, without Python types.
//!
//! [`Fields`] is a dict with its values read, which [`decode()`] checks; [`encode()`] gives the [`Entries`] of one. The
//! specification is
//! [CUDA Array Interface (Version 3)](https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).

mod decode;
mod encode;

pub use decode::{Claim, Decoded, Dialect, decode, is_of_dlpacks};
pub use encode::{Entries, encode};

use crate::layout::Dims;

/// The version that is written.
pub const VERSION: i64 = 3;

/// The entries of the dict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields<'a> {
    /// `shape`: extents in items.
    pub shape: Dims,
    /// `typestr`.
    pub typestr: &'a str,
    /// `data`: the pointer and the read-only flag.
    pub data: (u64, bool),
    /// `strides`: bytes, `None` for C-contiguous.
    pub strides: Option<Dims>,
    /// `version`.
    pub version: i64,
    /// `stream`: `None` where it is absent or `None`.
    pub stream: Option<i128>,
    /// Whether `descr` names fields.
    pub structured: bool,
}
