//! Models of [`Queue`] alone: several threads push items and check them at the same time.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::lease::Queue;

struct ModelItem {
    id: usize,
    busy: Arc<AtomicUsize>,
    times: usize,
}

impl ModelItem {
    fn new(id: usize) -> Self {
        Self { id, busy: Arc::new(AtomicUsize::new(0)), times: 0 }
    }

    fn ask(&mut self, last: usize) -> bool {
        assert_eq!(self.busy.swap(1, Ordering::SeqCst), 0, "asked by two at once");
        self.times += 1;
        self.busy.store(0, Ordering::SeqCst);
        self.times >= last
    }
}

fn ids(items: &[ModelItem]) -> Vec<usize> {
    let mut ids: Vec<usize> = items.iter().map(|item| item.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn what_is_pushed_while_others_are_asked_is_not_lost() {
    loom::model(|| {
        let queue = Arc::new(Queue::default());
        queue.push(ModelItem::new(0));
        let pushing = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.push(ModelItem::new(1));
                assert!(queue.len() <= 2);
            })
        };
        let asking = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || assert!(queue.ask(2, |item| item.ask(2)).is_empty()))
        };
        pushing.join().unwrap();
        asking.join().unwrap();
        assert_eq!((queue.len(), queue.is_empty()), (2, false));
        assert_eq!(ids(&queue.ask(usize::MAX, |_| true)), [0, 1]);
        assert!(queue.is_empty());
    });
}

#[test]
fn what_is_asked_by_two_threads_is_asked_by_one_at_a_time_and_over_once() {
    loom::model(|| {
        let queue = Arc::new(Queue::default());
        (0..2).for_each(|id| queue.push(ModelItem::new(id)));
        let asking = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.ask(2, |item| item.ask(2)))
        };
        let mut over = queue.ask(1, |item| item.ask(2));
        over.extend(asking.join().unwrap());
        while over.len() < 2 {
            assert_eq!(queue.len(), 2 - over.len());
            over.extend(queue.ask(2, |item| item.ask(2)));
        }
        assert_eq!(ids(&over), [0, 1]);
        assert!(queue.is_empty());
    });
}

#[test]
fn whoever_pushes_and_finds_the_queue_empty_knows_that_somebody_asks() {
    loom::model(|| {
        let (queue, asking) = (Arc::new(Queue::default()), Arc::new(AtomicUsize::new(0)));
        let other = {
            let (queue, asking) = (Arc::clone(&queue), Arc::clone(&asking));
            thread::spawn(move || {
                asking.store(1, Ordering::SeqCst);
                queue.ask(1, |item: &mut ModelItem| item.ask(9)).len()
            })
        };
        queue.push(ModelItem::new(0));
        if queue.is_empty() {
            assert_eq!(asking.load(Ordering::SeqCst), 1);
        }
        assert_eq!((other.join().unwrap(), queue.len()), (0, 1));
    });
}
