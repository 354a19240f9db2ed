//! The protocol for which an array is imported. Only the limits of that protocol are checked: an array that only DLPack
//! can express passes from DLPack to DLPack, and likewise for the CUDA Array Interface.

use pyo3::prelude::*;

use crate::dtype::Dtype;
use crate::error::Result;
use crate::py::cai_dict;
use crate::py::lease::HeldMemory;
use crate::py::streams::StreamArgument;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Cai,
    /// NumPy has all types of CAI. It gets a copy of the bytes, so they need not be aligned.
    Numpy,
    DLPack,
    Any,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportFor<'a, 'py> {
    pub(crate) door: &'static str,
    /// The stream for which the array is imported; unspecified if the call names none, or hands the array over later.
    pub(crate) argument: &'a StreamArgument<'a, 'py>,
    /// The stream that the caller named as the consumer's. This may be a stream although `argument` is unspecified.
    pub(crate) consumer: &'a StreamArgument<'a, 'py>,
    pub(crate) wanted: Wanted,
}

impl Wanted {
    #[inline(always)]
    pub(crate) fn check_dtype(self, dtype: Dtype) -> Result<()> {
        if matches!(self, Self::Cai | Self::Numpy) { dtype.check_shared() } else { Ok(()) }
    }

    /// Fails if the consumer cannot express the array, or if the array is misaligned and not for NumPy.
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
