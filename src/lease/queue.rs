//! The ends that are not over: the bridge checks them again, one after the other.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use super::sync::{AtomicUsize, Mutex, Ordering, PoisonError};

/// A queue in the order in which its items were asked last.
#[derive(Debug)]
pub struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    /// How many there are: what every call of the bridge asks, without the lock.
    length: AtomicUsize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), length: AtomicUsize::new(0) }
    }
}

impl<T> Queue<T> {
    /// How many there are that no thread is asking just now.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one.
    pub fn push(&self, item: T) {
        self.change(|items| items.push_back(item));
    }

    /// Asks the first `most`, with nothing locked, since to ask may run anything, this too. Those that
    /// are not over go to the end; those that are come back.
    ///
    /// Where `is_over` panics, all others stay. The one that it was asked of is leaked: it would panic again,
    /// and is not over.
    pub fn ask(&self, most: usize, mut is_over: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut asked = Batch { queue: self, items: VecDeque::new() };
        self.change(|items| asked.items.extend(items.drain(..most.min(items.len()))));
        let mut over = Vec::new();
        for _ in 0..asked.items.len() {
            let Some(item) = asked.items.pop_front() else { break };
            let mut item = ManuallyDrop::new(item);
            let is_over = is_over(&mut item);
            let item = ManuallyDrop::into_inner(item);
            if is_over {
                over.push(item);
            } else {
                asked.items.push_back(item);
            }
        }
        over
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<T>)) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut items);
        self.length.store(items.len(), Ordering::Release);
    }
}

/// Those that are being asked, which go back at its end.
struct Batch<'a, T> {
    queue: &'a Queue<T>,
    items: VecDeque<T>,
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.queue.change(|items| items.append(&mut self.items));
    }
}
