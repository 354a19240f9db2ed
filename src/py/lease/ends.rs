//! Ends: an end is settled and its memory dropped, or kept until that is possible.
//!
//! Dropping a producer may run any code, and may end another holder of ours: a capsule in a chain of capsules,
//! a view that the producer had. Its orders are made at once; its references follow, so a long chain does not
//! overflow the stack.
//!
//! Memory that must outlive work on a device is kept here, and later calls of the bridge check it again; with a
//! real driver a thread does if no call comes. What is left at the end of the interpreter leaks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;

use super::generation;
use super::holding::Holding;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::lease::{Ending, Most, Parked, State};
use crate::local::local;
use crate::order::{Lane, Mark};
use crate::py::interpreter::{self, Answer, entry, or_no_memory};
use crate::py::observe::log::{is_telling, quietly};
use crate::py::observe::{CallSpan, Outcome};

/// An end, and when it began.
pub(super) struct Next {
    pub(super) ending: Ending<Box<Holding>>,
    pub(super) span: CallSpan,
    /// Whether a log handler caused it: such ends are not logged.
    quiet: bool,
    /// What came of its orders, where these are made already.
    outcome: Option<Outcome>,
}

impl Next {
    /// An end that began with `span`.
    pub(super) const fn of(ending: Ending<Box<Holding>>, span: CallSpan) -> Self {
        Self { ending, span, quiet: false, outcome: None }
    }
}

/// What this thread is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    Nothing,
    /// An end is under way.
    Ending,
    /// The same, and others follow it.
    Followed,
}

local! {
    static NOW: Cell<Now> = const { Cell::new(Now::Nothing) };
    /// The ends that follow the one which is under way on this thread. It is empty where none is, so that nothing is
    /// left to drop: a thread that is ending has it still.
    static FOLLOWING: ManuallyDrop<RefCell<VecDeque<Next>>> =
        const { ManuallyDrop::new(RefCell::new(VecDeque::new())) };
}

/// Makes the orders of `next`: its cause may go on with the memory. Its references go after what is under way.
#[cold]
fn queued(py: Python<'_>, next: Next) -> Option<Next> {
    // After a panic it stays.
    let mut next = ManuallyDrop::new(Next { quiet: is_telling(), ..next });
    next.outcome = Some(quietly(next.quiet, || outcome(py, &mut next.ending)));
    let mut next = Some(ManuallyDrop::into_inner(next));
    // Without a queue it is run by its cause.
    FOLLOWING.with(|following| {
        if NOW.replace(Now::Followed).is_some() {
            following.borrow_mut().extend(next.take());
        }
    });
    next
}

/// The queue of this thread, until dropped. What is left in it where a panic passes by is kept for later.
struct QueueGuard;

impl QueueGuard {
    /// `None` where an end is under way already.
    #[inline(always)]
    fn begin() -> Option<Self> {
        (NOW.get() == Some(Now::Nothing)).then(|| {
            NOW.replace(Now::Ending);
            Self
        })
    }

    /// Runs what follows, one after the other. Then nothing goes on any more.
    #[inline(always)]
    fn finish(self, py: Python<'_>) {
        if NOW.get() == Some(Now::Followed) {
            Self::run_following(py);
        }
        NOW.replace(Now::Nothing);
        std::mem::forget(self);
    }

    #[cold]
    fn run_following(py: Python<'_>) {
        while let Some(next) = Self::following() {
            let quiet = next.quiet;
            let mut next = ManuallyDrop::new(Some(next));
            quietly(quiet, || run(py, &mut next));
        }
    }

    fn following() -> Option<Next> {
        let next = FOLLOWING.with(|following| {
            let mut following = following.borrow_mut();
            let next = following.pop_front();
            if next.is_none() {
                *following = VecDeque::new();
            }
            next
        });
        next.flatten()
    }
}

impl Drop for QueueGuard {
    #[cold]
    fn drop(&mut self) {
        while NOW.get() == Some(Now::Followed)
            && let Some(next) = Self::following()
        {
            keep(next.ending);
        }
        NOW.replace(Now::Nothing);
    }
}

/// Runs `first`, and then what follows from it, one after the other.
pub(super) fn flat(py: Python<'_>, first: impl FnOnce()) {
    let following = QueueGuard::begin();
    first();
    if let Some(following) = following {
        following.finish(py);
    }
}

/// Runs an end, of which a panic leaves in its place what is left: memory that goes without an order is better kept.
pub(super) fn run(py: Python<'_>, place: &mut ManuallyDrop<Option<Next>>) {
    let Some(next) = place.as_mut() else { return };
    let (tag, span) = (next.ending.holder().tag, next.span);
    let outcome = next.outcome.unwrap_or_else(|| outcome(py, &mut next.ending));
    if next.ending.is_over() {
        **place = None;
    } else if let Some(next) = place.take() {
        keep(next.ending);
    }
    span.released(tag, outcome);
}

/// Ends what is in `place`, where a panic leaves it. In another end its orders are made at once, and the rest follows.
#[inline(always)]
pub(super) fn end(py: Python<'_>, place: &mut ManuallyDrop<Option<Box<Holding>>>, span: CallSpan) {
    let Some(following) = QueueGuard::begin() else { return inside(py, place, span) };
    look(py);
    // Most have no order to make.
    if let Some(holding) = place.as_ref()
        && holding.is_done_without_orders(py)
    {
        let tag = holding.tag;
        **place = None;
        span.released(tag, Outcome::Done);
    } else {
        by_orders(py, place, span);
    }
    following.finish(py);
}

#[inline(never)]
fn by_orders(py: Python<'_>, place: &mut ManuallyDrop<Option<Box<Holding>>>, span: CallSpan) {
    let next = place.take().map(|holding| Next::of(Ending::new(holding), span));
    run(py, &mut LeftGuard(ManuallyDrop::new(next)).0);
}

#[cold]
fn inside(py: Python<'_>, place: &mut ManuallyDrop<Option<Box<Holding>>>, span: CallSpan) {
    let next = place.take().map(|holding| Next::of(Ending::new(holding), span));
    let next = next.and_then(|next| queued(py, next));
    run(py, &mut LeftGuard(ManuallyDrop::new(next)).0);
}

/// Tells what a panic left.
struct LeftGuard(ManuallyDrop<Option<Next>>);

impl Drop for LeftGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(next) = self.0.as_ref() {
            next.span.released(next.ending.holder().tag, Outcome::Lost);
        }
    }
}

/// Continues `ending`, and returns the outcome.
fn outcome(py: Python<'_>, ending: &mut Ending<Box<Holding>>) -> Outcome {
    let of = ending.holder().generation;
    // If memory runs out, the end stays due. After an interrupt the producer may go on at once, so that it is tried again
    // at once, too.
    for _ in 0..2 {
        match generation::end(of, || or_no_memory(|| ending.advance(py))) {
            Ok(()) => break,
            Err(interrupt) => interrupt.write_unraisable(py, None),
        }
    }
    match ending.state() {
        State::GivenBack => Outcome::Done,
        State::Abandoned => Outcome::LetGo,
        State::Due | State::Waiting(()) | State::ToRetry => Outcome::PutOff,
    }
}

/// The state of a process. A fork starts with a new one: its parent's locks may be held for ever there.
struct Pending {
    parked: Parked<Lane, Ending<Box<Holding>>>,
    watch: Mutex<Watch>,
    told: Condvar,
}

impl Default for Pending {
    fn default() -> Self {
        // The last of its marks is asked first.
        let turn = |ending: &Ending<Box<Holding>>| {
            ending.mark().and_then(|marks| marks.last()).map(Mark::turn)
        };
        Self { parked: Parked::new(turn), watch: Mutex::default(), told: Condvar::new() }
    }
}

#[derive(Default)]
struct Watch {
    thread: Option<JoinHandle<()>>,
    /// Whether the thread has nothing to ask, and waits to be told.
    idle: bool,
    over: bool,
}

/// By the number of the process: how many forks lie between it and the first.
static PENDING: [OnceLock<Pending>; 64] = [const { OnceLock::new() }; 64];

fn pending() -> Option<&'static Pending> {
    let number = usize::try_from(Process::current().number()).ok()?;
    PENDING.get(number).map(|pending| pending.get_or_init(Pending::default))
}

/// How many a call asks: more than it adds, and so few that a call takes no longer where thousands wait.
const AT_A_CALL: Most = Most { lanes: 4, questions: 4 };

/// How many a call asks at its end, where one was left in it: that one is the last.
const AFTER_A_CALL: Most = Most { lanes: 64, questions: 64 };

/// How many the thread asks each time: so few that no other thread waits long for the interpreter's lock, and that it
/// takes a hundredth of a core, where ends wait for work on thousands of streams.
const AT_A_TIME: Most = Most { lanes: 256, questions: 4096 };

/// How often the thread asks, at first, and once none of its questions changed anything, at last.
const FIRST: Duration = Duration::from_micros(500);
const LAST: Duration = Duration::from_millis(50);

/// How long a pause it makes where there is nothing to ask. Beyond it waits to be told, which costs a call of the system:
/// where calls come one after another, each with an end that the next one finishes, few of them have to.
const IDLE: Duration = Duration::from_millis(4);

/// Keeps `ending` until it is over.
fn keep(ending: Ending<Box<Holding>>) {
    // Time alone changes nothing on the simulated device.
    let ripens = matches!(ending.holder().driver, Handle::Cuda);
    let Some(pending) = pending() else {
        // A fork of a fork of a fork …: kept for good.
        return std::mem::forget(ending);
    };
    pending.parked.push(ending);
    interpreter::left_for_later(look_again);
    if ripens {
        pending.wake();
    }
}

/// Checks a few pending ends, those checked longest ago first, and finishes what can be finished. Every call
/// does this, so it has to be cheap.
#[inline]
pub(crate) fn look(py: Python<'_>) {
    if let Some(pending) = pending()
        && !pending.parked.is_empty()
    {
        pending.look(py, AT_A_CALL);
    }
}

/// The same at the end of a call in which an end was left: foreign code that was called then may have been in its way.
#[cold]
fn look_again(py: Python<'_>) {
    if let Some(pending) = pending() {
        pending.look(py, AFTER_A_CALL);
    }
}

/// Finishes every pending end that can be finished.
pub(crate) fn look_at_all(py: Python<'_>) {
    if let Some(pending) = pending() {
        pending.look(py, Most::ALL);
    }
}

/// Finishes every pending end that can be finished, and returns how many are left. For tests.
#[pyfunction]
pub(crate) fn _settle(py: Python<'_>) -> Answer<'_> {
    entry(py, || {
        look_at_all(py);
        Ok(pending().map_or(0, |pending| pending.parked.len()))
    })
}

impl Pending {
    /// Whether any is over.
    #[cold]
    fn look(&self, py: Python<'_>, most: Most) -> bool {
        let mut any = false;
        let is_over = |ending: &mut Ending<Box<Holding>>| {
            let span = CallSpan::begin();
            let outcome = match outcome(py, ending) {
                Outcome::PutOff => return false,
                Outcome::Done => Outcome::DoneLater,
                outcome => outcome,
            };
            span.released(ending.holder().tag, outcome);
            true
        };
        flat(py, || {
            let over = self.parked.ask(most, is_over);
            any = !over.is_empty();
        });
        any
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread ask, which is made where there is none.
    fn wake(&'static self) {
        let mut watch = self.watch();
        if watch.over {
            return;
        }
        if watch.thread.is_none() {
            let thread = std::thread::Builder::new().name("cai_bridge".into());
            // Without the thread, the next call of the bridge asks.
            watch.thread = thread.spawn(|| self.keep_asking()).ok();
        }
        if watch.idle {
            self.told.notify_one();
        }
    }

    fn keep_asking(&'static self) {
        let mut pause = FIRST;
        let mut watch = self.watch();
        while !watch.over {
            if pause > IDLE && self.parked.is_empty() {
                watch.idle = true;
                watch = self.told.wait(watch).unwrap_or_else(PoisonError::into_inner);
                watch.idle = false;
                pause = FIRST;
                continue;
            }
            let waited = self.told.wait_timeout(watch, pause);
            // Not held while others run: a fork at that moment would keep it for good.
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let any = !self.parked.is_empty()
                && interpreter::enter(|py| self.look(py, AT_A_TIME)) == Some(true);
            pause = if any { FIRST } else { LAST.min(pause * 2) };
            watch = self.watch();
        }
    }
}

/// Ends the watching, before the interpreter ends; from here on only this thread enters it.
#[pyfunction]
pub(crate) fn _end(py: Python<'_>) {
    if let Some(pending) = pending() {
        let thread = {
            let mut watch = pending.watch();
            watch.over = true;
            watch.thread.take()
        };
        pending.told.notify_one();
        if let Some(thread) = thread {
            // It may be waiting for the lock, or be in a destructor, which may never return.
            return interpreter::end(py, || thread.is_finished());
        }
    }
    interpreter::end(py, || true);
}
