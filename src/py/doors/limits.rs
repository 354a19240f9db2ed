//! The limits of a library's arrays, as its `Library` object declares them. An array that the bridge
//! cannot make fit is refused before the library is called.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

use crate::descriptor::Descriptor;
use crate::device::{Device, MemoryKind};
use crate::dlpack::encode;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::py::lease::HeldMemory;
use crate::py::text::{shown, tuple_text};

#[derive(Debug)]
pub(super) struct Limits {
    strides: Strides,
    /// Whether to describe pinned and managed memory to the library as memory of the consumer's GPU.
    gpu_memory_alone: bool,
    element_types: ElementTypes,
    versioned: bool,
    /// Whether the library may write to an array. If so, read-only memory is refused, unless `readonly` is false.
    pub(super) writes: bool,
    pub(super) readonly: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strides {
    Any,
    NotNegative,
    /// The strides of a compact array, with its axes in any order.
    Compact,
}

#[derive(Debug)]
struct ElementTypes {
    /// A bit for each one-lane element type that the library lacks, by the type's index in the dtype table.
    lacks: u32,
    /// The element types that the library has, as DLPack's code, bits and lanes; `None` if it has every type.
    all: Option<Vec<(u8, u8, u16)>>,
}

impl Limits {
    /// `by_table` says whether the bridge makes the library's arrays through the library's exchange API.
    pub(super) fn of(library: &Bound<'_, PyAny>, by_table: bool) -> PyResult<Self> {
        let py = library.py();
        let flag = |name| library.getattr(name)?.is_truthy();
        let types = library.getattr(intern!(py, "_element_types"))?;
        Ok(Self {
            strides: Strides::of(&library.getattr(intern!(py, "_strides"))?, by_table)?,
            gpu_memory_alone: flag(intern!(py, "_gpu_memory_alone"))?,
            element_types: ElementTypes::of(&types)?,
            versioned: flag(intern!(py, "_versioned"))?,
            writes: flag(intern!(py, "writes"))?,
            readonly: library.getattr(intern!(py, "readonly"))?.extract()?,
        })
    }

    #[inline(always)]
    pub(super) fn admit(&self, array: &mut Descriptor, readonly: Option<bool>) -> Result<()> {
        array.set_readonly(self.flag(readonly));
        if self.writes && array.readonly() {
            return Err(not_written(readonly));
        }
        let dtype = array.dtype();
        let is_common = dtype.is_shared() && dtype.lanes() == 1;
        if !is_common || self.element_types.lacks >> dtype.index() & 1 == 1 {
            self.admit_uncommon(array)?;
        }
        if self.strides.have(array) { Ok(()) } else { self.mend_strides(array) }
    }

    /// The read-only flag to set. For a library with legacy capsules and the default False, True becomes False.
    #[inline(always)]
    const fn flag(&self, readonly: Option<bool>) -> Option<bool> {
        match (self.versioned, self.readonly, readonly) {
            (false, Some(false), Some(true)) => self.readonly,
            _ => readonly,
        }
    }

    /// Fails for an element type that the library lacks, and for padded elements that the library cannot take.
    #[cold]
    fn admit_uncommon(&self, array: &Descriptor) -> Result<()> {
        let dtype = array.dtype();
        let given = (dtype.code(), dtype.bits(), dtype.lanes());
        let lacks = |all: &Vec<_>| !all.contains(&given) || dtype.is_padded();
        if self.element_types.all.as_ref().is_some_and(lacks) {
            return Err(Error::new(Kind::DtypeConverted, format!("{dtype:?}")));
        }
        if self.versioned {
            return Ok(());
        }
        encode::check_padding(array, "takes legacy capsules")
    }

    /// Gives unused strides the values of a C-contiguous array. Fails if the library still cannot take the strides.
    #[cold]
    fn mend_strides(&self, array: &mut Descriptor) -> Result<()> {
        array.layout_mut().compact_unused();
        if self.strides.have(array) {
            return Ok(());
        }
        let kind = match self.strides {
            Strides::Compact => Kind::StridesNotCompact,
            _ => Kind::StrideNegative,
        };
        Err(Error::new(kind, tuple_text(array.layout().strides())))
    }

    /// For a library that takes only GPU memory, describes the array as memory of the consumer's GPU. Call this after
    /// the hand-over.
    #[inline(always)]
    pub(super) fn name_device(&self, source: &mut HeldMemory) {
        if self.gpu_memory_alone && source.array.device().kind != MemoryKind::Device {
            let device = Device::cuda(source.consumer_place().ordinal);
            source.array.set_device(device);
        }
    }
}

#[cold]
fn not_written(readonly: Option<bool>) -> Error {
    match readonly {
        Some(_) => Error::new(Kind::ReadOnlyAsked, "True for a library that may write"),
        None => Error::new(Kind::ReadOnlyConverted, "read-only memory"),
    }
}

impl Strides {
    fn of(said: &Bound<'_, PyAny>, by_table: bool) -> PyResult<Self> {
        // PyTorch's exchange API ends the process on negative strides, so an exchange API gets none by default.
        if said.is_none() {
            return Ok(if by_table { Self::NotNegative } else { Self::Any });
        }
        match said.extract()? {
            "any" => Ok(Self::Any),
            "not negative" => Ok(Self::NotNegative),
            "compact" => Ok(Self::Compact),
            _ => Err(PyTypeError::new_err(format!("_strides: got {}", shown(said)?))),
        }
    }

    #[inline]
    fn have(self, array: &Descriptor) -> bool {
        match self {
            Self::Any => true,
            Self::NotNegative => array.layout().strides().iter().all(|step| *step >= 0),
            Self::Compact => array.layout().is_compact() && !array.layout().has_odd_unused(),
        }
    }
}

impl ElementTypes {
    fn of(said: &Bound<'_, PyAny>) -> PyResult<Self> {
        if said.is_none() {
            return Ok(Self { lacks: 0, all: None });
        }
        let all: Vec<(u8, u8, u16)> =
            said.cast::<PyFrozenSet>()?.iter().map(|one| one.extract()).collect::<PyResult<_>>()?;
        let lacking = Dtype::all().filter(|dtype| !all.contains(&(dtype.code(), dtype.bits(), 1)));
        Ok(Self {
            lacks: lacking.fold(0, |lacks, dtype| lacks | 1 << dtype.index()),
            all: Some(all),
        })
    }
}
