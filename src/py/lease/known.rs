//! Memory that the bridge has handed to others, known again by its address.
//!
//! A library that hands out a tensor of ours, or one of its own around it, names no stream of the producer's. The lease whose
//! memory it is knows it. And an array that a library keeps over such memory may be handed to one more stream, which
//! the lease's end has to wait for as well. An entry lives as long as its lease: after that the memory cannot come back.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::home::Home;
use crate::descriptor::Descriptor;
use crate::lease::WordHasher;
use crate::py::streams::{KnownStream, KnownStreams, StreamRef};

/// What a lease says of its memory to those who come with it.
#[derive(Debug)]
struct Entry {
    /// The address of its holder, which a managed tensor of ours has as its `manager_ctx`.
    holder: usize,
    /// How many bytes there are from its address on.
    length: u64,
    /// The producer's stream, and those upstream, as the lease has them.
    producer: Option<StreamRef>,
    upstream: KnownStreams,
    /// Streams on which work on the memory goes on, beside the lease's own consumer's.
    later: KnownStreams,
}

/// How many leases of one address are looked through one by one.
const FEW: usize = 8;

type ByWord<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// The entries of one address. Most have one, but an array may be handed out again and again.
#[derive(Debug, Default)]
struct Same {
    entries: SmallVec<[Entry; 1]>,
    /// Once there are more than a few.
    index: Option<Box<Index>>,
}

/// What is asked of many entries.
#[derive(Debug, Default)]
struct Index {
    /// Where each is, by its holder.
    places: ByWord<usize, usize>,
    /// The producers' streams and those upstream, and how many entries have each.
    sources: Vec<(KnownStream, usize)>,
}

impl Entry {
    /// The producer's stream, and those upstream.
    fn sources(&self, py: Python<'_>) -> impl Iterator<Item = KnownStream> {
        let producer = self.producer.as_ref().map(|kept| KnownStream::Kept(kept.clone_ref(py)));
        producer.into_iter().chain(self.upstream.iter().map(move |kept| kept.clone_ref(py)))
    }
}

impl Index {
    fn add(&mut self, py: Python<'_>, entry: &Entry, place: usize) {
        self.places.insert(entry.holder, place);
        for source in entry.sources(py) {
            match self.sources.iter_mut().find(|(known, _)| known.name() == source.name()) {
                Some((_, many)) => *many += 1,
                None => self.sources.push((source, 1)),
            }
        }
    }

    /// Takes an entry out, in whose place is `moved` now. The sources that it alone had come back.
    fn remove(&mut self, entry: &Entry, place: usize, moved: Option<&Entry>) -> Vec<KnownStream> {
        self.places.remove(&entry.holder);
        if let Some(moved) = moved {
            self.places.insert(moved.holder, place);
        }
        let producer = entry.producer.iter().map(|kept| (kept.name(), Some(kept.place())));
        for name in producer.chain(entry.upstream.iter().map(KnownStream::name)) {
            if let Some((_, many)) = self.sources.iter_mut().find(|(known, _)| known.name() == name)
            {
                *many -= 1;
            }
        }
        self.sources.extract_if(.., |(_, many)| *many == 0).map(|(source, _)| source).collect()
    }
}

impl Same {
    #[inline]
    fn push(&mut self, py: Python<'_>, entry: Entry) {
        self.entries.push(entry);
        if self.entries.len() > FEW {
            self.index(py);
        }
    }

    /// Notes the last entry; the first time all of them.
    #[cold]
    fn index(&mut self, py: Python<'_>) {
        let known = if self.index.is_some() { self.entries.len() - 1 } else { 0 };
        let index = self.index.get_or_insert_default();
        for (place, entry) in self.entries.iter().enumerate().skip(known) {
            index.add(py, entry, place);
        }
    }

    #[inline]
    fn place(&self, holder: usize) -> Option<usize> {
        match &self.index {
            Some(index) => index.places.get(&holder).copied(),
            None => self.entries.iter().position(|entry| entry.holder == holder),
        }
    }

    /// Takes an entry out. What comes back may run anything as it is dropped.
    fn remove(&mut self, holder: usize) -> Option<(Entry, Vec<KnownStream>)> {
        let place = self.place(holder)?;
        let entry = self.entries.swap_remove(place);
        let moved = self.entries.get(place);
        let index = self.index.as_mut();
        let gone = index.map(|index| index.remove(&entry, place, moved)).unwrap_or_default();
        Some((entry, gone))
    }

    fn sources(&self, py: Python<'_>) -> Vec<KnownStream> {
        match &self.index {
            Some(index) => index.sources.iter().map(|(known, _)| known.clone_ref(py)).collect(),
            None => self.entries.iter().flat_map(|entry| entry.sources(py)).collect(),
        }
    }
}

/// By their addresses.
type Entries = ByWord<u64, Same>;

static ENTRIES: Mutex<Entries> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));
/// How much room is kept for addresses, whatever there was before.
const ROOM: usize = 256;

/// How often work was noted that goes on: most entries end before it does.
static NOTED: AtomicUsize = AtomicUsize::new(0);

fn entries() -> MutexGuard<'static, Entries> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry, until dropped.
#[derive(Debug)]
pub(super) struct Known {
    start: u64,
    holder: usize,
    /// What [`NOTED`] was when it was made.
    since: usize,
}

impl Known {
    /// The memory of `array`, which goes back to `home`, and whose holder is at that address.
    pub(super) fn new(py: Python<'_>, array: &Descriptor, home: &Home, holder: usize) -> Self {
        let (start, length) = array.span();
        let entry = Entry {
            holder,
            length,
            producer: home.producer.as_ref().map(|kept| kept.clone_ref(py)),
            upstream: home.upstream.clone_ref(py),
            later: KnownStreams::NONE,
        };
        let mut entries = entries();
        entries.entry(start).or_default().push(py, entry);
        Self { start, holder, since: NOTED.load(Ordering::Acquire) }
    }

    /// Whether work on the memory may go on elsewhere.
    #[inline]
    pub(super) fn may_have_later(&self) -> bool {
        NOTED.load(Ordering::Acquire) != self.since
    }

    /// Where others go on with it.
    pub(super) fn take_later(&self) -> Vec<KnownStream> {
        let mut entries = entries();
        let Some(same) = entries.get_mut(&self.start) else { return Vec::new() };
        let Some(place) = same.place(self.holder) else { return Vec::new() };
        same.entries[place].later.take()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut entries = entries();
        let Slot::Occupied(mut there) = entries.entry(self.start) else { return };
        let ended = there.get_mut().remove(self.holder);
        if there.get().entries.is_empty() {
            there.remove();
            if entries.capacity() > ROOM && entries.len() < entries.capacity() / 8 {
                let room = ROOM.max(entries.len() * 2);
                entries.shrink_to(room);
            }
        }
        // To drop it may run anything.
        drop(entries);
        drop(ended);
    }
}

/// Where memory is from that came in a tensor without a word of the producer's stream.
pub(super) enum From {
    /// Our own tensor, and so all that is known of it.
    Ours(Option<StreamRef>, KnownStreams),
    /// Another's over the same memory. It may be around one of ours, or beside it.
    Same(Vec<KnownStream>),
}

/// Where the memory of `array` is from, which came in a tensor of that `manager_ctx`, if it is some of a lease's.
pub(super) fn from(py: Python<'_>, array: &Descriptor, context: usize) -> Option<From> {
    if array.ptr() == 0 {
        return None;
    }
    let entries = entries();
    let Some(same) = entries.get(&array.span().0) else { return Some(From::Same(Vec::new())) };
    if let Some(ours) = same.place(context).map(|place| &same.entries[place]) {
        let producer = ours.producer.as_ref().map(|kept| kept.clone_ref(py));
        return Some(From::Ours(producer, ours.upstream.clone_ref(py)));
    }
    Some(From::Same(same.sources(py)))
}

/// Work on the memory of `array` goes on on that stream: the ends of the leases whose memory it is wait for it.
pub(crate) fn goes_on(py: Python<'_>, array: &Descriptor, kept: &KnownStream) {
    if array.ptr() == 0 {
        return;
    }
    let (start, length) = array.span();
    let mut entries = entries();
    let each =
        entries.iter_mut().flat_map(|(at, same)| same.entries.iter_mut().map(|entry| (*at, entry)));
    let is_of = |(at, entry): &(u64, &mut Entry)| {
        *at < start.saturating_add(length) && at.saturating_add(entry.length) > start
    };
    let again: Vec<_> =
        each.filter(is_of).map(|(_, entry)| entry.later.add(kept.clone_ref(py))).collect();
    NOTED.fetch_add(1, Ordering::Release);
    // To drop them may run anything.
    drop(entries);
    drop(again);
}
