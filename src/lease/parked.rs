//! Pending ends, grouped by the stream that they wait for. Work on one stream finishes in the order in which it was
//! queued, so an end is checked only once the ends before it on that stream are over.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem::ManuallyDrop;

use super::Queue;
use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// The stream that an item waits for, and the item's number on that stream. Smaller numbers are checked first.
pub type Turn<K> = (K, u64);

#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Check at most this many streams. Each item without a stream counts as one stream.
    pub lanes: usize,
    pub questions: usize,
}

impl Most {
    pub const ALL: Self = Self { lanes: usize::MAX, questions: usize::MAX };
}

#[derive(Debug)]
enum ParkedEntry<K, T> {
    Alone(T),
    Lane(K),
    Moved,
}

type Lanes<K, T> = HashMap<K, BTreeMap<u64, T>, BuildHasherDefault<WordHasher>>;

/// Hashes handles and addresses quickly. No attacker chooses them.
#[derive(Debug, Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

pub struct Parked<K, T> {
    turn: fn(&T) -> Option<Turn<K>>,
    queue: Queue<ParkedEntry<K, T>>,
    /// Each stream has at most one entry in `queue`, and none while [`Parked::ask`] checks the stream.
    lanes: Mutex<Lanes<K, T>>,
    length: AtomicUsize,
}

impl<K: Clone + Eq + Hash, T> Parked<K, T> {
    /// `turn` returns `None` for an item that is checked alone.
    pub fn new(turn: fn(&T) -> Option<Turn<K>>) -> Self {
        let (lanes, length) = (Mutex::default(), AtomicUsize::new(0));
        Self { turn, queue: Queue::default(), lanes, length }
    }

    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn push(&self, item: T) {
        self.length.fetch_add(1, Ordering::AcqRel);
        self.put(item);
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<K, T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, item: T) {
        let Some((key, number)) = (self.turn)(&item) else {
            return self.queue.push(ParkedEntry::Alone(item));
        };
        let mut lanes = self.lanes();
        let entry = match lanes.get_mut(&key).map(|lane| lane.entry(number)) {
            Some(Entry::Vacant(slot)) => {
                slot.insert(item);
                return;
            }
            // Numbers are unique, so this cannot happen. If it does, check the item alone.
            Some(Entry::Occupied(_)) => ParkedEntry::Alone(item),
            None => {
                lanes.insert(key.clone(), BTreeMap::from([(number, item)]));
                ParkedEntry::Lane(key)
            }
        };
        drop(lanes);
        self.queue.push(entry);
    }

    /// Runs `is_over` on an item. Unless it returns false, the item no longer counts in [`Self::len`].
    fn is_over(&self, item: &mut T, is_over: &mut impl FnMut(&mut T) -> bool) -> bool {
        let counted = CountGuard(&self.length);
        let is_over = is_over(item);
        if !is_over {
            std::mem::forget(counted);
        }
        is_over
    }

    /// Checks items with `is_over`, and returns the items that are over. Holds no lock while `is_over` runs.
    ///
    /// If `is_over` panics, the item that it was called with is leaked.
    pub fn ask(&self, most: Most, mut is_over: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let (mut over, mut left) = (Vec::new(), most.questions);
        let entries = self.queue.ask(most.lanes.min(most.questions), |entry| {
            if left == 0 {
                return false;
            }
            match entry {
                ParkedEntry::Alone(item) => {
                    left -= 1;
                    if self.is_over(item, &mut is_over) {
                        return true;
                    }
                    if (self.turn)(item).is_none() {
                        return false;
                    }
                    if let ParkedEntry::Alone(item) = std::mem::replace(entry, ParkedEntry::Moved) {
                        self.put(item);
                    }
                }
                ParkedEntry::Lane(key) => self.ask_lane(key, &mut left, &mut over, &mut is_over),
                ParkedEntry::Moved => {}
            }
            true
        });
        over.extend(entries.into_iter().filter_map(|entry| match entry {
            ParkedEntry::Alone(item) => Some(item),
            ParkedEntry::Lane(_) | ParkedEntry::Moved => None,
        }));
        over
    }

    /// Checks at most `left` items of the stream `key`. Stops after the first item that is not over.
    fn ask_lane(
        &self,
        key: &K,
        left: &mut usize,
        over: &mut Vec<T>,
        is_over: &mut impl FnMut(&mut T) -> bool,
    ) {
        let _back = LaneGuard { parked: self, key };
        while *left > 0 {
            let first = self.lanes().get_mut(key).and_then(BTreeMap::pop_first);
            let Some((_, item)) = first else { return };
            let mut item = ManuallyDrop::new(item);
            *left -= 1;
            let is_over = self.is_over(&mut item, is_over);
            let item = ManuallyDrop::into_inner(item);
            if !is_over {
                return self.put(item);
            }
            over.push(item);
        }
    }
}

struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// On drop, also after a panic, puts `key` back into the queue if the stream still has items.
struct LaneGuard<'a, K: Clone + Eq + Hash, T> {
    parked: &'a Parked<K, T>,
    key: &'a K,
}

impl<K: Clone + Eq + Hash, T> Drop for LaneGuard<'_, K, T> {
    fn drop(&mut self) {
        let mut lanes = self.parked.lanes();
        if lanes.get(self.key).is_some_and(|lane| !lane.is_empty()) {
            drop(lanes);
            self.parked.queue.push(ParkedEntry::Lane(self.key.clone()));
        } else {
            lanes.remove(self.key);
        }
    }
}

impl<K, T> fmt::Debug for Parked<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parked({})", self.length.load(Ordering::Relaxed))
    }
}
