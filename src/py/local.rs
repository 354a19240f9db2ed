//! What the calls of a thread that are under way know of each other.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

use crate::local::{Local, local};

impl<T: Copy> Local<Cell<T>> {
    /// Runs `call` while the value is `value`. It has its value of before again afterwards, also after a panic.
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

/// What the calls of a thread that are under way have noted. It owns nothing where there is none, so that a thread that is
/// ending has it still.
pub(crate) struct Stack<T>(ManuallyDrop<RefCell<Notes<T>>>);

struct Notes<T> {
    first: [Option<T>; 4],
    rest: Vec<T>,
}

impl<T> Stack<T> {
    /// An empty one.
    pub(crate) const fn new() -> Self {
        let notes = Notes { first: [const { None }; 4], rest: Vec::new() };
        Self(ManuallyDrop::new(RefCell::new(notes)))
    }

    /// Adds a note, which a call takes out at its end.
    #[inline]
    pub(crate) fn push(&self, note: T) {
        let mut notes = self.0.borrow_mut();
        match notes.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(note),
            None => notes.rest.push(note),
        }
    }

    /// Takes the last note out that is meant.
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

    /// How many notes are meant.
    #[inline]
    pub(crate) fn count(&self, is_meant: impl Fn(&T) -> bool) -> usize {
        let notes = self.0.borrow();
        notes.first.iter().flatten().chain(&notes.rest).filter(|note| is_meant(note)).count()
    }

    /// What `look` says of the last note of which it says anything.
    #[inline]
    pub(crate) fn find<R>(&self, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        let notes = self.0.borrow();
        notes.rest.iter().rev().chain(notes.first.iter().rev().flatten()).find_map(look)
    }
}

/// How many questions to objects may lie within each other. A class that answers by the bridge asks one or two more, and
/// one whose ends were put off up to twenty.
const DEEPEST: usize = 64;

local! {
    /// The objects that this thread is asking for their memory, the last one last. Addresses alone: each is held by a call.
    static ASKED: Stack<usize> = const { Stack::new() };
}

/// Runs `question`, which calls `x`'s own code for its memory: by `__dlpack__`, or by its dict.
///
/// # Errors
///
/// Those of `question`; RecursionError where the answer asks the bridge for the answer.
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

/// Whether this thread is asking `x` now: what it calls within must not ask it again.
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
         again, and so on, {DEEPEST} times; allowed: one of the two that says where the memory is. Make the other of that"
    );
    Ok(PyRecursionError::new_err(text))
}
