//! An object that may be dropped on any thread, with or without the interpreter's lock.

use pyo3::prelude::*;

use super::interpreter::attached;

/// An object whose drop takes the interpreter's lock. If the thread may not take the lock any more, the object leaks.
#[derive(Debug)]
pub(crate) struct Anywhere(Option<Py<PyAny>>);

impl Anywhere {
    pub(crate) const fn new(object: Option<Py<PyAny>>) -> Self {
        Self(object)
    }

    pub(crate) const fn get(&self) -> Option<&Py<PyAny>> {
        self.0.as_ref()
    }
}

impl Drop for Anywhere {
    fn drop(&mut self) {
        let mut object = self.0.take();
        attached(|_| drop(object.take()));
        std::mem::forget(object);
    }
}
