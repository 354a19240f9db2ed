//! A table of the memory that leases have handed out. If the bridge imports an array that starts at the same address
//! again, the entry can name the producer's stream, which a library that passes the memory on does not name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::producer_side::ProducerSide;
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::lease::WordHasher;
use crate::py::streams::{KnownStream, KnownStreams, StreamRef, Unnamed};

#[derive(Debug)]
struct MemoryEntry {
    /// The address of the lease's holder, which the bridge's managed tensors carry as `manager_ctx`.
    holder: usize,
    /// In bytes. The memory starts at the entry's key in the table.
    length: u64,
    producer: Option<StreamRef>,
    upstream: KnownStreams,
    rare: Option<Box<Rare>>,
    later: KnownStreams,
}

#[derive(Debug)]
struct Rare {
    unnamed: Option<Unnamed>,
    /// Only in the entry of a capsule: the stream on which the array was ready when the bridge made the capsule.
    ready_on: Option<KnownStream>,
}

type ByWord<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

#[derive(Debug)]
struct Same {
    first: Option<MemoryEntry>,
    more: Option<Box<MoreEntries>>,
}

#[derive(Debug, Default)]
struct MoreEntries {
    entries: ByWord<usize, MemoryEntry>,
    /// The producers' and upstream streams of `entries`, each with the number of its occurrences.
    sources: Vec<(KnownStream, usize)>,
}

impl MemoryEntry {
    fn sources(&self, py: Python<'_>) -> impl Iterator<Item = KnownStream> {
        let producer = self.producer.as_ref().map(|kept| KnownStream::Kept(kept.clone_ref(py)));
        producer.into_iter().chain(self.upstream.iter().map(move |kept| kept.clone_ref(py)))
    }
}

impl MoreEntries {
    fn add(&mut self, py: Python<'_>, entry: MemoryEntry) {
        for source in entry.sources(py) {
            match self.sources.iter_mut().find(|(known, _)| known.name() == source.name()) {
                Some((_, many)) => *many += 1,
                None => self.sources.push((source, 1)),
            }
        }
        self.entries.insert(entry.holder, entry);
    }

    fn remove(&mut self, holder: usize) -> Option<(MemoryEntry, Vec<KnownStream>)> {
        let entry = self.entries.remove(&holder)?;
        let producer = entry.producer.iter().map(|kept| (kept.name(), Some(kept.place())));
        for name in producer.chain(entry.upstream.iter().map(KnownStream::name)) {
            if let Some((_, many)) = self.sources.iter_mut().find(|(known, _)| known.name() == name)
            {
                *many -= 1;
            }
        }
        let gone = self.sources.extract_if(.., |(_, many)| *many == 0).map(|(source, _)| source);
        let gone = gone.collect();
        Some((entry, gone))
    }
}

impl Same {
    #[cold]
    fn push(&mut self, py: Python<'_>, entry: MemoryEntry) {
        self.more.get_or_insert_default().add(py, entry);
    }

    fn get(&self, holder: usize) -> Option<&MemoryEntry> {
        let first = self.first.as_ref().filter(|entry| entry.holder == holder);
        first.or_else(|| self.more.as_ref()?.entries.get(&holder))
    }

    fn get_mut(&mut self, holder: usize) -> Option<&mut MemoryEntry> {
        let first = self.first.as_mut().filter(|entry| entry.holder == holder);
        first.or_else(|| self.more.as_mut()?.entries.get_mut(&holder))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut MemoryEntry> {
        let more = self.more.iter_mut().flat_map(|more| more.entries.values_mut());
        self.first.iter_mut().chain(more)
    }

    /// Release the table's lock before dropping the result: the drop can run arbitrary code.
    #[cold]
    fn remove(
        &mut self,
        holder: usize,
    ) -> (Option<MemoryEntry>, Option<(MemoryEntry, Vec<KnownStream>)>) {
        if self.first.as_ref().is_some_and(|entry| entry.holder == holder) {
            return (self.first.take(), None);
        }
        let gone = self.more.as_mut().and_then(|more| more.remove(holder));
        if self.more.as_ref().is_some_and(|more| more.entries.is_empty()) {
            self.more = None;
        }
        (None, gone)
    }

    fn sources(&self, py: Python<'_>) -> Vec<KnownStream> {
        let more = self.more.iter().flat_map(|more| &more.sources);
        let more = more.map(|(known, _)| known.clone_ref(py));
        self.first.iter().flat_map(|entry| entry.sources(py)).chain(more).collect()
    }
}

type EntriesByAddress = ByWord<u64, Same>;

struct HandedOut {
    entries: Mutex<EntriesByAddress>,
    noted: AtomicUsize,
}

static HANDED_OUT: HandedOut = HandedOut {
    entries: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
    noted: AtomicUsize::new(0),
};

const ROOM: usize = 256;

fn entries() -> MutexGuard<'static, EntriesByAddress> {
    HANDED_OUT.entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dropping this value removes the lease's entry from the table.
#[derive(Debug)]
pub(super) struct KnownMemory {
    start: u64,
    holder: usize,
    since: usize,
}

impl KnownMemory {
    pub(super) fn new(
        py: Python<'_>,
        array: &Descriptor,
        producer_side: &ProducerSide,
        ready_on: Option<KnownStream>,
        holder: usize,
    ) -> Self {
        let (start, length) = array.span();
        let unnamed = &producer_side.unnamed;
        let rare = (unnamed.is_some() || ready_on.is_some()).then(|| {
            let unnamed = unnamed.as_ref().map(|unnamed| unnamed.clone_ref(py));
            Box::new(Rare { unnamed, ready_on })
        });
        let entry = MemoryEntry {
            holder,
            length,
            producer: producer_side.stream.as_ref().map(|kept| kept.clone_ref(py)),
            upstream: producer_side.upstream.clone_ref(py),
            rare,
            later: KnownStreams::NONE,
        };
        let mut entries = entries();
        match entries.entry(start) {
            Entry::Vacant(place) => drop(place.insert(Same { first: Some(entry), more: None })),
            Entry::Occupied(mut there) => there.get_mut().push(py, entry),
        }
        Self { start, holder, since: HANDED_OUT.noted.load(Ordering::Acquire) }
    }

    /// Whether [`goes_on`] was called for an array with elements since the entry was made, even for other memory.
    #[inline]
    pub(super) fn may_have_later(&self) -> bool {
        HANDED_OUT.noted.load(Ordering::Acquire) != self.since
    }

    pub(super) fn take_later(&self) -> Vec<KnownStream> {
        let mut entries = entries();
        let own = entries.get_mut(&self.start).and_then(|same| same.get_mut(self.holder));
        own.map(|entry| entry.later.take()).unwrap_or_default()
    }
}

impl Drop for KnownMemory {
    fn drop(&mut self) {
        let mut entries = entries();
        let Entry::Occupied(mut there) = entries.entry(self.start) else { return };
        // Dropping an entry can run arbitrary code, so release the table's lock first.
        if there.get().more.is_none() {
            let ended = there.remove();
            if entries.len() < entries.capacity() / 8 && entries.capacity() > ROOM {
                give_back_room(&mut entries);
            }
            drop(entries);
            return drop(ended);
        }
        let ended = there.get_mut().remove(self.holder);
        if there.get().first.is_none() && there.get().more.is_none() {
            there.remove();
        }
        drop(entries);
        drop(ended);
    }
}

#[cold]
fn give_back_room(entries: &mut EntriesByAddress) {
    let room = ROOM.max(entries.len() * 2);
    entries.shrink_to(room);
}

#[expect(clippy::large_enum_variant, reason = "it is moved into its place at once")]
pub(super) enum From {
    /// For a tensor that a lease handed out: the producer's side of that lease, and [`Rare::ready_on`].
    Ours(ProducerSide, Option<KnownStream>),
    /// For any other tensor: the producers' and upstream streams of the leases whose memory starts at the same address.
    Same(Vec<KnownStream>),
}

/// `context` is the `manager_ctx` of the array's managed tensor. `None` if the array is empty.
pub(super) fn from(
    py: Python<'_>,
    array: &Descriptor,
    place: Place,
    context: usize,
) -> Option<From> {
    if array.ptr() == 0 {
        return None;
    }
    let entries = entries();
    let Some(same) = entries.get(&array.span().0) else { return Some(From::Same(Vec::new())) };
    if let Some(ours) = same.get(context) {
        let rare = ours.rare.as_deref();
        let unnamed = rare.and_then(|rare| rare.unnamed.as_ref());
        // A managed tensor names no context. The lease's producer can work in another context of the same GPU.
        let own_place = ours.producer.as_ref().map(StreamRef::place);
        let own_place = own_place.filter(|own| own.ordinal == place.ordinal);
        let producer_side = ProducerSide {
            stream: ours.producer.as_ref().map(|kept| kept.clone_ref(py)),
            unnamed: unnamed.map(|unnamed| unnamed.clone_ref(py)),
            upstream: ours.upstream.clone_ref(py),
            ..ProducerSide::at(own_place.unwrap_or(place))
        };
        let ready_on = rare.and_then(|rare| rare.ready_on.as_ref());
        let ready_on = ready_on.map(|kept| kept.clone_ref(py));
        return Some(From::Ours(producer_side, ready_on));
    }
    Some(From::Same(same.sources(py)))
}

/// Records `kept` as the stream of a further user, for each lease of overlapping memory. Ignores an empty array.
pub(crate) fn goes_on(py: Python<'_>, array: &Descriptor, kept: &KnownStream) {
    if array.ptr() == 0 {
        return;
    }
    let mut entries = entries();
    let each = entries.iter_mut().flat_map(|(at, same)| same.iter_mut().map(|entry| (*at, entry)));
    let is_of = |(at, entry): &(u64, &mut MemoryEntry)| array.overlaps(*at, entry.length);
    let again: Vec<_> =
        each.filter(is_of).map(|(_, entry)| entry.later.add(kept.clone_ref(py))).collect();
    HANDED_OUT.noted.fetch_add(1, Ordering::Release);
    drop(entries);
    drop(again);
}
