//! Tells the program late that work is done, while its calls are recorded.
//!
//! On an idle GPU work is done at once. A thread that waits for it, or asks, then knows so before another
//! thread queues the next work, though nothing makes that one wait: the record would have an order by luck.
//! So the library lets some time pass, as a slower GPU would: before a host function runs, before a thread
//! without Python goes on behind a wait, and before an event is said to be over.

use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::NOT_READY;
use crate::entries::{ENTRIES, Kind, Row};
use crate::frames;
use crate::settings::{Mode, Settings};
use crate::sys::{self, Locked, now};

/// How much later the program is told, in nanoseconds.
const LATER: u64 = 2_000_000;
/// How much of the program's time may pass so: one part of so many, and some at the beginning.
const SHARE: u64 = 20;
const FIRST: u64 = 60_000_000;
/// For one part of so many an event may be said to be pending though it is over: a program that asks until
/// it is over goes on.
const PENDING: u64 = 2;

/// When the program first called one of these functions.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// How much time has passed on purpose.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// The events that were recorded, and for which nobody has waited since.
struct Events {
    /// When each was recorded.
    recorded: BTreeMap<u64, u64>,
    /// When the program was last told that one is pending, and for how long it was told so in all.
    told: u64,
    spent: u64,
}

impl Events {
    const NEW: Self = Self { recorded: BTreeMap::new(), told: 0, spent: 0 };

    /// Whether the program is told that an event is pending, which is over.
    fn is_pending(&mut self, event: u64, time: u64, begun: u64) -> bool {
        let Some(at) = self.recorded.get(&event).copied() else { return false };
        let most = FIRST + time.saturating_sub(begun) / PENDING;
        if time.saturating_sub(at) < LATER && self.spent < most {
            self.spent += time.saturating_sub(self.told.max(at));
            self.told = time;
            return true;
        }
        // What was recorded before may be over too, and the program may know.
        self.recorded.retain(|_, other| *other > at);
        false
    }
}

static EVENTS: Locked<Events> = Locked::new(Events::NEW);

/// Runs in a fork's child.
pub(crate) fn renew() {
    EVENTS.renew();
    *EVENTS.lock() = Events::NEW;
}

/// When the program first called one of these functions.
fn begun(time: u64) -> u64 {
    let known = BEGUN.load(Relaxed);
    if known == 0 {
        BEGUN.store(time, Relaxed);
    }
    if known == 0 { time } else { known }
}

/// Lets some time pass, if the program has run for long enough.
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

/// A host function is about to run.
pub(crate) fn before_function() {
    if Settings::get().mode == Mode::Record {
        pass();
        EVENTS.lock().recorded.clear();
    }
}

/// Runs after each call of the program. Returns what the program is answered.
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
        // Whoever knows that later work is done, or may know it, is not told otherwise.
        Row::cuStreamQuery | Row::cuEventElapsedTime | Row::cuEventElapsedTime_v2 => {
            EVENTS.lock().recorded.clear();
        }
        _ if matches!(kind, Kind::Copy | Kind::ToHost | Kind::FromHost) => {
            EVENTS.lock().recorded.clear();
        }
        _ if kind.waits() => {
            EVENTS.lock().recorded.clear();
            // A thread with Python passes on what it knows by Python's lock, and its own calls come later.
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
