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
    /// Consumers of the CUDA Array Interface; NumPy as well, whose types those are.
    Cai,
    /// Consumers of DLPack.
    DLPack,
    /// No consumer yet.
    Any,
}

impl Wanted {
    /// Refuses a type of DLPack's that there is no word for.
    #[inline(always)]
    pub(crate) fn check_dtype(self, dtype: Dtype) -> Result<()> {
        if self == Self::Cai { dtype.check_shared() } else { Ok(()) }
    }

    /// Refuses an array that was taken in, and that there is no word for.
    #[inline(always)]
    pub(crate) fn check(self, py: Python<'_>, source: &Holding) -> PyResult<()> {
        if source.array.dtype().is_shared() { Ok(()) } else { self.check_uncommon(py, source) }
    }

    #[cold]
    fn check_uncommon(self, py: Python<'_>, source: &Holding) -> PyResult<()> {
        match (self, source.words()) {
            (Self::DLPack, Some(words)) => Err(cai_dict::no_word(&source.array, words.bind(py))),
            (Self::Cai, None) => Ok(source.array.dtype().check_shared()?),
            _ => Ok(()),
        }
    }
}
