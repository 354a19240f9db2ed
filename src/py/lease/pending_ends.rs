//! Runs ends: makes the orders of an end, then drops the references to the memory. An end that cannot finish yet
//! becomes a pending end, which later calls of the bridge check again; for CUDA's memory a watcher thread does so too.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;

use super::generation;
use super::held_memory::HeldMemory;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::lease::{EndState, Ending, Most, Parked};
use crate::local::local;
use crate::order::{Mark, MarkStream};
use crate::py::interpreter::{self, Answer, entry, or_no_memory};
use crate::py::observe::to_logging::{is_telling, quietly};
use crate::py::observe::{CallSpan, EndOutcome};

pub(super) struct QueuedEnd {
    pub(super) ending: Ending<Box<HeldMemory>>,
    pub(super) span: CallSpan,
    /// Whether the end began while its thread forwarded an event to `logging`: then the end's events are not logged.
    quiet: bool,
    outcome: Option<EndOutcome>,
}

impl QueuedEnd {
    pub(super) const fn of(ending: Ending<Box<HeldMemory>>, span: CallSpan) -> Self {
        Self { ending, span, quiet: false, outcome: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    Nothing,
    Ending,
    Followed,
}

/// The queue is empty between ends, so a thread that exits has nothing to drop here.
struct ThreadEnds {
    now: Cell<Now>,
    following: ManuallyDrop<RefCell<VecDeque<QueuedEnd>>>,
}

local! {
    static ENDS: ThreadEnds = const {
        ThreadEnds {
            now: Cell::new(Now::Nothing),
            following: ManuallyDrop::new(RefCell::new(VecDeque::new())),
        }
    };
}

#[inline(always)]
fn now() -> Option<Now> {
    ENDS.with(|ends| ends.now.get())
}

#[inline(always)]
fn set_now(now: Now) -> Option<Now> {
    ENDS.with(|ends| ends.now.replace(now))
}

/// Makes the orders of `next`, and queues `next` on this thread. Returns `next` if this thread has no queue.
#[cold]
fn queued(py: Python<'_>, next: QueuedEnd) -> Option<QueuedEnd> {
    // If making the orders panics, the memory leaks.
    let mut next = ManuallyDrop::new(QueuedEnd { quiet: is_telling(), ..next });
    next.outcome = Some(quietly(next.quiet, || outcome(py, &mut next.ending)));
    let mut next = Some(ManuallyDrop::into_inner(next));
    ENDS.with(|ends| {
        ends.now.set(Now::Followed);
        ends.following.borrow_mut().extend(next.take());
    });
    next
}

/// Exists while this thread runs ends. If a panic drops the guard, the queued ends go to [`keep`].
struct QueueGuard;

impl QueueGuard {
    /// `None` if this thread has a guard already.
    #[inline(always)]
    fn begin() -> Option<Self> {
        (now() == Some(Now::Nothing)).then(|| {
            set_now(Now::Ending);
            Self
        })
    }

    #[inline(always)]
    fn finish(self, py: Python<'_>) {
        if now() == Some(Now::Followed) {
            Self::run_following(py);
        }
        set_now(Now::Nothing);
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

    fn following() -> Option<QueuedEnd> {
        let next = ENDS.with(|ends| {
            let mut following = ends.following.borrow_mut();
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
        while now() == Some(Now::Followed)
            && let Some(next) = Self::following()
        {
            keep(next.ending);
        }
        set_now(Now::Nothing);
    }
}

/// Runs `first`, then queued ends until none is left. If this thread is already running an end, runs only `first`.
pub(super) fn flat(py: Python<'_>, first: impl FnOnce()) {
    let following = QueueGuard::begin();
    first();
    if let Some(following) = following {
        following.finish(py);
    }
}

/// Finishes the end in `place`, or keeps it for later. If making the end's orders panics, the memory leaks.
pub(super) fn run(py: Python<'_>, place: &mut ManuallyDrop<Option<QueuedEnd>>) {
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

/// If this thread is already running an end, makes the orders at once and queues the rest.
#[inline(always)]
pub(super) fn end(
    py: Python<'_>,
    place: &mut ManuallyDrop<Option<Box<HeldMemory>>>,
    span: CallSpan,
) {
    let Some(following) = QueueGuard::begin() else { return inside(py, place, span) };
    look(py);
    if let Some(held) = place.as_ref()
        && held.is_done_without_orders(py)
    {
        let tag = held.tag;
        **place = None;
        span.released(tag, EndOutcome::Done);
    } else {
        by_orders(py, place, span);
    }
    following.finish(py);
}

#[inline(never)]
fn by_orders(py: Python<'_>, place: &mut ManuallyDrop<Option<Box<HeldMemory>>>, span: CallSpan) {
    let next = place.take().map(|held| QueuedEnd::of(Ending::new(held), span));
    run(py, &mut LeftGuard(ManuallyDrop::new(next)).0);
}

#[cold]
fn inside(py: Python<'_>, place: &mut ManuallyDrop<Option<Box<HeldMemory>>>, span: CallSpan) {
    let next = place.take().map(|held| QueuedEnd::of(Ending::new(held), span));
    let next = next.and_then(|next| queued(py, next));
    run(py, &mut LeftGuard(ManuallyDrop::new(next)).0);
}

struct LeftGuard(ManuallyDrop<Option<QueuedEnd>>);

impl Drop for LeftGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(next) = self.0.as_ref() {
            next.span.released(next.ending.holder().tag, EndOutcome::Lost);
        }
    }
}

fn outcome(py: Python<'_>, ending: &mut Ending<Box<HeldMemory>>) -> EndOutcome {
    let of = ending.holder().generation;
    // After an interrupt or a lack of memory, try once more: when `outcome` returns, the producer can go on writing to
    // the memory.
    for _ in 0..2 {
        match generation::end(of, || or_no_memory(|| ending.advance(py))) {
            Ok(()) => break,
            Err(interrupt) => interrupt.write_unraisable(py, None),
        }
    }
    match ending.state() {
        EndState::GivenBack => EndOutcome::Done,
        EndState::Abandoned => EndOutcome::LetGo,
        EndState::Due | EndState::Waiting(()) | EndState::ToRetry => EndOutcome::PutOff,
    }
}

/// The pending ends of a process. A forked child has its own: a lock that the parent held stays locked in the child.
struct Pending {
    parked: Parked<MarkStream, Ending<Box<HeldMemory>>>,
    watch: Mutex<EndWatch>,
    told: Condvar,
}

impl Default for Pending {
    fn default() -> Self {
        // An end is queued under its last mark's stream, since `is_done` checks that mark first.
        let turn = |ending: &Ending<Box<HeldMemory>>| {
            ending.mark().and_then(|marks| marks.last()).map(Mark::turn)
        };
        Self { parked: Parked::new(turn), watch: Mutex::default(), told: Condvar::new() }
    }
}

#[derive(Default)]
struct EndWatch {
    thread: Option<JoinHandle<()>>,
    idle: bool,
    over: bool,
}

static PENDING: [OnceLock<Pending>; 64] = [const { OnceLock::new() }; 64];

fn pending() -> Option<&'static Pending> {
    let number = usize::try_from(Process::current().number()).ok()?;
    PENDING.get(number).map(|pending| pending.get_or_init(Pending::default))
}

/// The most pending ends that [`look`] checks.
const AT_A_CALL: Most = Most { lanes: 1, questions: 4 };

/// The most pending ends that [`look_again`] checks.
const AFTER_A_CALL: Most = Most { lanes: 64, questions: 64 };

const AT_A_TIME: Most = Most { lanes: 256, questions: 4096 };

/// The watcher thread's first pause between two rounds. A round that finishes nothing doubles the pause, up to
/// [`LAST`].
const FIRST: Duration = Duration::from_micros(500);
const LAST: Duration = Duration::from_millis(50);

/// If the pause is longer and no end is pending, the watcher thread sleeps until another thread wakes it.
const IDLE: Duration = Duration::from_millis(4);

fn keep(ending: Ending<Box<HeldMemory>>) {
    // On a simulated device no end becomes possible by waiting alone.
    let ripens = matches!(ending.holder().driver, Handle::Cuda);
    let Some(pending) = pending() else {
        // This process is 64 or more forks deep, so the end is never checked again.
        return std::mem::forget(ending);
    };
    pending.parked.push(ending);
    interpreter::left_for_later(look_again);
    if ripens {
        pending.wake();
    }
}

#[inline]
pub(crate) fn look(py: Python<'_>) {
    if let Some(pending) = pending()
        && !pending.parked.is_empty()
    {
        pending.look(py, AT_A_CALL);
    }
}

/// [`entry`] runs this at the end of a call during which an end was put off: what delayed the end can be over by then.
#[cold]
fn look_again(py: Python<'_>) {
    if let Some(pending) = pending() {
        pending.look(py, AFTER_A_CALL);
    }
}

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
    #[cold]
    fn look(&self, py: Python<'_>, most: Most) -> bool {
        let mut any = false;
        let is_over = |ending: &mut Ending<Box<HeldMemory>>| {
            let span = CallSpan::begin();
            let outcome = match outcome(py, ending) {
                EndOutcome::PutOff => return false,
                EndOutcome::Done => EndOutcome::DoneLater,
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

    fn watch(&self) -> MutexGuard<'_, EndWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&'static self) {
        let mut watch = self.watch();
        if watch.over {
            return;
        }
        if watch.thread.is_none() {
            let thread = std::thread::Builder::new().name("cai_bridge".into());
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
            // Release the lock before other code runs: an end that is put off locks `watch` again.
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let any = !self.parked.is_empty()
                && interpreter::enter(|py| self.look(py, AT_A_TIME)) == Some(true);
            pause = if any { FIRST } else { LAST.min(pause * 2) };
            watch = self.watch();
        }
    }
}

/// Tells the watcher thread to stop before the interpreter ends, and waits for it up to a time limit. From then on only
/// the calling thread can enter the interpreter through the bridge.
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
            // Do not join the thread: it can wait for the interpreter's lock, or never return.
            return interpreter::end(py, || thread.is_finished());
        }
    }
    interpreter::end(py, || true);
}
