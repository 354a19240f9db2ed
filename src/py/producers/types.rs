//! What the bridge knows about a producer's type, cached for each thread.

use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyType};

use super::bases::Bases;
use super::by_attributes;
use super::lazy::{Lazy, OwnAttributes, has_more};
use crate::dlpack::exchange::ExchangeTable;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::local::local;
use crate::py::by_type::ByType;
use crate::py::habits::{Habit, Habits};
use crate::py::interpreter::answered;
use crate::py::library::{self, AttributeQuestions, Capsules, Library, habits_of};
use crate::py::text::class_name;
use crate::py::views::{ArrayView, CaiView, DLPackView};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProducerKind {
    CaiView,
    /// A `DLPackView`, or an extension module's `Array`.
    DLPackView,
    Capsule,
    Dict,
    Class,
    Foreign,
}

/// Which objects of a type count as arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrays {
    All,
    /// Some objects: a dict if it is a CAI dict, another object if its own attributes speak a protocol.
    Some,
    None,
}

impl Arrays {
    fn of(producer: ProducerKind, speaks: &Speaks, kind: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(match producer {
            ProducerKind::Class => Self::None,
            ProducerKind::CaiView | ProducerKind::DLPackView | ProducerKind::Capsule => Self::All,
            _ if speaks.any() => Self::All,
            ProducerKind::Dict => Self::Some,
            ProducerKind::Foreign if has_more(kind)? => Self::Some,
            ProducerKind::Foreign => Self::None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Speaks {
    table: Option<ExchangeTable>,
    dlpack: bool,
    cai: bool,
}

impl Speaks {
    fn of(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        Ok(Self {
            table: ExchangeTable::of(kind)?,
            dlpack: speaks(kind, intern!(py, "__dlpack__"))?,
            cai: speaks(kind, intern!(py, "__cuda_array_interface__"))?,
        })
    }

    const fn any(&self) -> bool {
        self.table.is_some() || self.dlpack || self.cai
    }
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each asked by its name")]
pub(crate) struct TypeFacts {
    pub(crate) producer: ProducerKind,
    pub(crate) arrays: Arrays,
    pub(crate) table: Option<ExchangeTable>,
    /// How to read an object's gradient flag and lazy bits.
    pub(super) lazy: Option<Lazy>,
    pub(super) more: OwnAttributes,
    has_dtype: bool,
    /// The attributes that the bridge tries to read in place of the CAI dict.
    pub(super) attributes: Option<AttributeQuestions>,
    habits: Habits,
    pub(super) library: Option<&'static dyn Library>,
    speaks: Speaks,
    /// Whether the type has a `__dlpack__` that the bridge may use.
    pub(crate) has_dlpack: bool,
    pub(crate) has_cai: bool,
    /// Whether the type has a CAI dict and inherits `numpy.ndarray.__dlpack__`.
    pub(crate) is_numpys: bool,
    /// A cheaper way to a capsule than `__dlpack__`, if the library has one.
    pub(super) capsules: Option<&'static dyn Capsules>,
}

impl TypeFacts {
    /// Whether the bridge can use a protocol that the type itself has. False for capsules, dicts and classes.
    pub(crate) const fn is_array(&self) -> bool {
        match self.producer {
            ProducerKind::CaiView | ProducerKind::DLPackView => true,
            ProducerKind::Foreign => self.table.is_some() || self.has_dlpack || self.has_cai,
            ProducerKind::Capsule | ProducerKind::Dict | ProducerKind::Class => false,
        }
    }

    /// Whether nothing is pending if the dict (version 3) of an object of the type names no stream.
    pub(super) fn says_what_is_pending(&self) -> bool {
        let own = matches!(self.producer, ProducerKind::CaiView | ProducerKind::DLPackView);
        own || (self.has_cai && self.has(Habit::NoneIsNothing))
    }

    pub(super) fn dtype_of<'py>(
        &self,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let name = intern!(x.py(), "dtype");
        if self.has_dtype {
            answered(x.py(), x.getattr(name))
        } else {
            self.more.of(x)?.get(x, name)
        }
    }

    /// Whether an object's `dtype` may be more exact than `said`, the type that its typestr names.
    pub(super) fn may_say_more(&self, said: Dtype) -> bool {
        said.is_shared() && (self.habits.are_none() || said.itemsize() <= 2)
    }

    pub(super) const fn is_known(&self) -> bool {
        self.attributes.is_some() || self.habits.are_peculiar()
    }

    /// Whether the type of `x` still has the exchange API `table`. Always true with [`Habit::KeepsToDlpack`].
    #[inline(always)]
    pub(crate) fn has_still(&self, table: ExchangeTable, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.has(Habit::KeepsToDlpack) || ExchangeTable::of(&x.get_type())? == Some(table))
    }

    pub(crate) const fn has(&self, habit: Habit) -> bool {
        self.habits.has(habit)
    }
}

local! {
    static FACTS: ByType<TypeFacts> = const { ByType::new() };
}

#[inline(always)]
pub(crate) fn facts(x: &Bound<'_, PyAny>) -> PyResult<Rc<TypeFacts>> {
    FACTS.known(x, examine)
}

/// Returns new facts if the protocols of the type of `x` are not those of `facts`.
#[cold]
pub(crate) fn changed(x: &Bound<'_, PyAny>, facts: &TypeFacts) -> PyResult<Option<Rc<TypeFacts>>> {
    if Speaks::of(&x.get_type())? == facts.speaks {
        return Ok(None);
    }
    FACTS.reexamine(x, examine).map(Some)
}

#[cold]
pub(crate) fn a_class(x: &Bound<'_, PyAny>) -> PyErr {
    match x.cast::<PyType>().map_err(PyErr::from).and_then(class_name) {
        Ok(name) => Error::new(Kind::Class, format!("the class {name}")).into(),
        Err(error) => error,
    }
}

fn examine(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<TypeFacts> {
    let speaks = Speaks::of(kind)?;
    let producer = if x.is_instance_of::<PyType>() {
        ProducerKind::Class
    } else if x.is_instance_of::<CaiView>() {
        ProducerKind::CaiView
    } else if x.is_instance_of::<DLPackView>() || x.is_instance_of::<ArrayView>() {
        ProducerKind::DLPackView
    } else if x.is_instance_of::<PyCapsule>() {
        ProducerKind::Capsule
    } else if x.is_instance_of::<PyDict>() && !speaks.any() {
        ProducerKind::Dict
    } else {
        ProducerKind::Foreign
    };
    let bases = Bases::of(kind)?;
    let (habits, library) = habits_of(|about, library| bases.are_of(about, library));
    let attributes = by_attributes::questions(x, kind, habits, library)?;
    let is_stranger = producer == ProducerKind::Foreign && habits.are_none();
    let more = if is_stranger { OwnAttributes::of_type(kind)? } else { OwnAttributes::Nothing };
    let has_cai = speaks.cai;
    // NumPy's `__dlpack__` only exports CPU memory, so use the dict of a type that inherits that `__dlpack__`.
    let is_numpys = has_cai && bases.is_numpys;
    let by_cai = is_numpys || (has_cai && habits.has(Habit::OneCapsule));
    Ok(TypeFacts {
        producer,
        arrays: Arrays::of(producer, &speaks, kind)?,
        table: speaks.table,
        lazy: Lazy::of(x, kind, more)?,
        more,
        has_dtype: kind.getattr_opt(intern!(kind.py(), "dtype"))?.is_some(),
        attributes,
        habits,
        library,
        speaks,
        has_dlpack: !by_cai && speaks.dlpack,
        has_cai,
        is_numpys,
        capsules: library::capsules(kind)?,
    })
}

/// An attribute with the value None counts as missing.
pub(crate) fn speaks(x: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(x.getattr_opt(name)?.is_some_and(|found| !found.is_none()))
}

/// Returns the array to which `x.__dlpack__` is bound, if that array is not `x` itself (flax's variables).
pub(crate) fn stands_for<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let method = x.getattr(intern!(py, "__dlpack__"))?;
    let Some(array) = answered(py, method.getattr(intern!(py, "__self__")))? else {
        return Ok(None);
    };
    let other = !array.is(x) && facts(&array)?.is_array();
    Ok(other.then_some(array))
}
