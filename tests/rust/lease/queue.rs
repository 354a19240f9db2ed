//! The queue of ends that are not over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use cai_bridge::lease::Queue;

fn filled(items: impl IntoIterator<Item = u32>) -> Queue<u32> {
    let queue = Queue::default();
    items.into_iter().for_each(|item| queue.push(item));
    queue
}

/// What is asked when `most` are, and what comes back; those in `over` are over.
fn asked(queue: &Queue<u32>, most: usize, over: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut seen = Vec::new();
    let back = queue.ask(most, |item| {
        seen.push(*item);
        over.contains(item)
    });
    (seen, back)
}

#[test]
fn what_is_pushed_meanwhile_waits_for_the_next_call_and_goes_before_those_that_were_asked() {
    let queue = filled(1..=3);
    let mut seen = Vec::new();
    let over = queue.ask(usize::MAX, |item| {
        seen.push(*item);
        queue.push(*item + 10);
        *item == 2
    });
    assert_eq!((seen, over), (vec![1, 2, 3], vec![2]));
    assert_eq!(asked(&queue, usize::MAX, &[]).0, [11, 12, 13, 1, 3]);
}

#[test]
fn the_length_counts_those_that_nobody_asks_just_now() {
    let queue = filled(1..=3);
    assert_eq!((queue.len(), queue.is_empty()), (3, false));
    let mut lengths = Vec::new();
    queue.ask(2, |item| {
        lengths.push(queue.len());
        if *item == 1 {
            queue.push(4);
        }
        true
    });
    assert_eq!((lengths, queue.len()), (vec![1, 2], 2));
    queue.ask(9, |_| {
        assert!(queue.is_empty());
        true
    });
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
}

#[test]
fn whoever_is_asked_may_ask_the_others() {
    let queue = filled(1..=4);
    let mut inner = Vec::new();
    let over = queue.ask(2, |item| {
        inner.push(asked(&queue, 9, &[3]));
        *item == 1
    });
    assert_eq!(over, [1]);
    assert_eq!(inner, [(vec![3, 4], vec![3]), (vec![4], vec![])]);
    assert_eq!(asked(&queue, 9, &[]).0, [4, 2]);
}

#[test]
fn where_asking_panics_the_others_stay_and_those_that_are_over_go() {
    let dropped = Mutex::new(Vec::new());
    let queue = Queue::default();
    (1..=5).for_each(|item| queue.push(DropNote(item, &dropped)));
    let asked = catch_unwind(AssertUnwindSafe(|| {
        queue.ask(4, |item| {
            assert!(item.0 != 3, "on purpose");
            item.0 == 2
        })
    }));
    assert!(asked.is_err());
    // Nobody lets go of the one that it was asked of.
    assert_eq!((dropped.lock().unwrap().as_slice(), queue.len()), (&[2][..], 3));
    let mut left = Vec::new();
    queue.ask(9, |item| {
        left.push(item.0);
        false
    });
    left.sort_unstable();
    assert_eq!(left, [1, 4, 5]);
}

/// Tells that it is dropped.
struct DropNote<'a>(u32, &'a Mutex<Vec<u32>>);

impl Drop for DropNote<'_> {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}
