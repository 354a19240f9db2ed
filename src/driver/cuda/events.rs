//! The events that orders are made with: one a thread and context, and those that are to spare.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};

use super::Cuda;
use crate::driver::{Context, Event};
use crate::error::Result;

/// The events of one thread, by context. They go back to [`SPARE`] when the thread ends, since a
/// thread's end is no place to call the driver; a fork has no use for its parent's.
struct ThreadEvents(Vec<(Context, Event)>);

static SPARE: Mutex<Vec<(Context, Event)>> = Mutex::new(Vec::new());

impl Drop for ThreadEvents {
    fn drop(&mut self) {
        if Cuda::check_process().is_ok() {
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.0);
        }
    }
}

thread_local! {
    /// The context and event that this thread used last: no destructor, so the cheapest to reach.
    static LAST: Cell<Option<(Context, Event)>> = const { Cell::new(None) };
    static EVENTS: RefCell<ThreadEvents> = const { RefCell::new(ThreadEvents(Vec::new())) };
}

fn spare_event(context: Context) -> Option<Event> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = spare.iter().position(|(of, _)| *of == context)?;
    Some(spare.swap_remove(at).1)
}

/// This thread's event of `context`, made by `make` where there is none yet and none to spare.
pub(super) fn of_thread(context: Context, make: impl FnOnce() -> Result<Event>) -> Result<Event> {
    if let Some((of, event)) = LAST.get()
        && of == context
    {
        return Ok(event);
    }
    let known = EVENTS.try_with(|events| {
        let events = events.borrow();
        events.0.iter().find(|(of, _)| *of == context).map(|(_, event)| *event)
    });
    if let Ok(Some(event)) = known {
        LAST.set(Some((context, event)));
        return Ok(event);
    }
    let event = spare_event(context).map_or_else(make, Ok)?;
    // A thread that is ending has no place left to keep the event; it is then used once.
    let _ = EVENTS.try_with(|events| events.borrow_mut().0.push((context, event)));
    Ok(event)
}

/// An event of `context` of nobody else's.
pub(super) fn own(context: Context, make: impl FnOnce() -> Result<Event>) -> Result<Event> {
    spare_event(context).map_or_else(make, Ok)
}

/// Takes an event back that nothing waits for any more.
pub(super) fn give_back(context: Context, event: Event) {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner).push((context, event));
}
