//! The serial mode: an operation begins when the one before has ended. So the values are the right ones.
//!
//! The host waits for each operation. In two cases the next operation in the same context waits on the device
//! instead. During a capture, the host's wait would end the capture in some modes. Work that outlasts the
//! host's patience may need the host itself: a function that takes Python's lock, a kernel that polls a flag.

use crate::driver;
use crate::settings::PATIENCE;
use crate::state::{STATE, key};
use crate::streams::Key;
use crate::sys::{self, now};

/// How long the host polls without a rest, in nanoseconds.
const RESTLESS: u64 = 100_000;

/// Runs before an operation is queued on a stream that is not being captured. If the host has not waited for
/// the operation before it, the stream waits for that one, in the same context.
pub(crate) fn works(stream: u64) {
    let Some((context, event)) = STATE.lock().last else { return };
    if !is_beside() && !is_pending(event) {
        STATE.lock().last = None;
    } else if key(stream).is_some_and(|key| key.context == context) {
        // Not across contexts: the pending work may itself wait for another device's work.
        // SAFETY: the program is about to use the stream; the event lives as long as its context.
        unsafe { driver::wait(stream, event) };
    }
}

/// Runs after an operation was queued on `stream`. The host waits for it, or its end is marked for the next
/// operation.
pub(crate) fn worked(stream: u64) {
    let on_device = is_beside() || STATE.lock().last.is_some();
    // SAFETY: the program has just used the stream.
    if on_device || !ends(|| unsafe { driver::is_busy(stream) }) {
        mark_the_end_of(stream);
    }
}

/// Runs when a capture ends or could not begin. If no other capture is active, and the mode is serial, the host
/// waits for work that was queued meanwhile.
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

/// Whether any stream is being captured.
fn is_beside() -> bool {
    STATE.lock().captures > 0
}

fn is_pending(event: u64) -> bool {
    // SAFETY: the event is this module's, and lives as long as its context. A context is forgotten before it
    // dies.
    unsafe { driver::is_pending(event) }
}

/// Makes the host wait while `is_busy` is true. Returns false if its patience ended first.
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
