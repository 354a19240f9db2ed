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

/// By their addresses.
type Entries = HashMap<u64, SmallVec<[Entry; 1]>, BuildHasherDefault<WordHasher>>;

static ENTRIES: Mutex<Entries> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));
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
        entries.entry(start).or_default().push(entry);
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
        let mut same = entries.get_mut(&self.start).into_iter().flatten();
        let own = same.find(|entry| entry.holder == self.holder);
        own.map(|entry| entry.later.take()).unwrap_or_default()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut entries = entries();
        let Slot::Occupied(mut there) = entries.entry(self.start) else { return };
        let ended = if there.get().len() == 1 {
            there.remove()
        } else {
            let same = there.get_mut();
            let place = same.iter().position(|entry| entry.holder == self.holder);
            place.map(|place| same.swap_remove(place)).into_iter().collect()
        };
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
    let same = entries.get(&array.span().0).map_or(&[][..], SmallVec::as_slice);
    if let Some(ours) = same.iter().find(|entry| entry.holder == context) {
        let producer = ours.producer.as_ref().map(|kept| kept.clone_ref(py));
        return Some(From::Ours(producer, ours.upstream.clone_ref(py)));
    }
    let each = same.iter().flat_map(|entry| {
        let producer = entry.producer.as_ref().map(|kept| KnownStream::Kept(kept.clone_ref(py)));
        producer.into_iter().chain(entry.upstream.iter().map(|kept| kept.clone_ref(py)))
    });
    Some(From::Same(each.collect()))
}

/// Work on the memory of `array` goes on on that stream: the ends of the leases whose memory it is wait for it.
pub(crate) fn goes_on(py: Python<'_>, array: &Descriptor, kept: &KnownStream) {
    if array.ptr() == 0 {
        return;
    }
    let (start, length) = array.span();
    let mut entries = entries();
    let each = entries.iter_mut().flat_map(|(at, same)| same.iter_mut().map(|entry| (*at, entry)));
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
