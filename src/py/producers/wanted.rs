//! The protocol that an array is taken in for. One that takes no part in a hand-over refuses nothing: what DLPack alone
//! has words for goes from DLPack to DLPack as it came, and what the CUDA Array Interface alone has, from that to that.

use pyo3::prelude::*;

use crate::dtype::Dtype;
use crate::error::Result;
use crate::py::cai_dict;
use crate::py::lease::Holding;

/// Who has to have a word for an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Consumers of the CUDA Array Interface.
    Cai,
    /// NumPy, whose types those are. It gets a copy of the bytes, wherever they are.
    Numpy,
    /// Consumers of DLPack.
    DLPack,
    /// No consumer yet.
    Any,
}

impl Wanted {
    /// Refuses a type of DLPack's that there is no word for.
    #[inline(always)]
    pub(crate) fn check_dtype(self, dtype: Dtype) -> Result<()> {
        if matches!(self, Self::Cai | Self::Numpy) { dtype.check_shared() } else { Ok(()) }
    }

    /// Refuses an array that was taken in, and that there is no word for, or whose addresses a GPU cannot read as its type.
    #[inline(always)]
    pub(crate) fn check(self, py: Python<'_>, source: &Holding) -> PyResult<()> {
        let (array, dtype) = (&source.array, source.array.dtype());
        if dtype.is_shared() && (self == Self::Numpy || array.is_aligned(dtype.alignment())) {
            return Ok(());
        }
        self.check_uncommon(py, source)
    }

    #[cold]
    fn check_uncommon(self, py: Python<'_>, source: &Holding) -> PyResult<()> {
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
