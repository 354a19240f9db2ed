//! The protocol for which an array is imported.

use pyo3::prelude::*;

use crate::dtype::Dtype;
use crate::error::Result;
use crate::py::cai_dict;
use crate::py::lease::HeldMemory;
use crate::py::streams::StreamArgument;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Cai,
    /// NumPy has every element type that CAI has. NumPy gets a copy of the bytes, so the array need not be aligned.
    Numpy,
    DLPack,
    Any,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportFor<'a, 'py> {
    pub(crate) door: &'static str,
    /// The stream for which the array is imported; may be unspecified although `consumer` names a stream.
    pub(crate) argument: &'a StreamArgument<'a, 'py>,
    /// The stream that the caller named as the consumer's.
    pub(crate) consumer: &'a StreamArgument<'a, 'py>,
    pub(crate) wanted: Wanted,
}

impl Wanted {
    #[inline(always)]
    pub(crate) fn check_dtype(self, dtype: Dtype) -> Result<()> {
        if matches!(self, Self::Cai | Self::Numpy) { dtype.check_shared() } else { Ok(()) }
    }

    /// Fails for an element type that the protocol cannot express and, except for NumPy, for a misaligned array.
    #[inline(always)]
    pub(crate) fn check(self, py: Python<'_>, source: &HeldMemory) -> PyResult<()> {
        let (array, dtype) = (&source.array, source.array.dtype());
        if dtype.is_shared() && (self == Self::Numpy || array.is_aligned(dtype.alignment())) {
            return Ok(());
        }
        self.check_uncommon(py, source)
    }

    #[cold]
    fn check_uncommon(self, py: Python<'_>, source: &HeldMemory) -> PyResult<()> {
        let (array, words) = (&source.array, source.words().map(|words| words.bind(py)));
        match (self, words) {
            (Self::DLPack, Some(words)) => return Err(cai_dict::no_word(array, words)),
            (Self::Cai | Self::Numpy, None) => array.dtype().check_shared()?,
            _ => {}
        }
        if self == Self::Numpy {
            return Ok(());
        }
        let of_words = words.map(cai_dict::alignment).transpose()?;
        Ok(array.check_aligned(of_words.unwrap_or(array.dtype().alignment()))?)
    }
}
