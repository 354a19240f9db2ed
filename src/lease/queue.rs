//! A queue of pending ends. The bridge checks in turn whether each is over.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use super::sync::{AtomicUsize, Mutex, Ordering, PoisonError};

/// New items, and checked items that are not over, go to the end.
#[derive(Debug)]
pub struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    length: AtomicUsize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), length: AtomicUsize::new(0) }
    }
}

impl<T> Queue<T> {
    /// Items that a running [`Queue::ask`] has taken out do not count.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn push(&self, item: T) {
        self.change(|items| items.push_back(item));
    }

    /// Checks at most the first `most` items with `is_over`, and returns the items that are over. The checked items
    /// that are not over go to the end of the queue. Holds no lock while `is_over` runs.
    ///
    /// If `is_over` panics, the item that it was called with is leaked.
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

/// The items that a running [`Queue::ask`] has taken out. On drop, also after a panic, they go to the end of the queue.
struct Batch<'a, T> {
    queue: &'a Queue<T>,
    items: VecDeque<T>,
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.queue.change(|items| items.append(&mut self.items));
    }
}
