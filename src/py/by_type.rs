//! A per-thread cache of facts about types, by the address of the type object.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::lease::WordHasher;
use crate::local::Local;

/// How many types a thread's cache keeps. When the cache is full, a new type replaces the oldest one.
pub(crate) const KEPT: usize = 1024;

const FEW: usize = 8;

#[derive(Debug)]
pub(crate) struct ByType<T> {
    all: RefCell<Types<T>>,
    last: Cell<usize>,
}

#[derive(Debug)]
struct Types<T> {
    entries: Vec<TypeEntry<T>>,
    places: HashMap<usize, usize, BuildHasherDefault<WordHasher>>,
    oldest: usize,
}

#[derive(Debug)]
struct TypeEntry<T> {
    address: usize,
    /// Keeps the type alive, so that no other type gets its address.
    _kind: Py<PyType>,
    known: Rc<T>,
}

type Examine<T> = fn(&Bound<'_, PyAny>, &Bound<'_, PyType>) -> PyResult<T>;

impl<T> Types<T> {
    #[inline(never)]
    fn place(&self, address: usize) -> Option<usize> {
        let few = self.entries.iter().take(FEW);
        few.into_iter()
            .position(|entry| entry.address == address)
            .or_else(|| self.places.get(&address).copied())
    }

    fn put(&mut self, entry: TypeEntry<T>) -> Option<TypeEntry<T>> {
        let place = self.place(entry.address).unwrap_or_else(|| {
            if self.entries.len() < KEPT {
                return self.entries.len();
            }
            self.oldest = (self.oldest + 1) % KEPT;
            (self.oldest + KEPT - 1) % KEPT
        });
        if place >= FEW {
            self.places.insert(entry.address, place);
        }
        let Some(there) = self.entries.get_mut(place) else {
            self.entries.push(entry);
            return None;
        };
        let gone = std::mem::replace(there, entry);
        if gone.address != self.entries[place].address {
            self.places.remove(&gone.address);
        }
        Some(gone)
    }
}

impl<T> ByType<T> {
    pub(crate) const fn new() -> Self {
        let places = HashMap::with_hasher(BuildHasherDefault::new());
        let all = Types { entries: Vec::new(), places, oldest: 0 };
        Self { all: RefCell::new(all), last: Cell::new(0) }
    }

    #[inline(always)]
    fn find(&self, address: usize) -> Option<Rc<T>> {
        let all = self.all.borrow();
        let last = all.entries.get(self.last.get()).filter(|entry| entry.address == address);
        if let Some(entry) = last {
            return Some(Rc::clone(&entry.known));
        }
        let place = all.place(address)?;
        self.last.set(place);
        Some(Rc::clone(&all.entries[place].known))
    }

    /// Returns the replaced entry. Drop it after the borrow: dropping a type may run arbitrary code.
    fn keep(&self, kind: &Bound<'_, PyType>, known: &Rc<T>) -> Option<TypeEntry<T>> {
        let address = kind.as_ptr() as usize;
        let entry = TypeEntry { address, _kind: kind.clone().unbind(), known: Rc::clone(known) };
        self.all.borrow_mut().put(entry)
    }
}

impl<T> Local<ByType<T>> {
    #[inline(always)]
    pub(crate) fn known(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        match self.with(|table| table.find(x.get_type_ptr() as usize)).flatten() {
            Some(known) => Ok(known),
            None => self.reexamine(x, examine),
        }
    }

    #[cold]
    pub(crate) fn reexamine(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        let kind = x.get_type();
        let known = Rc::new(examine(x, &kind)?);
        let gone = self.with(|table| table.keep(&kind, &known));
        drop(gone);
        Ok(known)
    }
}
