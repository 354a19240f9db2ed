//! The serial mode: an operation begins when the one before has ended. The values are then the right ones.
//!
//! The host waits for each operation. Where it must not, the next operation waits on the device: beside a
//! capture, which a wait of the host would end in some of its modes; and behind work that takes longer than
//! the host's patience, as it may need the host itself: a function that takes Python's lock, a kernel that
//! looks at a flag.

use crate::driver;
use crate::run::{PATIENCE, STATE, key};
use crate::streams::Key;
use crate::sys::{self, now};

/// For how long the host asks without a rest, in nanoseconds.
const RESTLESS: u64 = 100_000;

/// An operation is about to be queued on a stream that is not being captured.
pub(crate) fn works(stream: u64) {
    let Some((context, event)) = STATE.lock().last else { return };
    if !is_beside() && !is_pending(event) {
        STATE.lock().last = None;
    } else if key(stream).is_some_and(|key| key.context == context) {
        // Work of another device may be what the pending one waits for.
        // SAFETY: the program is about to use the stream; the event lives as long as its context.
        unsafe { driver::wait(stream, event) };
    }
}

/// It was queued.
pub(crate) fn worked(stream: u64) {
    let on_device = is_beside() || STATE.lock().last.is_some();
    // SAFETY: the program has just used it.
    if on_device || !ends(|| unsafe { driver::is_busy(stream) }) {
        mark_the_end_of(stream);
    }
}

/// A capture is over. After the last one the host waits for what was queued meanwhile.
pub(crate) fn ended(serial: bool) {
    let last = {
        let mut state = STATE.lock();
        state.captures = state.captures.saturating_sub(1);
        state.last.filter(|_| serial && state.captures == 0)
    };
    if let Some((_, event)) = last {
        ends(|| is_pending(event));
    }
}

/// Whether a capture is going on anywhere.
fn is_beside() -> bool {
    STATE.lock().captures > 0
}

fn is_pending(event: u64) -> bool {
    // SAFETY: it is one of this module's, and lives as long as its context, which is forgotten before.
    unsafe { driver::is_pending(event) }
}

/// Has the host wait. False where its patience has ended first.
fn ends(is_busy: impl Fn() -> bool) -> bool {
    let begun = now();
    while is_busy() {
        match now().saturating_sub(begun) {
            0..RESTLESS => {}
            RESTLESS..PATIENCE => sys::rest(),
            _ => return false,
        }
    }
    true
}

fn mark_the_end_of(stream: u64) {
    let Some(Key { context, .. }) = key(stream) else { return };
    let known = STATE.lock().events.iter().find(|one| one.0 == context).map(|one| one.1);
    // SAFETY: the context is the stream's.
    let Some(event) = known.or_else(|| unsafe { driver::new_event(context) }) else { return };
    // SAFETY: the program has just used the stream; the event lives as long as the context.
    let marked = unsafe { driver::record(event, stream) };
    let mut state = STATE.lock();
    if known.is_none() {
        state.events.push((context, event));
    }
    if marked {
        state.last = Some((context, event));
    }
}
