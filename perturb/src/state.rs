//! The library's state in a process.

use alloc::vec::Vec;

use crate::driver;
use crate::log::Counts;
use crate::marks::Marks;
use crate::streams::{Key, PER_THREAD, Streams};
use crate::sys::{self, Locked};

/// The library's state.
pub(crate) struct State {
    pub(crate) streams: Streams,
    pub(crate) marks: Marks,
    pub(crate) counts: Counts,
    /// The number of active captures.
    pub(crate) captures: u64,
    /// For the serial mode: contexts, each with its event.
    pub(crate) events: Vec<(u64, u64)>,
    /// For the serial mode: the context and the event recorded after the last operation, if the host has not
    /// waited for that operation.
    pub(crate) last: Option<(u64, u64)>,
}

impl State {
    pub(crate) const NEW: Self = Self {
        streams: Streams::new(),
        marks: Marks::NEW,
        counts: Counts::NONE,
        captures: 0,
        events: Vec::new(),
        last: None,
    };
}

pub(crate) static STATE: Locked<State> = Locked::new(State::NEW);

/// The stream that a handle means in this thread; None without a context.
pub(crate) fn key(handle: u64) -> Option<Key> {
    let context = driver::context_of(handle)?;
    let thread = if handle == PER_THREAD { this_thread()? } else { 0 };
    Some(Key { context, handle, thread })
}

/// This thread's number in a key, from 1: in a key, 0 means no thread.
fn this_thread() -> Option<u64> {
    sys::thread(|own| own.number + 1)
}
