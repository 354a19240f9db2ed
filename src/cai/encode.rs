//! Makes the entries of a version 3 dict from a descriptor.

use crate::descriptor::{CaiDims, Descriptor};
use crate::error::Result;
use crate::stream::{Ready, Thread};

/// The entries of a dict of version 3.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entries<'a> {
    /// `shape`: the extents of [`Descriptor::cai_shape`].
    pub shape: CaiDims<'a>,
    /// `typestr`. If only the CUDA Array Interface can express the array, this is `|V0`: the descriptor does not hold
    /// the typestr of such an array.
    pub typestr: &'static str,
    /// `data`: the pointer, 0 if there are no elements, and the read-only flag.
    pub data: (u64, bool),
    /// `strides` in bytes; `None` for a C-contiguous array.
    pub strides: Option<CaiDims<'a>>,
    /// `stream`; `None` if nothing is pending.
    pub stream: Option<u64>,
}

/// Makes the entries of `array` for a reader on the thread `here`. `ready` says where work is pending, if any.
///
/// # Errors
///
/// The element type exists only in DLPack, such as one of 4 bits.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[inline]
pub fn encode(array: &Descriptor, ready: Ready, here: Thread) -> Result<Entries<'_>> {
    if !array.dtype().is_cais_alone() {
        array.dtype().check_shared()?;
    }
    Ok(Entries {
        shape: array.cai_extents(),
        typestr: array.dtype().typestr(),
        data: (array.ptr(), array.readonly()),
        strides: if array.layout().is_contiguous() { None } else { Some(array.cai_steps()) },
        stream: ready.to_cai(here),
    })
}
