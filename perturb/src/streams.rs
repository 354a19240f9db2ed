//! Streams: their indices, and the last gate that holds up the work of each. Pure.
//!
//! Gates have ascending tickets. The host opens all gates up to one ticket, and a gate opens by itself at its
//! time. So the highest ticket among the gates that a stream waits for tells whether the stream is held up.
//! Events and the legacy default stream carry tickets between streams.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The legacy default stream's handle.
pub(crate) const LEGACY: u64 = 1;
/// The handle of each thread's own default stream.
pub(crate) const PER_THREAD: u64 = 2;
/// When an event is recorded and at least this many are known, the events with open gates are forgotten.
const EVENTS: usize = 4096;

/// Identifies a stream: a context, a handle and, for a thread's own default stream, the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) context: u64,
    pub(crate) handle: u64,
    pub(crate) thread: u64,
}

/// The last of the gates that work waits for. Ticket 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) ticket: u64,
    /// The time at which the gate opens by itself, in nanoseconds of the host's clock.
    pub(crate) until: u64,
}

impl Behind {
    fn or(self, other: Self) -> Self {
        if other.ticket > self.ticket { other } else { self }
    }
}

/// A stream's state.
#[derive(Clone, Debug)]
struct Stream {
    key: Key,
    index: u64,
    /// Whether the stream is blocking, so that CUDA orders it with the legacy default stream.
    blocking: bool,
    destroyed: bool,
    behind: Behind,
    gate: Behind,
    gated_at: u64,
    /// Whether an event was recorded on the stream since its last gate was queued. A stream that waits for that
    /// event does not wait for later work.
    marked: bool,
}

/// Whether one of the two streams is the legacy default stream and the other a blocking one of the same
/// context.
fn joined(one: &Stream, key: Key, blocking: bool) -> bool {
    let both = one.key.context == key.context && one.blocking && blocking;
    both && (key.handle == LEGACY || one.key.handle == LEGACY)
}

/// The delays of late work, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    pub(crate) each: u64,
    /// The least time between the openings of two gates, if their order matters.
    pub(crate) apart: u64,
    /// How long after a gate was queued late work on its stream needs no gate of its own.
    pub(crate) shared: u64,
    /// The most by which keeping gates apart may delay a gate from now. At this bound, gates open together.
    pub(crate) most: u64,
}

/// What is done before an operation is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) index: u64,
    pub(crate) late: bool,
    /// The gate to queue before the operation; None: it needs no new one.
    pub(crate) gate: Option<Behind>,
    /// The last gate that the operation waits for without the new gate.
    pub(crate) without: Behind,
}

/// All streams of the process that have been used.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    events: BTreeMap<u64, Behind>,
    /// The gates that may be closed, in the order of their tickets.
    closed: VecDeque<Behind>,
    tickets: u64,
    opened: u64,
    latest: Latest,
}

/// The last queued gate: the time at which it opens by itself, and its stream's index.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    until: u64,
    stream: u64,
}

impl Streams {
    pub(crate) const fn new() -> Self {
        Self {
            all: Vec::new(),
            events: BTreeMap::new(),
            closed: VecDeque::new(),
            tickets: 0,
            opened: 0,
            latest: Latest { until: 0, stream: 0 },
        }
    }

    /// The most streams that had an index at one time.
    pub(crate) fn most(&self) -> u64 {
        self.all.len() as u64
    }

    /// Decides what comes before an operation. `is_late` takes the stream's index. A new gate opens by itself
    /// `delay.each` after `now`, or later if an earlier gate does or the two must open apart.
    pub(crate) fn launch(
        &mut self,
        key: Key,
        blocking: bool,
        now: u64,
        delay: Delay,
        is_late: impl FnOnce(u64) -> bool,
    ) -> Launch {
        let upstream = self.upstream(key, blocking);
        let (opened, ticket) = (self.opened, self.tickets + 1);
        // No gate opens before one that was queued earlier. Otherwise later work could overtake earlier late
        // work.
        let after = if self.tickets > opened { self.latest } else { Latest::default() };
        let stream = self.stream(key, blocking, now);
        stream.behind = stream.behind.or(upstream);
        let (index, without) = (stream.index, stream.behind);
        let late = is_late(index);
        let pending = stream.gate.ticket > opened;
        // Behind a gate that was queued just before, the work is late already.
        let held = pending && !stream.marked && now - stream.gated_at.min(now) < delay.shared;
        let gate = (late && !held).then(|| {
            // Leaves time between two gates for work that waits for an event between them. With separate
            // gates, it also leaves time for late work on another stream.
            let next = (pending && stream.marked) || (delay.shared == 0 && after.stream != index);
            let apart = if next { delay.apart } else { 0 };
            let until = now.saturating_add(delay.each).max(after.until);
            let most = now.saturating_add(delay.most);
            Behind { ticket, until: until.max(after.until.saturating_add(apart).min(most)) }
        });
        if let Some(new) = gate {
            stream.gate = new;
            stream.gated_at = now;
            stream.marked = false;
            stream.behind = new;
            self.tickets = ticket;
            self.latest = Latest { until: new.until, stream: index };
            self.first_closed(now);
            self.closed.push_back(new);
        }
        Launch { index, late, gate, without }
    }

    /// Takes back the gate of `launch`, which could not be queued. Neither the operation nor work that waits
    /// for it is late.
    pub(crate) fn failed(&mut self, launch: Launch) {
        let Some(gate) = launch.gate else { return };
        self.closed.retain(|one| *one != gate);
        for stream in self.all.iter_mut().filter(|one| one.gate == gate) {
            stream.gate = Behind::default();
        }
        let behind = self.all.iter_mut().map(|one| &mut one.behind).chain(self.events.values_mut());
        for one in behind.filter(|one| **one == gate) {
            *one = launch.without;
        }
    }

    /// Notes that an event is recorded on the stream.
    pub(crate) fn record(&mut self, event: u64, key: Key, blocking: bool, now: u64) {
        let behind = self.upstream(key, blocking).or(self.stream(key, blocking, now).behind);
        for one in self.all.iter_mut().filter(|one| one.key == key || joined(one, key, blocking)) {
            one.marked = true;
        }
        if self.events.len() >= EVENTS {
            let opened = self.opened;
            self.events.retain(|_, one| one.ticket > opened);
        }
        self.events.insert(event, behind);
    }

    /// Notes that the stream waits for an event.
    pub(crate) fn wait(&mut self, key: Key, blocking: bool, event: u64, now: u64) {
        let behind = self.upstream(key, blocking).or(self.of_event(event));
        let stream = self.stream(key, blocking, now);
        stream.behind = stream.behind.or(behind);
    }

    /// The last gate that the host waits for if it waits for a stream.
    pub(crate) fn of_stream(&self, key: Key) -> Behind {
        if key.handle == LEGACY {
            return self.upstream(key, true);
        }
        self.live().find(|one| one.key == key).map_or(Behind::default(), |one| one.behind)
    }

    pub(crate) fn of_event(&self, event: u64) -> Behind {
        self.events.get(&event).copied().unwrap_or_default()
    }

    /// The last gate that the host waits for if it waits for all work. The driver runs the work of a destroyed
    /// stream to its end.
    pub(crate) fn of_all(&self) -> Behind {
        self.all.iter().fold(Behind::default(), |sum, one| sum.or(one.behind))
    }

    pub(crate) fn is_pending(&self, behind: Behind, now: u64) -> bool {
        behind.ticket > self.opened && now < behind.until
    }

    /// Counts the first closed gate as open. Returns the ticket up to which all gates are open.
    pub(crate) fn open_first(&mut self, now: u64) -> u64 {
        let first = self.first_closed(now).unwrap_or_default();
        self.opened = self.opened.max(first.ticket);
        self.opened
    }

    fn first_closed(&mut self, now: u64) -> Option<Behind> {
        while let Some(first) = self.closed.front().copied() {
            if self.is_pending(first, now) {
                return Some(first);
            }
            self.closed.pop_front();
        }
        None
    }

    /// Marks the streams with this handle as destroyed. Another stream may get the handle.
    pub(crate) fn destroy(&mut self, handle: u64) {
        for one in self.all.iter_mut().filter(|one| one.key.handle == handle) {
            one.destroyed = true;
        }
    }

    /// Marks all streams of a destroyed context as destroyed. Their work is gone, so no gate holds it up.
    pub(crate) fn forget(&mut self, context: u64) {
        for one in self.all.iter_mut().filter(|one| one.key.context == context) {
            one.destroyed = true;
            one.behind = Behind::default();
        }
    }

    fn live(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().filter(|one| !one.destroyed)
    }

    /// The last gate that work on this stream waits for because the legacy default stream and blocking streams
    /// wait for each other, destroyed ones too.
    fn upstream(&self, key: Key, blocking: bool) -> Behind {
        let joined = self.all.iter().filter(|one| joined(one, key, blocking));
        joined.fold(Behind::default(), |sum, one| sum.or(one.behind))
    }

    /// The stream of a key. A new stream takes the place and index of a destroyed stream that no gate holds up,
    /// so a program that keeps making streams needs no more memory. While a gate holds a destroyed stream up,
    /// its index is not taken: two streams of one index are always late together.
    fn stream(&mut self, key: Key, blocking: bool, now: u64) -> &mut Stream {
        let place = self.all.iter().position(|one| !one.destroyed && one.key == key);
        let place = place.unwrap_or_else(|| {
            let is_over = |one: &Stream| one.destroyed && !self.is_pending(one.behind, now);
            let (gone, index) = match self.all.iter().position(is_over) {
                Some(place) => (Some(place), place),
                None => (None, self.all.len()),
            };
            let new = Stream {
                key,
                index: index as u64,
                blocking,
                destroyed: false,
                behind: Behind::default(),
                gate: Behind::default(),
                gated_at: 0,
                marked: false,
            };
            match gone.and_then(|place| self.all.get_mut(place)) {
                Some(old) => *old = new,
                None => self.all.push(new),
            }
            index
        });
        // The code above found or made the place.
        #[allow(clippy::indexing_slicing)]
        &mut self.all[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: u64 = 1600;

    fn key(handle: u64) -> Key {
        Key { context: 9, handle, thread: 0 }
    }

    /// Queues work on a stream. The first stream gets index 0. Stream 5 is non-blocking, stream 6 is
    /// blocking.
    fn work(streams: &mut Streams, handle: u64, now: u64, late: bool) -> Launch {
        let delay = Delay { each: DELAY, apart: DELAY / 8, shared: DELAY / 16, most: 2 * DELAY };
        streams.launch(key(handle), handle != 5, now, delay, |_| late)
    }

    fn holds(streams: &Streams, handle: u64) -> bool {
        streams.is_pending(streams.of_stream(key(handle)), 100)
    }

    #[test]
    fn late_work_gets_a_gate_and_what_follows_at_once_does_not() {
        let mut streams = Streams::new();
        let gate = Behind { ticket: 1, until: 100 + DELAY };
        assert_eq!(work(&mut streams, 5, 100, true).gate, Some(gate));
        assert_eq!(work(&mut streams, 5, 100 + DELAY / 16 - 1, true).gate, None);
        assert!(work(&mut streams, 5, 100 + DELAY / 16, true).gate.is_some());
        assert_eq!([streams.open_first(100), streams.open_first(100)], [1, 2]);
        assert!(work(&mut streams, 5, 100 + DELAY / 16, true).gate.is_some());
    }

    #[test]
    fn behind_an_event_late_work_has_a_gate_of_its_own_that_opens_later() {
        let mut streams = Streams::new();
        let mut until = DELAY;
        work(&mut streams, 5, 0, true);
        for ticket in 2..20 {
            streams.record(70, key(5), false, 0);
            until = (until + DELAY / 8).min(2 * DELAY);
            assert_eq!(work(&mut streams, 5, 0, true).gate, Some(Behind { ticket, until }));
            assert_eq!(work(&mut streams, 5, 0, true).gate, None);
        }
        assert_eq!(streams.of_event(70).ticket, 18);
    }

    #[test]
    fn no_gate_opens_before_one_that_was_queued_earlier() {
        let mut streams = Streams::new();
        let mut until = |handle: u64, delay: Delay| {
            let launch = streams.launch(key(handle), false, 0, delay, |_| true);
            launch.gate.map(|gate| gate.until)
        };
        let late = |each: u64| Delay { each, apart: each / 8, shared: each / 16, most: 2 * each };
        assert_eq!(until(5, late(DELAY)), Some(DELAY));
        assert_eq!(until(6, late(DELAY / 2)), Some(DELAY));
        // With separate gates, late work on one stream is done before late work on the other begins.
        let own = Delay { each: DELAY, apart: DELAY / 8, shared: 0, most: u64::MAX };
        assert_eq!(until(5, own), Some(DELAY + DELAY / 8));
        assert_eq!(until(5, own), Some(DELAY + DELAY / 8));
        assert_eq!(until(6, own), Some(DELAY + DELAY / 4));
    }

    #[test]
    fn an_event_of_the_legacy_stream_is_one_of_each_blocking_stream() {
        let mut streams = Streams::new();
        work(&mut streams, 6, 0, true);
        work(&mut streams, 5, 0, true);
        streams.record(70, key(LEGACY), true, 0);
        assert!(work(&mut streams, 6, 0, true).gate.is_some());
        assert_eq!(work(&mut streams, 5, 0, true).gate, None);
    }

    #[test]
    fn work_that_is_not_late_gets_no_gate_and_holds_nothing_up() {
        let mut streams = Streams::new();
        assert_eq!(work(&mut streams, 5, 0, false).gate, None);
        assert!(!holds(&streams, 5));
    }

    #[test]
    fn a_gate_is_over_when_it_is_opened_and_when_its_time_is_up() {
        let mut streams = Streams::new();
        let gate = work(&mut streams, 5, 0, true).gate.unwrap();
        assert!(streams.is_pending(gate, DELAY - 1));
        assert!(!streams.is_pending(gate, DELAY));
        streams.open_first(0);
        assert!(!streams.is_pending(gate, 0));
    }

    #[test]
    fn an_event_carries_the_gate_to_the_stream_that_waits_for_it() {
        let mut streams = Streams::new();
        work(&mut streams, 5, 0, true);
        work(&mut streams, 7, 0, false);
        assert!(!holds(&streams, 7));
        streams.record(70, key(5), false, 0);
        streams.wait(key(7), false, 70, 0);
        assert!(holds(&streams, 7));
        assert!(streams.is_pending(streams.of_event(70), 0));
        assert!(!streams.is_pending(streams.of_event(71), 0));
    }

    #[test]
    fn an_event_that_was_recorded_before_the_gate_carries_nothing() {
        let mut streams = Streams::new();
        streams.record(70, key(5), false, 0);
        work(&mut streams, 5, 0, true);
        streams.wait(key(7), false, 70, 0);
        assert!(!holds(&streams, 7));
    }

    #[test]
    fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
        let mut streams = Streams::new();
        work(&mut streams, 6, 0, true);
        work(&mut streams, 5, 0, false);
        assert!(holds(&streams, LEGACY));
        work(&mut streams, LEGACY, 0, false);
        work(&mut streams, 8, 0, false);
        assert!(holds(&streams, 8));
        assert!(!holds(&streams, 5));
    }

    #[test]
    fn the_legacy_stream_does_not_wait_for_a_non_blocking_one() {
        let mut streams = Streams::new();
        work(&mut streams, LEGACY, 0, false);
        work(&mut streams, 5, 0, true);
        assert!(!holds(&streams, LEGACY));
    }

    #[test]
    fn gates_open_one_by_one_in_their_order() {
        let mut streams = Streams::new();
        let mut gate = |handle, now| work(&mut streams, handle, now, true);
        let launches = [gate(5, 0), gate(6, 1), gate(5, DELAY / 2), gate(6, DELAY - 1)];
        streams.failed(launches[2]);
        // The first gate's time is over.
        assert_eq!([streams.open_first(DELAY), streams.open_first(DELAY)], [2, 4]);
        assert_eq!(streams.open_first(DELAY), 4);
        assert!(!holds(&streams, 6));
    }

    #[test]
    fn a_destroyed_streams_index_is_taken_again_when_its_gate_is_open() {
        let mut streams = Streams::new();
        let first = work(&mut streams, 5, 0, true);
        work(&mut streams, 6, 0, false);
        streams.destroy(5);
        let beside = work(&mut streams, 5, 0, false);
        let again = work(&mut streams, 7, DELAY, false);
        assert_eq!((first.index, beside.index, again.index), (0, 2, 0));
        assert!(!holds(&streams, 5) && !holds(&streams, 7));
        assert_eq!(streams.most(), 3);
        streams.forget(9);
        assert_eq!(streams.live().count(), 0);
    }

    #[test]
    fn a_destroyed_streams_late_work_is_waited_for_until_its_context_is_destroyed() {
        let mut streams = Streams::new();
        let gate = work(&mut streams, 6, 0, true).gate.unwrap();
        streams.destroy(6);
        assert_eq!(streams.of_all(), gate);
        assert_eq!(streams.of_stream(key(LEGACY)), gate);
        assert_eq!(streams.of_stream(key(6)), Behind::default());
        work(&mut streams, LEGACY, 0, false);
        assert!(holds(&streams, LEGACY));
        streams.forget(9);
        assert_eq!(streams.of_all(), Behind::default());
    }

    #[test]
    fn a_gate_that_could_not_be_queued_is_tried_again_and_holds_nothing_up() {
        let mut streams = Streams::new();
        let earlier = work(&mut streams, 5, 0, true).gate.unwrap();
        streams.record(70, key(5), false, 0);
        let launch = work(&mut streams, 5, DELAY / 2, true);
        streams.record(71, key(5), false, 0);
        streams.wait(key(7), false, 71, 0);
        streams.failed(launch);
        for behind in [streams.of_stream(key(5)), streams.of_stream(key(7)), streams.of_event(71)] {
            assert_eq!(behind, earlier);
        }
        assert_eq!(streams.of_event(70), earlier);
        assert!(work(&mut streams, 5, DELAY / 2, true).gate.is_some());
    }
}
