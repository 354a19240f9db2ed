//! What is known of types, found out once and kept: a table for each thread, small, newest first. It holds
//! its types, so that an address is never taken for a type that is gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyType;

/// How many types are kept. A program has a handful of array types, and of stream types.
const KEPT: usize = 32;

/// The table of a thread.
#[derive(Debug)]
pub(crate) struct ByType<T> {
    all: RefCell<Vec<Entry<T>>>,
    /// Which was found last.
    last: Cell<usize>,
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

impl<T> ByType<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self { all: RefCell::new(Vec::new()), last: Cell::new(0) }
    }

    /// What is known of the type of `x`, by `examine` where it is a new one.
    #[inline]
    pub(crate) fn get(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        let address = x.get_type_ptr() as usize;
        let all = self.all.borrow();
        if let Some(entry) = all.get(self.last.get()).filter(|entry| entry.address == address) {
            return Ok(Rc::clone(&entry.known));
        }
        if let Some(at) = all.iter().position(|entry| entry.address == address) {
            self.last.set(at);
            return Ok(Rc::clone(&all[at].known));
        }
        drop(all);
        self.learn(x, address, examine)
    }

    /// The same where the type is another one than it was: it is examined again.
    #[cold]
    pub(crate) fn reexamine(&self, x: &Bound<'_, PyAny>, examine: Examine<T>) -> PyResult<Rc<T>> {
        let address = x.get_type_ptr() as usize;
        let mut all = self.all.borrow_mut();
        let known = all.iter().position(|entry| entry.address == address);
        let gone = known.map(|at| all.remove(at));
        self.last.set(0);
        drop(all);
        drop(gone);
        self.learn(x, address, examine)
    }

    #[cold]
    fn learn(&self, x: &Bound<'_, PyAny>, address: usize, examine: Examine<T>) -> PyResult<Rc<T>> {
        let kind = x.get_type();
        let known = Rc::new(examine(x, &kind)?);
        let entry = Entry { address, _kind: kind.unbind(), known: Rc::clone(&known) };
        // Dropped outside the borrow: letting a type go may run anything.
        let mut gone = None;
        {
            let mut all = self.all.borrow_mut();
            if all.len() == KEPT {
                gone = all.pop();
            }
            all.insert(0, entry);
        }
        drop(gone);
        Ok(known)
    }
}
