//! The CUDA Array Interface, versions 0 to 3, without Python types.
//!
//! [`Fields`] holds a dict's values, and [`Fields::decode`] checks them. [`encode()`] makes the [`Entries`] of a new
//! dict. They need no feature, no Python and no driver. The specification is
//! [CUDA Array Interface (Version 3)](https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).
//!
//! ```
//! use cai_bridge::cai::{Claim, Fields, VERSION, encode};
//! use cai_bridge::stream::{Ready, Stream, Thread};
//! use cai_bridge::{Descriptor, Device};
//!
//! // A dict's entries: two rows of four floats without the last column, pending on the legacy default stream.
//! let fields = Fields {
//!     shape: [2, 3].into_iter().collect(),
//!     typestr: "<f4",
//!     data: (0x7f00_0000, false),
//!     strides: Some([16, 4].into_iter().collect()),
//!     version: VERSION, // 3; 0 to 2 are accepted too
//!     stream: Some(1),
//!     structured: false,
//! };
//! let (decoded, layout) = fields.decode(None)?;
//! assert_eq!(decoded.claim, Claim::Stated(Ready::On(Stream::Legacy)));
//! assert_eq!((layout.strides(), layout.is_contiguous()), (&[4, 1][..], false));
//!
//! // A dict names no device. Ask the driver which device the pointer is on.
//! let (ptr, dtype) = (decoded.ptr, decoded.dtype);
//! let array = Descriptor::new(ptr, dtype, (layout, decoded.reach), Device::cuda(0), decoded.readonly)?;
//!
//! // Back to a dict's entries.
//! let entries = encode(&array, Ready::Nothing, Thread::current())?;
//! assert_eq!((entries.typestr, entries.data, entries.stream), ("<f4", (0x7f00_0000, false), None));
//! assert_eq!(entries.shape.collect::<Vec<_>>(), [2, 3]);
//! assert_eq!(entries.strides.unwrap().collect::<Vec<_>>(), [16, 4]);
//! # Ok::<(), cai_bridge::Error>(())
//! ```

mod decode;
mod encode;

pub use decode::{Claim, Decoded};
#[doc(hidden)]
pub use decode::{Dialect, decode, is_of_dlpacks, laid_out};
pub use encode::{Entries, encode};

use crate::layout::Dims;

/// The version of the dicts that the bridge writes.
///
/// # Examples
///
/// See [`cai`](crate::cai).
pub const VERSION: i64 = 3;

/// The entries of a dict.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields<'a> {
    /// `shape`.
    pub shape: Dims,
    /// `typestr`.
    pub typestr: &'a str,
    /// `data`: the pointer and the read-only flag.
    pub data: (u64, bool),
    /// `strides` in bytes. `None` means that the array is C-contiguous.
    pub strides: Option<Dims>,
    /// `version`.
    pub version: i64,
    /// `stream`: `None` if the entry is absent or `None`.
    pub stream: Option<i128>,
    /// Whether the entry `descr` exists and has fields. A `descr` that only repeats the typestr, `[("", typestr)]`, has
    /// none.
    pub structured: bool,
}
