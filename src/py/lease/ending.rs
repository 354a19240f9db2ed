//! The end of a holder, from whatever thread and state: settled, then let go of, else kept until it can be.
//!
//! To let go of a producer may run anything, the end of another holder of ours too: a capsule in a chain of
//! capsules, a view that the producer had. Those ends are queued and follow, so that no chain is too long for
//! a stack.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use super::holding::Holding;
use super::pending;
use crate::lease::{Ending, Settled, State};
use crate::order::Mark;
use crate::py::interpreter::{enter, or_no_memory};
use crate::py::observe::log::{is_telling, quietly};
use crate::py::observe::{Began, Came};

/// Who holds memory, and gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Tenant(Option<Holding>);

impl Tenant {
    /// Holds `holding`.
    pub(crate) const fn new(holding: Holding) -> Self {
        Self(Some(holding))
    }

    /// What it holds.
    pub(crate) fn holding(&mut self) -> Option<&mut Holding> {
        self.0.as_mut()
    }

    /// The same to look at.
    pub(crate) const fn look(&self) -> Option<&Holding> {
        self.0.as_ref()
    }

    /// Lets go where the orders are made already.
    pub(crate) fn settled(mut self, py: Python<'_>, settled: Settled<Vec<Mark>>, began: Began) {
        if let Some(holding) = self.0.take() {
            let ending = Ending::settled(holding, settled);
            flat(py, || run(py, Next { ending, began, quiet: false }));
        }
    }
}

impl Drop for Tenant {
    /// Ends with the interpreter's lock, from whatever thread this is. Where the interpreter is gone, or
    /// going, everything is left as it is: a leak at the end of a process harms nobody, a foreign deleter
    /// without its interpreter may.
    fn drop(&mut self) {
        let Some(holding) = self.0.take() else { return };
        let mut next =
            Some(Next { ending: Ending::new(holding), began: Began::now(), quiet: false });
        // Where an end is under way on this thread, that one has the lock.
        if let Some(first) = next.take().and_then(queued) {
            next = Some(first);
            enter(|py| {
                pending::look(py);
                if let Some(first) = next.take() {
                    flat(py, || run(py, first));
                }
            });
        }
        if let Some(next) = next {
            next.began.released(next.ending.holder().tag, Came::Lost);
            std::mem::forget(next.ending);
        }
    }
}

/// An end, and when it began.
struct Next {
    ending: Ending<Holding>,
    began: Began,
    /// Whether it is a log handler's doing, of which nothing is told.
    quiet: bool,
}

thread_local! {
    /// The ends that follow the one which is under way on this thread, if one is.
    static FOLLOWING: RefCell<Option<VecDeque<Next>>> = const { RefCell::new(None) };
}

/// Queues `next` behind the end that is under way on this thread; gives it back where none is.
fn queued(next: Next) -> Option<Next> {
    let mut next = Some(next);
    // A thread that is ending has no queue any more.
    let _ = FOLLOWING.try_with(|following| {
        if let Some(following) = &mut *following.borrow_mut() {
            following.extend(next.take().map(|next| Next { quiet: is_telling(), ..next }));
        }
    });
    next
}

/// The queue of this thread, until dropped. What is left in it where a panic passes by is kept for later.
struct Following;

impl Following {
    /// `None` where an end is under way already, or where the thread is ending.
    fn begin() -> Option<Self> {
        let begun = FOLLOWING.try_with(|following| {
            let mut following = following.borrow_mut();
            following.is_none().then(|| following.insert(VecDeque::new())).is_some()
        });
        matches!(begun, Ok(true)).then(|| Self)
    }

    /// The next; where there is none, the queue is gone.
    fn next() -> Option<Next> {
        FOLLOWING.with_borrow_mut(|following| {
            let next = following.as_mut().and_then(VecDeque::pop_front);
            if next.is_none() {
                *following = None;
            }
            next
        })
    }
}

impl Drop for Following {
    #[cold]
    fn drop(&mut self) {
        while let Some(next) = Self::next() {
            pending::keep(next.ending);
        }
    }
}

/// Runs `first`, and then what follows from it, one after the other.
pub(super) fn flat(py: Python<'_>, first: impl FnOnce()) {
    let following = Following::begin();
    first();
    if let Some(following) = following {
        while let Some(next) = Following::next() {
            quietly(next.quiet, || run(py, next));
        }
        std::mem::forget(following);
    }
}

fn run(py: Python<'_>, Next { ending, began, .. }: Next) {
    // A panic leaves it as it is: to let go of it then would be without an order.
    let mut ending = ManuallyDrop::new(ending);
    let tag = ending.holder().tag;
    let came = came(py, &mut ending);
    let ending = ManuallyDrop::into_inner(ending);
    if ending.is_over() {
        drop(ending);
    } else {
        pending::keep(ending);
    }
    began.released(tag, came);
}

/// Goes on with `ending`, and says what it came to.
pub(super) fn came(py: Python<'_>, ending: &mut Ending<Holding>) -> Came {
    // One that lacks memory is as due as before.
    if let Err(interrupt) = or_no_memory(|| ending.advance(py)) {
        interrupt.write_unraisable(py, None);
    }
    match ending.state() {
        State::GivenBack => Came::Done,
        State::Abandoned => Came::LetGo,
        State::Due | State::Waiting(()) | State::ToRetry => Came::PutOff,
    }
}
