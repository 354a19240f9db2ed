//! What the running calls of one thread know of each other.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

use crate::local::{Local, local};

impl<T: Copy> Local<Cell<T>> {
    /// Sets the value to `value` while `call` runs. Restores the previous value afterwards, also after a panic.
    pub(crate) fn during<R>(&self, value: T, call: impl FnOnce() -> R) -> R {
        struct Restore<'a, T: Copy + 'static>(&'a Local<Cell<T>>, T);
        impl<T: Copy + 'static> Drop for Restore<'_, T> {
            fn drop(&mut self) {
                self.0.replace(self.1);
            }
        }
        let _restore = self.replace(value).map(|before| Restore(self, before));
        call()
    }
}

/// The notes of a thread's running calls. An empty stack owns no memory, so it still works on a thread that is ending.
pub(crate) struct Stack<T>(ManuallyDrop<RefCell<Notes<T>>>);

struct Notes<T> {
    first: [Option<T>; 4],
    rest: Vec<T>,
}

impl<T> Stack<T> {
    /// An empty stack.
    pub(crate) const fn new() -> Self {
        let notes = Notes { first: [const { None }; 4], rest: Vec::new() };
        Self(ManuallyDrop::new(RefCell::new(notes)))
    }

    /// Adds a note. The call must take it out when it ends.
    #[inline]
    pub(crate) fn push(&self, note: T) {
        let mut notes = self.0.borrow_mut();
        match notes.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(note),
            None => notes.rest.push(note),
        }
    }

    /// Takes out the last note for which `is_meant` is true.
    #[inline]
    pub(crate) fn take(&self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let mut notes = self.0.borrow_mut();
        if let Some(place) = notes.rest.iter().rposition(&is_meant) {
            let note = notes.rest.remove(place);
            if notes.rest.is_empty() {
                notes.rest = Vec::new();
            }
            return Some(note);
        }
        notes.first.iter_mut().rev().find(|place| place.as_ref().is_some_and(&is_meant))?.take()
    }

    /// How many notes `is_meant` is true for.
    #[inline]
    pub(crate) fn count(&self, is_meant: impl Fn(&T) -> bool) -> usize {
        let notes = self.0.borrow();
        notes.first.iter().flatten().chain(&notes.rest).filter(|note| is_meant(note)).count()
    }

    /// The first answer of `look`, from the last note to the first.
    #[inline]
    pub(crate) fn find<R>(&self, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        let notes = self.0.borrow();
        notes.rest.iter().rev().chain(notes.first.iter().rev().flatten()).find_map(look)
    }
}

/// How deeply questions to objects may nest. A class that answers through the bridge nests one or two questions. A class
/// whose ends were put off nests up to twenty.
const DEEPEST: usize = 64;

local! {
    /// The addresses of the objects that this thread is asking for their memory, oldest first. The asking calls keep
    /// the objects alive.
    static ASKED: Stack<usize> = const { Stack::new() };
}

/// Runs `question`, which asks `x` for its memory: by `__dlpack__`, or by its dict.
///
/// # Errors
///
/// The errors of `question`. `RecursionError` if the object's answer asks the bridge for the object again, too often.
pub(crate) fn asking<T>(
    x: &Bound<'_, PyAny>,
    question: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    struct Asked(usize);
    impl Drop for Asked {
        fn drop(&mut self) {
            ASKED.with(|asked| asked.take(|known| *known == self.0));
        }
    }
    let address = x.as_ptr().addr();
    let depth = ASKED.with(|asked| {
        asked.push(address);
        asked.count(|_| true)
    });
    let _asked = Asked(address);
    if depth.is_some_and(|depth| depth > DEEPEST) { Err(endless(x)?) } else { question() }
}

/// Whether this thread is asking `x` now. Code that runs within the question must not ask `x` again.
pub(crate) fn is_asked(x: &Bound<'_, PyAny>) -> bool {
    ASKED
        .with(|asked| asked.count(|known| *known == x.as_ptr().addr()))
        .is_some_and(|many| many > 0)
}

#[cold]
fn endless(x: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let name = x.get_type().name()?;
    let text = format!(
        "x: got an object of type {name}, whose __dlpack__ or __cuda_array_interface__ asks the bridge for the object \
         again, {DEEPEST} times over; allowed: one of the two answers without the bridge, and the other may use it"
    );
    Ok(PyRecursionError::new_err(text))
}
