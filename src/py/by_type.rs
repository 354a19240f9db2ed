//! What is known of types, found out once and kept: a table for each thread. It holds its types, so that an address is
//! never taken for a type that is gone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::lease::WordHasher;
use crate::local::Local;

/// How many types are kept: more than a program has, unless it makes classes without end. With one more, the type that
/// was learned first has to be examined again.
pub(crate) const KEPT: usize = 1024;

/// How many are looked through one by one. A program has a handful of array types, and of stream types.
const FEW: usize = 8;

/// The table of a thread.
#[derive(Debug)]
pub(crate) struct ByType<T> {
    all: RefCell<Types<T>>,
    /// Which was found last.
    last: Cell<usize>,
}

#[derive(Debug)]
struct Types<T> {
    entries: Vec<Entry<T>>,
    /// Where each is, by its address, once there are more than a few.
    places: HashMap<usize, usize, BuildHasherDefault<WordHasher>>,
    /// Which is given up next.
    oldest: usize,
}

#[derive(Debug)]
struct Entry<T> {
    address: usize,
    /// Held so that the address stays this type's.
    _kind: Py<PyType>,
    known: Rc<T>,
}

/// What tells of a type: an object of it, and the type.
type Examine<T> = fn(&Bound<'_, PyAny>, &Bound<'_, PyType>) -> PyResult<T>;

impl<T> Types<T> {
    #[inline(never)]
    fn place(&self, address: usize) -> Option<usize> {
        let few = self.entries.iter().take(FEW);
        few.into_iter()
            .position(|entry| entry.address == address)
            .or_else(|| self.places.get(&address).copied())
    }

    /// Puts an entry in, and returns the one that had its place.
    fn put(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
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
    /// An empty table.
    pub(crate) const fn new() -> Self {
        let places = HashMap::with_hasher(BuildHasherDefault::new());
        let all = Types { entries: Vec::new(), places, oldest: 0 };
        Self { all: RefCell::new(all), last: Cell::new(0) }
    }

    /// What is known of the type at `address`.
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

    /// Keeps what is known of a type. What it has had comes back: to let a type go may run anything.
    fn keep(&self, kind: &Bound<'_, PyType>, known: &Rc<T>) -> Option<Entry<T>> {
        let address = kind.as_ptr() as usize;
        let entry = Entry { address, _kind: kind.clone().unbind(), known: Rc::clone(known) };
        self.all.borrow_mut().put(entry)
    }
}

impl<T> Local<ByType<T>> {
    /// What is known of the type of `x`, by `examine` where it is a new one. A thread that is ending keeps nothing.
    #[inline(always)]
    pub(crate) fn known(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        match self.with(|table| table.find(x.get_type_ptr() as usize)).flatten() {
            Some(known) => Ok(known),
            None => self.reexamine(x, examine),
        }
    }

    /// The same where the type is another one than it was: it is examined again.
    #[cold]
    pub(crate) fn reexamine(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        let kind = x.get_type();
        let known = Rc::new(examine(x, &kind)?);
        let gone = self.with(|table| table.keep(&kind, &known));
        drop(gone);
        Ok(known)
    }
}
