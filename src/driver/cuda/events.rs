//! Events for reuse. Each thread keeps at most one unused event, so taking that event needs no lock. The other unused
//! events are in a list that all threads share.
//!
//! The driver destroys an event with its context. So the list forgets the events of an earlier context at the same
//! address. Before CUDA 12 contexts have no numbers, and the list does not notice a new context at an old address.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_uint;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::calls::Calls;
use super::probe::Cuda;
use super::sys::{CUevent, CUevent_flags};
use crate::driver::{Context, Event};
use crate::error::Result;
use crate::local::local;

/// The unused events of each context, except those that threads keep.
static SPARE: Mutex<Vec<SpareEvents>> = Mutex::new(Vec::new());

struct SpareEvents {
    context: Context,
    life: u64,
    events: Vec<usize>,
}

/// The unused events of `context`. Forgets the events of another context at the same address.
fn spare_of(all: &mut Vec<SpareEvents>, context: Context, life: u64) -> &mut Vec<usize> {
    let at = all.iter().position(|spare| spare.context == context).unwrap_or_else(|| {
        all.push(SpareEvents { context, life, events: Vec::new() });
        all.len() - 1
    });
    let spare = &mut all[at];
    if spare.life != life {
        (spare.life, spare.events) = (life, Vec::new());
    }
    &mut spare.events
}

/// The unused event that this thread keeps. The drop, at the thread's end, makes no driver call.
struct Last(Cell<Option<Event>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(event) = self.0.take() {
            spare_for_all(event);
        }
    }
}

local! {
    static LAST: Last = const { Last(Cell::new(None)) };
}

fn spare_for_all(event: Event) {
    if Cuda::check_process().is_ok() {
        let mut all = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        // If the list has a later context at the same address, the driver has destroyed the event, so forget the event.
        let is_late =
            |spare: &SpareEvents| spare.context == event.context && spare.life > event.life;
        if !all.iter().any(is_late) {
            spare_of(&mut all, event.context, event.life).push(event.handle);
        }
    }
}

/// `context` must be current, and `life` must be its number (`Driver::life`).
pub(super) fn new(calls: &Calls, context: Context, life: u64) -> Result<Event> {
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
    let mut event: CUevent = ptr::null_mut();
    // SAFETY: `event` outlives the call.
    unsafe { calls.event_create(&raw mut event, flags) }?;
    Ok(Event { handle: event as usize, context, life })
}

#[inline]
pub(super) fn take(context: Context, life: u64) -> Option<Event> {
    let last = LAST.with(|last| last.0.take()).flatten();
    match last {
        Some(event) if (event.context, event.life) == (context, life) => Some(event),
        other => spare(other, context, life),
    }
}

/// `other` must be no event of this context. `None` if the shared list has no event of this context.
#[cold]
fn spare(other: Option<Event>, context: Context, life: u64) -> Option<Event> {
    if let Some(event) = other {
        spare_for_all(event);
    }
    let mut all = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = spare_of(&mut all, context, life).pop()?;
    Some(Event { handle, context, life })
}

/// The thread keeps `event`, in place of the event that it kept before.
#[inline]
pub(super) fn give_back(event: Event) {
    // If the thread is ending and has dropped its `LAST`, `event` goes to the shared list.
    let before = LAST.with(|last| last.0.replace(Some(event)));
    if let Some(event) = before.unwrap_or(Some(event)) {
        spare_for_all(event);
    }
}
