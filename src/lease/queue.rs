//! The ends that are not over: asked again in turn.

use std::collections::VecDeque;

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
    /// How many there are that nobody is asking just now.
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
    pub fn ask(&self, most: usize, mut is_over: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut asked = Vec::new();
        self.change(|items| asked.extend(items.drain(..most.min(items.len()))));
        let over: Vec<T> = asked.extract_if(.., |item| is_over(item)).collect();
        self.change(|items| items.extend(asked));
        over
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<T>)) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut items);
        self.length.store(items.len(), Ordering::Release);
    }
}
