//! What is known of a producer's type, found out once and kept.
//!
//! The table is per thread and small, newest first, and holds its types, so that an address is never
//! taken for a type that is gone.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyType};

use super::habits::{self, Habit};
use crate::dlpack::exchange::Table;
use crate::py::text::attribute;
use crate::py::views::{ArrayView, CaiView, DLPackView};

/// How a producer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// One of our own `CaiView`s.
    CaiView,
    /// One of our own `DLPackView`s.
    DLPackView,
    /// A DLPack capsule.
    Capsule,
    /// A dict, such as `__cuda_array_interface__` returns.
    Dict,
    /// Something else: whatever its attributes say.
    Foreign,
}

/// What is known of a type.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each asked by its name")]
pub(crate) struct Facts {
    /// Which kind of producer.
    pub(crate) speaks: Speaks,
    /// Its exchange API.
    pub(crate) table: Option<Table>,
    /// Whether its tensors have the properties that DLPack cannot say and the exchange API does not
    /// check: gradients, lazy conjugation and negation. Torch's do.
    pub(crate) has_lazy_bits: bool,
    /// What its library is known to do.
    habits: Vec<Habit>,
    /// Whether the type defines `__dlpack__`.
    pub(crate) has_dlpack: bool,
    /// Whether the type defines `__cuda_array_interface__`.
    pub(crate) has_cai: bool,
}

impl Facts {
    /// Whether it is a type of arrays or views, rather than of containers of them.
    pub(crate) const fn is_array(&self) -> bool {
        match self.speaks {
            Speaks::CaiView | Speaks::DLPackView => true,
            Speaks::Foreign => self.table.is_some() || self.has_dlpack || self.has_cai,
            Speaks::Capsule | Speaks::Dict => false,
        }
    }

    /// Whether the type's library has the habit.
    pub(crate) fn has(&self, habit: Habit) -> bool {
        self.habits.contains(&habit)
    }
}

struct Entry {
    address: usize,
    /// Held so that the address stays this type's.
    _kind: Py<PyType>,
    facts: Rc<Facts>,
}

/// How many types are kept. A program has a handful of array types.
const KEPT: usize = 32;

thread_local! {
    static KNOWN: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// The facts of the type of `x`.
pub(crate) fn facts(x: &Bound<'_, PyAny>) -> PyResult<Rc<Facts>> {
    let address = x.get_type_ptr() as usize;
    let known = KNOWN.with_borrow(|known| {
        known.iter().find(|entry| entry.address == address).map(|entry| Rc::clone(&entry.facts))
    });
    match known {
        Some(facts) => Ok(facts),
        None => learn(x, address),
    }
}

#[cold]
fn learn(x: &Bound<'_, PyAny>, address: usize) -> PyResult<Rc<Facts>> {
    let kind = x.get_type();
    let facts = Rc::new(examine(x, &kind)?);
    let entry = Entry { address, _kind: kind.unbind(), facts: Rc::clone(&facts) };
    // Dropped outside the borrow: letting a type go may run anything.
    let mut gone = None;
    KNOWN.with_borrow_mut(|known| {
        if known.len() == KEPT {
            gone = known.pop();
        }
        known.insert(0, entry);
    });
    drop(gone);
    Ok(facts)
}

fn examine(x: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<Facts> {
    let py = x.py();
    let speaks = if x.is_instance_of::<CaiView>() {
        Speaks::CaiView
    } else if x.is_instance_of::<DLPackView>() || x.is_instance_of::<ArrayView>() {
        Speaks::DLPackView
    } else if x.is_instance_of::<PyCapsule>() {
        Speaks::Capsule
    } else if x.is_instance_of::<PyDict>() {
        Speaks::Dict
    } else {
        Speaks::Foreign
    };
    let has_lazy_bits = kind.hasattr(intern!(py, "requires_grad"))?
        && kind.hasattr(intern!(py, "is_neg"))?
        && kind.hasattr(intern!(py, "is_conj"))?;
    let module = attribute(kind, intern!(py, "__module__"))?.unwrap_or_default();
    Ok(Facts {
        speaks,
        table: Table::of(kind)?,
        has_lazy_bits,
        habits: habits::of(&module),
        has_dlpack: kind.hasattr(intern!(py, "__dlpack__"))?,
        has_cai: kind.hasattr(intern!(py, "__cuda_array_interface__"))?,
    })
}
