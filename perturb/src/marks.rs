//! The library's own events, each recorded after some work of the program. They tell whether work that no gate
//! holds up is unfinished.
//!
//! If a stream's newest work is held up, the driver only says that the stream is busy. About another thread's
//! default stream it says nothing. So the library records an event after each operation, one event for all of a
//! stream's work that one gate holds up.

use alloc::vec::Vec;

use crate::driver;
use crate::streams::{Behind, Key};

/// An event recorded after the last of a stream's operations that one gate holds up, or that none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The stream; None if it is destroyed.
    key: Option<Key>,
    context: u64,
    behind: Behind,
    event: u64,
}

/// All marks of possibly unfinished work, in the order in which their events were recorded.
#[derive(Debug)]
pub(crate) struct Marks {
    all: Vec<Mark>,
    /// Unused events, with their contexts.
    spare: Vec<(u64, u64)>,
}

impl Marks {
    pub(crate) const NEW: Self = Self { all: Vec::new(), spare: Vec::new() };

    /// Takes an event to mark a stream's new work: that of the mark with the same gate, or an unused one. None:
    /// the caller makes a new event.
    pub(crate) fn take(&mut self, key: Key, behind: Behind) -> Option<u64> {
        let same = |one: &Mark| one.key == Some(key) && one.behind.ticket == behind.ticket;
        if let Some(place) = self.all.iter().position(same) {
            return Some(self.all.remove(place).event);
        }
        let place = self.spare.iter().position(|one| one.0 == key.context)?;
        Some(self.spare.swap_remove(place).1)
    }

    /// Adds a mark with a recorded event. Of a stream's marks that no gate holds up, only the last is kept,
    /// since it covers the others.
    pub(crate) fn put(
        &mut self,
        key: Key,
        behind: Behind,
        event: u64,
        is_held: impl Fn(Behind) -> bool,
    ) {
        let free = |one: &Mark| one.key == Some(key) && !is_held(one.behind);
        let last = self.all.iter().rfind(|one| free(one)).copied().filter(|_| is_held(behind));
        self.keep(|one| !free(one) || Some(*one) == last);
        self.all.push(Mark { key: Some(key), context: key.context, behind, event });
    }

    /// Takes back an event that could not be recorded.
    pub(crate) fn give_back(&mut self, key: Key, event: u64) {
        self.spare.push((key.context, event));
    }

    /// Runs before a stream is destroyed. Its marks stay, without the stream, since another stream may get its
    /// handle.
    pub(crate) fn destroy(&mut self, handle: u64) {
        // SAFETY: this list owns the events, which live as long as their contexts.
        self.keep(|one| one.key.is_some() || unsafe { driver::is_pending(one.event) });
        for one in &mut self.all {
            one.key = one.key.filter(|key| key.handle != handle);
        }
    }

    /// Forgets the marks and events of a destroyed context, which are gone with it.
    pub(crate) fn forget(&mut self, context: u64) {
        self.all.retain(|one| one.context != context);
        self.spare.retain(|one| one.0 != context);
    }

    /// Whether any marked work is unfinished that no gate holds up. Drops marks of finished work.
    pub(crate) fn some_run(
        &mut self,
        is_held: impl Fn(Behind) -> bool,
        is_pending: impl Fn(u64) -> bool,
    ) -> bool {
        let mut found = false;
        self.keep(|one| {
            found |= !is_held(one.behind) && !found && is_pending(one.event);
            found || is_held(one.behind)
        });
        found
    }

    fn keep(&mut self, mut is_kept: impl FnMut(&Mark) -> bool) {
        let spare = &mut self.spare;
        self.all.retain(|one| {
            let kept = is_kept(one);
            if !kept {
                spare.push((one.context, one.event));
            }
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key { context: 9, handle: 5, thread: 0 };
    const B: Key = Key { context: 9, handle: 6, thread: 0 };

    fn at(ticket: u64) -> Behind {
        Behind { ticket, until: 0 }
    }

    /// Sets these marks. Each uses the event 70 plus its index, unless an earlier event serves.
    fn set(of: &[(Key, u64)], opened: u64) -> Marks {
        let mut marks = Marks::NEW;
        for ((key, ticket), new) in of.iter().zip(70..) {
            let event = marks.take(*key, at(*ticket)).unwrap_or(new);
            marks.put(*key, at(*ticket), event, |one| one.ticket > opened);
        }
        marks
    }

    fn events(marks: &Marks) -> Vec<u64> {
        marks.all.iter().map(|one| one.event).collect()
    }

    #[test]
    fn one_event_marks_all_work_of_a_stream_behind_one_gate() {
        let marks = set(&[(A, 1), (A, 1), (B, 1), (A, 2)], 0);
        assert_eq!(events(&marks), [70, 72, 73]);
        // No gate holds these up any more, so the last mark covers all.
        assert_eq!(events(&set(&[(A, 1), (B, 1), (A, 2)], 9)), [71, 72]);
        // Of the free marks before a held one, the last is kept.
        assert_eq!(events(&set(&[(A, 1), (A, 2), (A, 7)], 5)), [71, 70]);
    }

    #[test]
    fn work_goes_on_that_is_pending_and_not_held_up() {
        let mut marks = set(&[(A, 0), (A, 1), (B, 2)], 0);
        let held = |from| move |one: Behind| one.ticket >= from;
        assert!(marks.some_run(held(1), |event| event == 70));
        assert!(!marks.some_run(held(1), |event| event != 70));
        assert_eq!(events(&marks), [71, 72]);
        assert!(marks.some_run(held(2), |event| event == 71));
        assert!(marks.some_run(held(9), |event| event == 72));
        assert!(!marks.some_run(held(9), |_| false));
        assert_eq!((events(&marks).len(), marks.spare.len()), (0, 3));
        assert_eq!(marks.take(A, at(3)).map(|event| event >= 70), Some(true));
        assert_eq!(marks.take(Key { context: 8, ..A }, at(3)), None);
    }

    #[test]
    fn a_destroyed_streams_work_is_asked_for_and_its_handle_is_another_ones() {
        let mut marks = set(&[(A, 1)], 0);
        marks.destroy(A.handle);
        assert_eq!(marks.take(A, at(1)), None);
        assert!(marks.some_run(|_| false, |event| event == 70));
        marks.forget(9);
        assert!(!marks.some_run(|_| false, |_| true));
    }
}
