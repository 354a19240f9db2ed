//! In the record mode, tells the program late that work is done.
//!
//! On an idle GPU work is done at once. A thread that waits for the work, or asks, learns this before another
//! thread queues the next work, though nothing makes the other thread wait. The record would have an order by
//! luck. So the library lets some time pass, as a slower GPU would. It does so before a host function runs,
//! before a thread without Python returns from a wait, and before an event is said to be over.

use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::NOT_READY;
use crate::entries::{ENTRIES, Kind, Row};
use crate::frames;
use crate::settings::{Mode, Settings};
use crate::sys::{self, Locked, now};

/// How much later the program is told, in nanoseconds.
const LATER: u64 = 2_000_000;
/// The time that passes on purpose is at most the program's run time divided by this number, plus [`FIRST`].
const SHARE: u64 = 20;
/// How much time may pass on purpose, and for how long events may be said to be pending, however short the run
/// is, in nanoseconds.
const FIRST: u64 = 60_000_000;
/// The time for which events that are over are said to be pending is at most the program's run time divided by
/// this number, plus [`FIRST`]. So a program that asks until an event is over goes on.
const PENDING: u64 = 2;

/// The time of the first call of [`begun`]; 0: there was none.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// How much time has passed on purpose, in nanoseconds.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// The recorded events that the program may not know to be over.
struct Events {
    /// The time at which each event was recorded.
    recorded: BTreeMap<u64, u64>,
    /// The time at which the program was last told that an event is pending which is over.
    told: u64,
    /// For how long the program was told so in all, in nanoseconds.
    spent: u64,
}

impl Events {
    const NEW: Self = Self { recorded: BTreeMap::new(), told: 0, spent: 0 };

    /// Whether to tell the program that `event`, which is over, is pending.
    fn is_pending(&mut self, event: u64, time: u64, begun: u64) -> bool {
        let Some(at) = self.recorded.get(&event).copied() else { return false };
        let most = FIRST + time.saturating_sub(begun) / PENDING;
        if time.saturating_sub(at) < LATER && self.spent < most {
            self.spent += time.saturating_sub(self.told.max(at));
            self.told = time;
            return true;
        }
        // Events that were recorded before this one are over too, and the program may know.
        self.recorded.retain(|_, other| *other > at);
        false
    }
}

static EVENTS: Locked<Events> = Locked::new(Events::NEW);

/// Forgets all events, in a fork's child.
pub(crate) fn renew() {
    EVENTS.renew();
    *EVENTS.lock() = Events::NEW;
}

/// The time of the first call of this function; `time`, the time now, if this is the first call.
fn begun(time: u64) -> u64 {
    let known = BEGUN.load(Relaxed);
    if known == 0 {
        BEGUN.store(time, Relaxed);
    }
    if known == 0 { time } else { known }
}

/// Waits for [`LATER`], unless more time would then have passed on purpose than [`SHARE`] and [`FIRST`] allow.
fn pass() {
    let time = now();
    let most = FIRST + time.saturating_sub(begun(time)) / SHARE;
    if SPENT.fetch_add(LATER, Relaxed) + LATER > most {
        SPENT.fetch_sub(LATER, Relaxed);
        return;
    }
    while now().saturating_sub(time) < LATER {
        sys::rest();
    }
}

/// Runs before a host function of the program. In the record mode, lets some time pass, and forgets the
/// recorded events.
pub(crate) fn before_function() {
    if Settings::get().mode == Mode::Record {
        pass();
        EVENTS.lock().recorded.clear();
    }
}

/// Runs after each driver call of the program in the record mode. Returns the code for the program: `code`, or
/// "not ready" for an event that is over.
pub(crate) fn after(row: Row, arguments: &[u64], code: u32) -> u32 {
    let first = arguments.first().copied().unwrap_or(0);
    let Some(kind) = ENTRIES.get(row as usize).map(|one| one.kind) else { return code };
    match row {
        _ if code != 0 => {}
        Row::cuEventRecord | Row::cuEventRecordWithFlags => {
            EVENTS.lock().recorded.insert(first, now());
        }
        Row::cuEventDestroy_v2 => {
            EVENTS.lock().recorded.remove(&first);
        }
        Row::cuEventQuery => {
            let time = now();
            if EVENTS.lock().is_pending(first, time, begun(time)) {
                return NOT_READY;
            }
        }
        // The program may know from now on that recorded events are over, so it is not told otherwise.
        Row::cuStreamQuery | Row::cuEventElapsedTime | Row::cuEventElapsedTime_v2 => {
            EVENTS.lock().recorded.clear();
        }
        _ if matches!(kind, Kind::Copy | Kind::ToHost | Kind::FromHost) => {
            EVENTS.lock().recorded.clear();
        }
        _ if kind.waits() => {
            EVENTS.lock().recorded.clear();
            // A thread that runs Python passes on what it knows only with Python's lock, so after this call is
            // recorded.
            if sys::threads() > 1 && frames::read().is_none() {
                pass();
            }
        }
        _ => {}
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_pending_for_a_while_and_then_all_before_it_are_over() {
        let mut events = Events::NEW;
        events.recorded.extend([(5, 1000), (6, 2000), (7, 3000)]);
        assert!(!events.is_pending(4, 2000, 0));
        assert!(events.is_pending(6, 2000 + LATER - 1, 0));
        assert!(!events.is_pending(6, 2000 + LATER, 0));
        assert_eq!(events.recorded.keys().copied().collect::<alloc::vec::Vec<_>>(), [7]);
        assert!(!events.is_pending(5, 2000 + LATER, 0));
    }

    #[test]
    fn who_records_and_asks_until_it_is_over_goes_on() {
        let mut events = Events::NEW;
        let mut time = 0;
        loop {
            time += 1_000_000;
            events.recorded.insert(5, time - 900_000);
            if !events.is_pending(5, time, 0) {
                break;
            }
        }
        assert!((FIRST..4 * FIRST).contains(&time));
    }
}
