//! Checks a DLPack array of an unknown type against its CAI dict, and refuses a dict that contradicts DLPack. Unless
//! the library is known to follow DLPack, the hand-over also orders the dict's stream: VALI's `__dlpack__` ignores the
//! requested stream.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::types::{self, TypeFacts};
use crate::cai::Claim;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::error::{Error, Kind};
use crate::layout::Layout;
use crate::py::cai_dict::{self, Reading};
use crate::py::habits::Habit;
use crate::py::lease::HeldMemory;
use crate::py::streams::{
    DictExporter, KnownStream, StreamRef, Unnamed, current, dict_of, pending,
};
use crate::py::text::tuple_text;
use crate::stream::{Alive, Ready, Stream};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByDict {
    stream: Option<Stream>,
    /// True if the dict says that nothing is pending, or could not be read: it can name a stream later.
    is_idle: bool,
    pub(super) readonly: bool,
}

#[derive(Clone, Copy)]
pub(super) struct OfMemory<'a> {
    pub(super) driver: &'a Handle,
    pub(super) place: Place,
    pub(super) ptr: u64,
}

impl ByDict {
    /// `known` has the type facts of the array to which `x` delegates `__dlpack__`, or those of `x` itself.
    pub(super) fn of(
        x: &Bound<'_, PyAny>,
        facts: &TypeFacts,
        known: &TypeFacts,
        array: &Descriptor,
    ) -> PyResult<Self> {
        // Do not read the dicts of known types: reading JAX's dict would make the host wait.
        if known.is_known() || array.ptr() == 0 {
            return Ok(Self::default());
        }
        let of_object = || types::speaks(x, intern!(x.py(), "__cuda_array_interface__"));
        if !facts.has_cai && (known.has(Habit::KeepsToDlpack) || !of_object()?) {
            return Ok(Self::default());
        }
        match dict_of(x, array)? {
            Some(dict) => Self::heard(&dict, array),
            None => Ok(Self { is_idle: true, ..Self::default() }),
        }
    }

    /// Reads the dict's stream. Checks the dict against `array`, except for packed items and for vectors.
    #[cold]
    fn heard(dict: &Bound<'_, PyDict>, array: &Descriptor) -> PyResult<Self> {
        let dtype = array.dtype();
        if dtype.lanes() != 1 || dtype.is_packed() {
            let ready = pending(dict)?;
            return Ok(Self {
                stream: ready.stream(),
                is_idle: ready == Ready::Nothing,
                readonly: false,
            });
        }
        // For an element type that no typestr can express, and for bool, accept every typestr of the same item size.
        let by_typestr = !dtype.is_opaque() && dtype.typestr() != "|b1";
        let said = if by_typestr { None } else { Some(dtype) };
        let (mut layout, reading) = (Layout::EMPTY.clone(), Reading { said, ..Reading::default() });
        let decoded = cai_dict::decode(dict, reading, |_| Ok((None, None)), &mut layout, None)?;
        if decoded.dtype != dtype {
            let (typestr, name) = (decoded.dtype.typestr(), dtype.name());
            let got = format!("{typestr} for memory that is {name} by DLPack");
            return Err(Error::at(Kind::DtypeDiffers, "typestr", got).into());
        }
        layout.compact_unused();
        let mut own = array.layout().clone();
        own.compact_unused();
        if layout != own {
            let (what, said, dlpacks) = if layout.shape() == own.shape() {
                ("strides in elements", layout.strides(), own.strides())
            } else {
                ("shape", layout.shape(), own.shape())
            };
            let got = format!("{what} {} for {} by DLPack", tuple_text(said), tuple_text(dlpacks));
            return Err(Error::new(Kind::SaidTwice, got).into());
        }
        if decoded.ptr != array.ptr() {
            let got = format!("the address {:#x} for {:#x} by DLPack", decoded.ptr, array.ptr());
            return Err(Error::new(Kind::SaidTwice, got).into());
        }
        let stream = match decoded.claim {
            Claim::Stated(ready) => ready.stream(),
            Claim::Silent => None,
        };
        let is_idle = decoded.claim == Claim::Stated(Ready::Nothing);
        Ok(Self { stream, is_idle, readonly: decoded.readonly })
    }

    pub(super) fn pending<'py>(
        &self,
        py: Python<'py>,
        known: &TypeFacts,
        place: Place,
    ) -> Option<Alive<'py>> {
        let named = self.stream.filter(|_| !known.has(Habit::KeepsToDlpack));
        named.map(|named| current::named(py, named.handle(), place))
    }

    /// If the dict of `x` can name a stream later, returns `x` to be asked again.
    pub(super) fn unnamed(
        &self,
        x: &Bound<'_, PyAny>,
        known: &TypeFacts,
        of: OfMemory<'_>,
    ) -> PyResult<Option<Unnamed>> {
        let OfMemory { driver, place, ptr } = of;
        let named = || Unnamed::new(driver, place, x, ptr, known.says_what_is_pending());
        self.is_idle.then(named).transpose()
    }

    pub(super) fn kept(
        &self,
        x: &Bound<'_, PyAny>,
        known: &TypeFacts,
        of: OfMemory<'_>,
    ) -> PyResult<Option<StreamRef>> {
        let OfMemory { driver, place, ptr } = of;
        let Some(named) = self.stream else { return Ok(None) };
        let alive = current::named(x.py(), named.handle(), place);
        let besides = StreamRef::vouched(x.py(), driver, named, place)?;
        let none_is_nothing = known.says_what_is_pending();
        let by = DictExporter { exporter: x, ptr, moves: true, besides, none_is_nothing };
        StreamRef::exported(driver, alive, by).map(Some)
    }
}

/// Adds the read-only flag and the stream of the CAI dict of `x` to `source`. Returns the dict's stream. `work` is the
/// exchange API's stream.
#[cold]
pub(super) fn also_by_dict<'py>(
    x: &Bound<'py, PyAny>,
    facts: &TypeFacts,
    source: &mut HeldMemory,
    work: Alive<'_>,
) -> PyResult<Option<Alive<'py>>> {
    let (ptr, place) = (source.array.ptr(), source.producer_side.place);
    let dict = ByDict::of(x, facts, facts, &source.array)?;
    if dict.readonly {
        source.array.set_readonly(Some(true));
    }
    if let Some(kept) = dict.kept(x, facts, OfMemory { driver: &source.driver, place, ptr })?
        && !kept.is(work)
    {
        source.producer_side.put_upstream(KnownStream::Kept(kept));
    }
    Ok(dict.pending(x.py(), facts, place))
}
