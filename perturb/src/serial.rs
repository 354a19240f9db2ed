//! The serial mode: an operation begins when the one before has ended. The values are then the right ones.

use crate::driver;
use crate::run::{PATIENCE, STATE, key};
use crate::streams::Key;
use crate::sys::{self, now};

/// An operation is about to be queued on a stream that is not being captured.
pub(crate) fn works(stream: u64) {
    let last = STATE.lock().last;
    if let Some(event) = last {
        // SAFETY: the program is about to use the stream; the event lives as long as its context.
        unsafe { driver::wait(stream, event) };
    }
}

/// It was queued.
pub(crate) fn worked(stream: u64) {
    let beside = STATE.lock().captures > 0;
    if beside {
        mark_the_end_of(stream);
    } else {
        // SAFETY: the program has just used it.
        wait_for(|| unsafe { driver::is_busy(stream) }, || unsafe { driver::synchronize(stream) });
    }
}

/// Has the host wait, and for a second only if the program has functions of the host's called: these may
/// need what this thread holds, such as Python's lock.
fn wait_for(is_busy: impl Fn() -> bool, synchronize: impl FnOnce()) {
    if !STATE.lock().calls_back {
        return synchronize();
    }
    let ends = now().saturating_add(PATIENCE);
    while now() < ends && is_busy() {
        sys::rest();
    }
}

/// Beside a capture the host must not wait, in no mode that every driver allows. So the next operation waits
/// for this stream, on the device.
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
        state.last = Some(event);
    }
}

/// A capture is over. After the last one the host waits for what was queued meanwhile.
pub(crate) fn ended(serial: bool) {
    let last = {
        let mut state = STATE.lock();
        state.captures = state.captures.saturating_sub(1);
        if state.captures > 0 || !serial {
            return;
        }
        state.last.take()
    };
    if let Some(event) = last {
        // SAFETY: the event lives as long as its context.
        wait_for(
            || unsafe { driver::is_pending(event) },
            || unsafe {
                driver::synchronize_event(event);
            },
        );
    }
}
