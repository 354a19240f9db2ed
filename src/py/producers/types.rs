//! What is known of a producer's type, found out once and kept.

use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyType};

use super::attributes::{Lazy, More, has_more};
use super::bases::Bases;
use super::ndarray;
use crate::dlpack::exchange::Table;
use crate::dtype::Dtype;
use crate::error::{Error, Kind};
use crate::local::local;
use crate::py::by_type::ByType;
use crate::py::habits::{Habit, Habits};
use crate::py::interpreter::answered;
use crate::py::library::{self, Capsules, Library, Parts, habits_of};
use crate::py::text::class_name;
use crate::py::views::{ArrayView, CaiView, DLPackView};

/// How a producer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProducerKind {
    /// One of our own `CaiView`s.
    CaiView,
    /// One of our own `DLPackView`s.
    DLPackView,
    /// A DLPack capsule.
    Capsule,
    /// A dict, such as `__cuda_array_interface__` returns.
    Dict,
    /// A class: no producer, but it may own a dict's memory.
    Class,
    /// Something else: whatever its attributes say.
    Foreign,
}

/// Which of a type's objects are arrays, or are refused in place of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrays {
    All,
    /// Those that say so by themselves.
    Some,
    None,
}

impl Arrays {
    fn of(producer: ProducerKind, speaks: &Speaks, kind: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(match producer {
            // A class has what its objects have, and is none.
            ProducerKind::Class => Self::None,
            ProducerKind::CaiView | ProducerKind::DLPackView | ProducerKind::Capsule => Self::All,
            _ if speaks.any() => Self::All,
            ProducerKind::Dict => Self::Some,
            ProducerKind::Foreign if has_more(kind)? => Self::Some,
            ProducerKind::Foreign => Self::None,
        })
    }
}

/// The protocols that a type speaks, by its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Speaks {
    table: Option<Table>,
    dlpack: bool,
    cai: bool,
}

impl Speaks {
    fn of(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        Ok(Self {
            table: Table::of(kind)?,
            dlpack: speaks(kind, intern!(py, "__dlpack__"))?,
            cai: speaks(kind, intern!(py, "__cuda_array_interface__"))?,
        })
    }

    const fn any(&self) -> bool {
        self.table.is_some() || self.dlpack || self.cai
    }
}

/// What is known of a type.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each asked by its name")]
pub(crate) struct Facts {
    /// Which kind of producer.
    pub(crate) producer: ProducerKind,
    /// Which of its objects are arrays.
    pub(crate) arrays: Arrays,
    /// Its exchange API.
    pub(crate) table: Option<Table>,
    /// What its tensors have that DLPack cannot say, and the exchange API does not check. Torch's and Paddle's do.
    pub(super) lazy: Option<Lazy>,
    /// Where its objects may have more than it has.
    pub(super) more: More,
    /// Whether it has a `dtype`.
    has_dtype: bool,
    /// The attributes that its arrays are read by.
    pub(super) parts: Option<Parts>,
    /// What its library is known to do.
    habits: Habits,
    /// The library, if it is known.
    pub(super) library: Option<&'static dyn Library>,
    /// What it spoke when it was looked at.
    speaks: Speaks,
    /// Whether the type defines a `__dlpack__` to go by.
    pub(crate) has_dlpack: bool,
    /// Whether the type defines `__cuda_array_interface__`.
    pub(crate) has_cai: bool,
    /// Whether it does, and is derived from NumPy's array: objects without a dict are NumPy's own.
    pub(crate) is_numpys: bool,
    /// How the capsules of its arrays are had by less than their `__dlpack__`.
    pub(super) capsules: Option<&'static dyn Capsules>,
}

impl Facts {
    /// Whether it is a type of arrays or views, rather than of containers of them.
    pub(crate) const fn is_array(&self) -> bool {
        match self.producer {
            ProducerKind::CaiView | ProducerKind::DLPackView => true,
            ProducerKind::Foreign => self.table.is_some() || self.has_dlpack || self.has_cai,
            ProducerKind::Capsule | ProducerKind::Dict | ProducerKind::Class => false,
        }
    }

    /// Whether a dict of version 3 that names no stream means it. From others it may be that work is pending where its
    /// library works without naming a stream.
    pub(super) fn says_what_is_pending(&self) -> bool {
        let own = matches!(self.producer, ProducerKind::CaiView | ProducerKind::DLPackView);
        own || (self.has_cai && self.has(Habit::NoneIsNothing))
    }

    /// The `dtype` of `x`, an object of the type.
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

    /// Whether the `dtype` of its objects may be another than `said`, which their typestr says: where something is known of
    /// a library, another that typestrs have no letter for.
    pub(super) fn may_say_more(&self, said: Dtype) -> bool {
        said.is_shared() && (self.habits.are_none() || said.itemsize() <= 2)
    }

    /// Whether something is known of the type's library.
    pub(super) const fn is_known(&self) -> bool {
        self.parts.is_some() || self.habits.are_peculiar()
    }

    /// Whether the type still has the table that it had. Those of known libraries have theirs for good.
    #[inline(always)]
    pub(crate) fn has_still(&self, table: Table, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.has(Habit::KeepsToDlpack) || Table::of(&x.get_type())? == Some(table))
    }

    /// Whether the type's library has the habit.
    pub(crate) const fn has(&self, habit: Habit) -> bool {
        self.habits.has(habit)
    }
}

local! {
    static FACTS: ByType<Facts> = const { ByType::new() };
}

/// The facts of the type of `x`.
#[inline(always)]
pub(crate) fn facts(x: &Bound<'_, PyAny>) -> PyResult<Rc<Facts>> {
    FACTS.known(x, examine)
}

/// The facts of the type of `x` once more, if it does not speak any more what it spoke when `facts` were found out: a
/// class may be changed, or have been made anew by a reload.
#[cold]
pub(crate) fn changed(x: &Bound<'_, PyAny>, facts: &Facts) -> PyResult<Option<Rc<Facts>>> {
    if Speaks::of(&x.get_type())? == facts.speaks {
        return Ok(None);
    }
    FACTS.reexamine(x, examine).map(Some)
}

/// The error for a class in place of an array.
#[cold]
pub(crate) fn a_class(x: &Bound<'_, PyAny>) -> PyErr {
    match x.cast::<PyType>().map_err(PyErr::from).and_then(class_name) {
        Ok(name) => Error::new(Kind::Class, format!("the class {name}")).into(),
        Err(error) => error,
    }
}

fn examine(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<Facts> {
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
    let parts = ndarray::parts(x, kind, habits, library)?;
    let is_stranger = producer == ProducerKind::Foreign && habits.are_none();
    let more = if is_stranger { More::of_type(kind)? } else { More::Nothing };
    let has_cai = speaks.cai;
    // NumPy's own `__dlpack__` says that the memory is the CPU's.
    let is_numpys = has_cai && bases.is_numpys;
    let by_cai = is_numpys || (has_cai && habits.has(Habit::OneCapsule));
    Ok(Facts {
        producer,
        arrays: Arrays::of(producer, &speaks, kind)?,
        table: speaks.table,
        lazy: Lazy::of(x, kind, more)?,
        more,
        has_dtype: kind.getattr_opt(intern!(kind.py(), "dtype"))?.is_some(),
        parts,
        habits,
        library,
        speaks,
        has_dlpack: !by_cai && speaks.dlpack,
        has_cai,
        is_numpys,
        capsules: library::capsules(kind)?,
    })
}

/// Whether it has the attribute. One that is None says that it has not, as with `__hash__`.
pub(crate) fn speaks(x: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(x.getattr_opt(name)?.is_some_and(|found| !found.is_none()))
}

/// The array whose `__dlpack__` an object has for its own, as flax's variables have: it says what the object cannot.
pub(crate) fn stands_for<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let method = x.getattr(intern!(py, "__dlpack__"))?;
    let Some(array) = answered(py, method.getattr(intern!(py, "__self__")))? else {
        return Ok(None);
    };
    let other = !array.is(x) && facts(&array)?.is_array();
    Ok(other.then_some(array))
}
