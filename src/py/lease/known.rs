//! Memory that the bridge has handed to others, known again by its address.
//!
//! A library that hands out a tensor of ours, or one of its own around it, names no stream of the producer's. The lease whose
//! memory it is knows it. And an array that a library keeps over such memory may be handed to one more stream, which
//! the lease's end has to wait for as well. An entry lives as long as its lease: after that the memory cannot come back.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::home::Home;
use crate::descriptor::Descriptor;
use crate::lease::WordHasher;
use crate::py::streams::{KnownStream, KnownStreams, StreamRef};

/// What a lease says of its memory to those who come with it.
#[derive(Debug)]
struct Entry {
    /// How many bytes there are from its address on.
    length: u64,
    /// The address of our managed tensor, which begins where its memory does; 0 if it is in none.
    tensor: AtomicUsize,
    /// The producer's stream, and those upstream, as the lease has them.
    producer: Option<StreamRef>,
    upstream: KnownStreams,
    /// Streams on which work on the memory goes on, beside the lease's own consumer's.
    later: Mutex<KnownStreams>,
    has_later: AtomicBool,
}

/// By their addresses.
type Entries = HashMap<u64, SmallVec<[Arc<Entry>; 1]>, BuildHasherDefault<WordHasher>>;

static ENTRIES: Mutex<Entries> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));

fn entries() -> MutexGuard<'static, Entries> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry, until dropped.
#[derive(Debug)]
pub(super) struct Known {
    start: u64,
    entry: Arc<Entry>,
}

impl Known {
    /// The memory of `array`, which goes back to `home`.
    pub(super) fn new(py: Python<'_>, array: &Descriptor, home: &Home) -> Self {
        let (start, length) = array.span();
        let entry = Arc::new(Entry {
            length,
            tensor: AtomicUsize::new(0),
            producer: home.producer.as_ref().map(|kept| kept.clone_ref(py)),
            upstream: home.upstream.clone_ref(py),
            later: Mutex::default(),
            has_later: AtomicBool::new(false),
        });
        entries().entry(start).or_default().push(Arc::clone(&entry));
        Self { start, entry }
    }

    /// For a tensor that is made of it.
    pub(super) fn tensor(&self) -> HandedOut {
        HandedOut(Arc::clone(&self.entry))
    }

    /// Whether work on the memory goes on elsewhere.
    #[inline]
    pub(super) fn has_later(&self) -> bool {
        self.entry.has_later.load(Ordering::Acquire)
    }

    /// Where others go on with it.
    pub(super) fn take_later(&self) -> Vec<KnownStream> {
        self.entry.has_later.store(false, Ordering::Release);
        self.entry.later.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Slot::Occupied(mut there) = entries().entry(self.start) {
            // This one has another reference.
            if there.get().len() == 1 {
                there.remove();
            } else {
                there.get_mut().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            }
        }
    }
}

/// Memory that is handed out in a managed tensor of ours.
#[derive(Debug)]
pub(crate) struct HandedOut(Arc<Entry>);

impl HandedOut {
    /// In the tensor at this address.
    pub(crate) fn is_in(&self, tensor: usize) {
        self.0.tensor.store(tensor, Ordering::Release);
    }
}

/// Where memory is from that came in a tensor without a word of the producer's stream.
pub(super) enum From {
    /// Our own tensor, and so all that is known of it.
    Ours(Option<StreamRef>, KnownStreams),
    /// Another's over the same memory. It may be around one of ours, or beside it.
    Same(Vec<KnownStream>),
}

/// Where the memory of `array` is from, which came in the tensor at this address, if it is some of a lease's.
pub(super) fn from(py: Python<'_>, array: &Descriptor, tensor: usize) -> Option<From> {
    if array.ptr() == 0 {
        return None;
    }
    let start = array.span().0;
    let same = entries().get(&start).cloned().unwrap_or_default();
    let is_ours = |entry: &&Arc<Entry>| entry.tensor.load(Ordering::Acquire) == tensor;
    if let Some(ours) = same.iter().find(is_ours).filter(|_| tensor != 0) {
        let producer = ours.producer.as_ref().map(|kept| kept.clone_ref(py));
        return Some(From::Ours(producer, ours.upstream.clone_ref(py)));
    }
    let mut all = Vec::new();
    for entry in same {
        let producer = entry.producer.as_ref().map(|kept| KnownStream::Kept(kept.clone_ref(py)));
        let upstream = entry.upstream.iter().map(|kept| kept.clone_ref(py));
        for kept in producer.into_iter().chain(upstream) {
            kept.add_to(&mut all);
        }
    }
    Some(From::Same(all))
}

/// Work on the memory of `array` goes on on that stream: the ends of the leases whose memory it is wait for it.
pub(crate) fn goes_on(py: Python<'_>, array: &Descriptor, kept: &KnownStream) {
    if array.ptr() == 0 {
        return;
    }
    let (start, length) = array.span();
    let is_of = |(at, entry): &(u64, &Arc<Entry>)| {
        *at < start.saturating_add(length) && at.saturating_add(entry.length) > start
    };
    let all: Vec<_> = {
        let entries = entries();
        let each = entries.iter();
        let all = each.flat_map(|(at, same)| same.iter().map(|entry| (*at, entry)));
        all.filter(is_of).map(|(_, entry)| Arc::clone(entry)).collect()
    };
    for entry in all {
        let again = {
            let mut later = entry.later.lock().unwrap_or_else(PoisonError::into_inner);
            later.add(kept.clone_ref(py))
        };
        entry.has_later.store(true, Ordering::Release);
        drop(again);
    }
}
