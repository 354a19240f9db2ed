//! Per-thread state that nested calls share, and a few caches.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

use crate::local::local;

/// The state has no destructor, so that calls on an ending thread can still use it.
pub(crate) struct Doing {
    once: [Cell<bool>; 3],
    /// See `lease/generation.rs`.
    pub(crate) generation: Cell<u32>,
    /// The number of the last trace for which this thread has asked for its own name.
    pub(crate) trace: Cell<u64>,
    /// The handle and GPU of the last stream that this thread found in a library's pool.
    pub(crate) pooled: Cell<(u64, i32)>,
    /// The addresses of the objects that running calls of [`asking`] keep alive.
    asked: Stack<usize>,
    pub(crate) releasing: Stack<usize>,
    pub(crate) streams: Stack<(u64, Py<PyAny>)>,
}

local! {
    pub(crate) static DOING: Doing = const {
        Doing {
            once: [const { Cell::new(false) }; 3],
            generation: Cell::new(0),
            trace: Cell::new(0),
            pooled: Cell::new((0, 0)),
            asked: Stack::new(),
            releasing: Stack::new(),
            streams: Stack::new(),
        }
    };
}

/// A mark that a thread sets while it does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Once {
    /// Forwarding an event to Python's `logging`, or running code whose events must not be logged.
    Telling,
    AskingFunctions,
    /// Running a call inside [`unasked`](crate::py::streams::unasked).
    Unasked,
}

#[derive(Debug)]
pub(crate) struct OnceGuard(Once);

impl Once {
    /// `None` if this thread has set the mark already.
    #[inline]
    pub(crate) fn begin(self) -> Option<OnceGuard> {
        let before = DOING.with(|doing| doing.once[self as usize].replace(true));
        // Build no second guard: its drop would clear the outer call's mark.
        (before == Some(false)).then(|| OnceGuard(self))
    }

    #[inline]
    pub(crate) fn is_on(self) -> bool {
        DOING.with(|doing| doing.once[self as usize].get()).unwrap_or(false)
    }
}

impl Drop for OnceGuard {
    #[inline]
    fn drop(&mut self) {
        DOING.with(|doing| doing.once[self.0 as usize].set(false));
    }
}

/// A stack without a destructor. An empty stack owns no heap memory, so it leaks nothing when its thread ends.
pub(crate) struct Stack<T>(ManuallyDrop<RefCell<Notes<T>>>);

struct Notes<T> {
    first: [Option<T>; 4],
    rest: Vec<T>,
}

impl<T> Stack<T> {
    pub(crate) const fn new() -> Self {
        let notes = Notes { first: [const { None }; 4], rest: Vec::new() };
        Self(ManuallyDrop::new(RefCell::new(notes)))
    }

    /// The caller must take the value out before its own call ends.
    #[inline]
    pub(crate) fn push(&self, note: T) {
        let mut notes = self.0.borrow_mut();
        match notes.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(note),
            None => notes.rest.push(note),
        }
    }

    /// Takes out the newest value for which `is_meant` is true.
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

    #[inline]
    pub(crate) fn count(&self, is_meant: impl Fn(&T) -> bool) -> usize {
        let notes = self.0.borrow();
        notes.first.iter().flatten().chain(&notes.rest).filter(|note| is_meant(note)).count()
    }

    /// Looks at the newest value first.
    #[inline]
    pub(crate) fn find<R>(&self, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        let notes = self.0.borrow();
        notes.rest.iter().rev().chain(notes.first.iter().rev().flatten()).find_map(look)
    }
}

/// How many calls of [`asking`] may nest on a thread.
const DEEPEST: usize = 64;

/// Marks `x` as being asked while `question` runs. Raises `RecursionError` if more than [`DEEPEST`] questions nest.
pub(crate) fn asking<T>(
    x: &Bound<'_, PyAny>,
    question: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    struct AskGuard(usize);
    impl Drop for AskGuard {
        fn drop(&mut self) {
            DOING.with(|doing| doing.asked.take(|known| *known == self.0));
        }
    }
    let address = x.as_ptr().addr();
    let depth = DOING.with(|doing| {
        doing.asked.push(address);
        doing.asked.count(|_| true)
    });
    let _guard = AskGuard(address);
    if depth.is_some_and(|depth| depth > DEEPEST) { Err(endless(x)?) } else { question() }
}

/// Whether this thread is inside [`asking`] for `x`.
pub(crate) fn is_asked(x: &Bound<'_, PyAny>) -> bool {
    let address = x.as_ptr().addr();
    let many = DOING.with(|doing| doing.asked.count(|known| *known == address));
    many.is_some_and(|many| many > 0)
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
