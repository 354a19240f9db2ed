//! From a descriptor to the entries of a version 3 dict.

use super::{Fields, VERSION};
use crate::descriptor::Descriptor;
use crate::stream::{Ready, Thread};

/// The entries that describe `array`, ready as `ready` says, for a reader on the thread `here`.
/// Strides are `None` for C-contiguous arrays, as consumers expect, and the pointer is 0 where there
/// are no elements.
#[inline]
pub fn encode(array: &Descriptor, ready: Ready, here: Thread) -> Fields<'static> {
    Fields {
        shape: array.cai_shape(),
        typestr: array.dtype().typestr(),
        data: (array.ptr(), array.readonly()),
        strides: if array.layout().is_contiguous() { None } else { Some(array.cai_strides()) },
        version: VERSION,
        stream: ready.to_cai(here).map(i128::from),
        masked: false,
        structured: false,
    }
}
