//! Every interleaving of the calls of a lease, of the queue and of ends that go through both, by [loom]:
//! `make loom` runs these in place of the tests.
//!
//! The threads here are loom's, and so is everything that they share; each test is run once for every
//! order in which their steps can come.
//!
//! [loom]: https://docs.rs/loom

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::{Ending, Holder, Lease, Queue, Settled, State, Trouble};
use crate::error::Error;

/// Something that counts its drops, and says while it is looked at that it lives.
struct Kept {
    drops: Arc<AtomicUsize>,
}

impl Kept {
    fn look(&self) {
        assert_eq!(self.drops.load(Ordering::SeqCst), 0, "seen after its end");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

struct Scene {
    drops: Arc<AtomicUsize>,
    lease: Arc<Lease<Arc<Kept>>>,
}

impl Scene {
    fn new() -> Self {
        let drops = Arc::new(AtomicUsize::new(0));
        let kept = Arc::new(Kept { drops: Arc::clone(&drops) });
        Self { drops, lease: Arc::new(Lease::new(kept)) }
    }

    /// `call` on a thread of its own.
    fn on_thread<R: 'static>(
        &self,
        call: impl FnOnce(&Lease<Arc<Kept>>) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let lease = Arc::clone(&self.lease);
        thread::spawn(move || call(&lease))
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::SeqCst)
    }
}

#[test]
fn one_of_those_who_end_it_at_once_gets_it_and_it_goes_once() {
    loom::model(|| {
        let scene = Scene::new();
        let others: Vec<_> =
            (0..2).map(|_| scene.on_thread(|lease| usize::from(lease.end().is_some()))).collect();
        let mine = usize::from(scene.lease.end().is_some());
        let theirs: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!((mine + theirs, scene.drops()), (1, 1));
    });
}

#[test]
fn who_looks_while_another_ends_it_sees_it_alive_or_not_at_all() {
    loom::model(|| {
        let scene = Scene::new();
        let visit = scene.on_thread(|lease| lease.try_with(|kept| kept.look()).is_some());
        let look = scene.on_thread(|lease| lease.with(|kept| kept.look()).is_some());
        drop(scene.lease.end());
        assert!(scene.lease.with(|kept| kept.look()).is_none(), "seen after its end");
        assert!(scene.lease.try_with(|kept| kept.look()).is_none(), "visited after its end");
        look.join().unwrap();
        visit.join().unwrap();
        assert_eq!(scene.drops(), 1);
    });
}

#[test]
fn the_flag_says_ended_whenever_nothing_is_to_be_seen_and_the_other_way_round() {
    loom::model(|| {
        let scene = Scene::new();
        let unseen = scene.on_thread(|lease| {
            if lease.with(|kept| kept.look()).is_none() {
                assert!(!lease.is_leased(), "gone, and the flag says leased");
            }
        });
        let flagged = scene.on_thread(|lease| {
            if !lease.is_leased() {
                assert!(lease.with(|kept| kept.look()).is_none(), "flagged, and yet seen");
            }
        });
        assert!(scene.lease.is_leased());
        drop(scene.lease.end());
        assert!(!scene.lease.is_leased());
        unseen.join().unwrap();
        flagged.join().unwrap();
    });
}

#[test]
fn what_was_shared_before_the_end_lives_as_long_as_its_holder() {
    loom::model(|| {
        let scene = Scene::new();
        let sharing = scene.on_thread(|lease| lease.with(|kept| Arc::clone(kept)));
        drop(scene.lease.end());
        if let Some(shared) = sharing.join().unwrap() {
            shared.look();
            assert_eq!(scene.drops(), 0);
            drop(shared);
        }
        assert_eq!(scene.drops(), 1);
        assert!(scene.lease.with(|kept| Arc::clone(kept)).is_none());
    });
}

#[test]
fn what_nobody_ends_goes_with_the_last_who_holds_its_lease() {
    loom::model(|| {
        let Scene { drops, lease } = Scene::new();
        let other = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || drop(lease))
        };
        lease.with(|kept| kept.look());
        drop(lease);
        other.join().unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

/// An end that is refused: the holder goes back.
fn refuse(lease: &Lease<Arc<Kept>>) -> bool {
    lease.end().map(|kept| lease.resume(kept)).is_some()
}

#[test]
fn an_end_that_is_refused_loses_nothing_to_one_that_comes_at_once() {
    loom::model(|| {
        let scene = Scene::new();
        let refused = scene.on_thread(refuse);
        let end = scene.on_thread(|lease| lease.end().is_some());
        let (refused, ended) = (refused.join().unwrap(), end.join().unwrap());
        // Whoever came while the holder was out had no part in it; then it is leased again.
        assert!(refused || ended, "somebody had it");
        assert_eq!((scene.lease.is_leased(), scene.drops()), (!ended, usize::from(ended)));
        assert_eq!(scene.lease.with(|kept| kept.look()).is_some(), !ended);
        drop(scene.lease.end());
        assert_eq!(scene.drops(), 1);
    });
}

#[test]
fn who_looks_while_an_end_is_refused_sees_it_alive_or_not_at_all() {
    loom::model(|| {
        let scene = Scene::new();
        let look = scene.on_thread(|lease| lease.with(|kept| kept.look()).is_some());
        let visit = scene.on_thread(|lease| lease.try_with(|kept| kept.look()).is_some());
        assert!(refuse(&scene.lease), "nobody else ends it");
        look.join().unwrap();
        visit.join().unwrap();
        assert!(scene.lease.is_leased() && scene.lease.with(|kept| kept.look()).is_some());
        assert_eq!(scene.drops(), 0);
    });
}

#[test]
fn two_ends_that_are_refused_at_once_leave_it_leased() {
    loom::model(|| {
        let scene = Scene::new();
        let others = [(); 2].map(|()| scene.on_thread(refuse));
        assert!(others.map(|other| other.join().unwrap()).contains(&true));
        assert!(scene.lease.is_leased());
        assert!(scene.lease.end().is_some());
        assert_eq!((scene.lease.is_leased(), scene.drops()), (false, 1));
    });
}

/// Something that is queued: whether somebody asks it just now, and how often it was asked.
struct Asked {
    id: usize,
    busy: Arc<AtomicUsize>,
    times: usize,
}

impl Asked {
    fn new(id: usize) -> Self {
        Self { id, busy: Arc::new(AtomicUsize::new(0)), times: 0 }
    }

    /// Whether this was the question number `last`.
    fn ask(&mut self, last: usize) -> bool {
        assert_eq!(self.busy.swap(1, Ordering::SeqCst), 0, "asked by two at once");
        self.times += 1;
        self.busy.store(0, Ordering::SeqCst);
        self.times >= last
    }
}

fn ids(items: &[Asked]) -> Vec<usize> {
    let mut ids: Vec<usize> = items.iter().map(|item| item.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn what_is_pushed_while_others_are_asked_is_not_lost() {
    loom::model(|| {
        let queue = Arc::new(Queue::default());
        queue.push(Asked::new(0));
        let pushing = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.push(Asked::new(1));
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
        (0..2).for_each(|id| queue.push(Asked::new(id)));
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
                queue.ask(1, |item: &mut Asked| item.ask(9)).len()
            })
        };
        queue.push(Asked::new(0));
        if queue.is_empty() {
            assert_eq!(asking.load(Ordering::SeqCst), 1);
        }
        assert_eq!((other.join().unwrap(), queue.len()), (0, 1));
    });
}

/// How often a thing happened. To note it is no step of its own, where loom would try every order.
type Times = std::sync::Arc<std::sync::atomic::AtomicUsize>;

/// A holder whose end has to wait for its consumer, unless that is done.
struct Fake {
    drops: Times,
    settled: Times,
    done: Arc<AtomicUsize>,
}

impl Fake {
    fn is_consumer_done(&self) -> bool {
        let done = self.done.load(Ordering::SeqCst) == 1;
        assert_eq!(self.drops.load(Ordering::SeqCst), 0, "asked after its end");
        done
    }
}

impl Holder for Fake {
    type Lock<'l> = ();
    type Mark = ();
    type Interrupt = ();

    fn settle(&mut self, (): ()) -> Result<Settled<()>, Trouble<()>> {
        self.settled.fetch_add(1, Ordering::SeqCst);
        Ok(if self.is_consumer_done() { Settled::Done } else { Settled::Until(()) })
    }

    fn is_done(&self, (): &mut ()) -> Result<bool, Error> {
        Ok(self.is_consumer_done())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// A lease, the queue that its end waits in, and how often each thing happened.
#[derive(Clone)]
struct Ends {
    lease: Arc<Lease<Fake>>,
    queue: Arc<Queue<Ending<Fake>>>,
    drops: Times,
    settled: Times,
    done: Arc<AtomicUsize>,
}

impl Ends {
    fn new() -> Self {
        let (drops, settled, done) = (Times::default(), Times::default(), Arc::default());
        let fake = Fake { drops: drops.clone(), settled: settled.clone(), done: Arc::clone(&done) };
        let (lease, queue) = (Arc::new(Lease::new(fake)), Arc::new(Queue::default()));
        Self { lease, queue, drops, settled, done }
    }

    fn on_thread<R: 'static>(
        &self,
        call: impl FnOnce(&Self) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let ends = self.clone();
        thread::spawn(move || call(&ends))
    }

    /// Ends the lease as a view does: at once, or once somebody who asks finds it done.
    fn end(&self) -> bool {
        let Some(holder) = self.lease.end() else { return false };
        let mut ending = Ending::new(holder);
        assert_eq!((ending.state(), ending.advance(())), (State::Due, Ok(())));
        if ending.is_over() {
            assert_eq!(ending.state(), State::GivenBack);
        } else {
            self.queue.push(ending);
        }
        true
    }

    /// How many are over that were not.
    fn ask(&self) -> usize {
        let over = self.queue.ask(1, |ending| {
            assert_eq!((ending.state(), ending.advance(())), (State::Waiting(()), Ok(())));
            ending.is_over()
        });
        assert!(over.iter().all(|ending| ending.state() == State::GivenBack));
        over.len()
    }

    /// How often it was settled and dropped.
    fn counts(&self) -> (usize, usize) {
        (self.settled.load(Ordering::SeqCst), self.drops.load(Ordering::SeqCst))
    }
}

#[test]
fn an_end_is_settled_once_whoever_ends_and_whoever_asks() {
    loom::model(|| {
        let ends = Ends::new();
        let ending = ends.on_thread(|ends| usize::from(ends.end()));
        let asking = ends.on_thread(Ends::ask);
        let mine = usize::from(ends.end());
        let (theirs, over) = (ending.join().unwrap(), asking.join().unwrap());
        assert_eq!(
            (mine + theirs, over, ends.counts()),
            (1, 0, (1, 0)),
            "its consumer is not done"
        );
        ends.done.store(1, Ordering::SeqCst);
        assert_eq!((ends.ask(), ends.counts(), ends.queue.len()), (1, (1, 1), 0));
    });
}

#[test]
fn an_end_goes_once_it_is_done_whoever_asks() {
    loom::model(|| {
        let ends = Ends::new();
        assert!(ends.end());
        let finishing = ends.on_thread(|ends| ends.done.store(1, Ordering::SeqCst));
        let asking = ends.on_thread(Ends::ask);
        let mine = ends.ask();
        finishing.join().unwrap();
        let over = mine + asking.join().unwrap();
        assert_eq!((ends.counts(), ends.queue.len()), ((1, over), 1 - over));
        assert_eq!((ends.ask(), ends.counts()), (1 - over, (1, 1)));
    });
}

#[test]
fn an_end_that_was_refused_first_is_settled_by_whoever_ends_it_next() {
    loom::model(|| {
        let ends = Ends::new();
        ends.done.store(1, Ordering::SeqCst);
        let refused = ends.on_thread(|ends| ends.lease.end().map(|fake| ends.lease.resume(fake)));
        let ended = ends.on_thread(Ends::end);
        refused.join().unwrap();
        let ended = ended.join().unwrap();
        assert_eq!((ends.lease.is_leased(), ends.end()), (!ended, !ended));
        assert_eq!((ends.counts(), ends.queue.len()), ((1, 1), 0));
    });
}
